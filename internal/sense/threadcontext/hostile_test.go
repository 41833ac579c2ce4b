package threadcontext

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/elffile"
	"github.com/slowray/slowray/internal/sense/procmem"
)

// Where the memory of a made-up process lies.
const (
	headerAt  = 0x7f0000001000
	payloadAt = 0x7f0000002000
)

// madeUp is the memory of a process: bytes by address.
type madeUp map[uint64][]byte

func (m madeUp) read(_ int, addr uint64, into []byte) (int, error) {
	for at, b := range m {
		if addr >= at && addr-at < uint64(len(b)) {
			return copy(into, b[addr-at:]), nil
		}
	}
	return 0, errors.New("bad address")
}

func header(version, size uint32, published, payload uint64) []byte {
	b := []byte(signature)
	b = binary.LittleEndian.AppendUint32(b, version)
	b = binary.LittleEndian.AppendUint32(b, size)
	b = binary.LittleEndian.AppendUint64(b, published)
	return binary.LittleEndian.AppendUint64(b, payload)
}

// message is a field of bytes of a message of protobuf, shorter than 128.
func message(number byte, value string) string {
	return string([]byte{number<<3 | 2, byte(len(value))}) + value
}

func attribute(key, value string) string { return message(1, key) + message(2, message(1, value)) }

// ofProcess looks at a process whose mappings are maps.
func ofProcess(t *testing.T, maps string, m procmem.Reader, l budget.Limits) (*budget.Budget, error) {
	t.Helper()
	proc := t.TempDir()
	if err := os.MkdirAll(filepath.Join(proc, "7"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(proc, "7", "maps"), []byte(maps), 0o600); err != nil {
		t.Fatal(err)
	}
	b := budget.New(context.Background(), l)
	_, err := find(b, proc, 7, m)
	return b, err
}

func TestHostileContexts(t *testing.T) {
	const terabyte = 1 << 40
	mapping := fmt.Sprintf("%x-%x rw-p 00000000 00:01 5 /memfd:OTEL_CTX (deleted)\n", headerAt, headerAt+terabyte)
	good := message(2, attribute("threadlocal.schema_version", "tlsdesc_v1_dev"))
	deep := good
	other := message(2, attribute("threadlocal.schema_version", "go_pprof_labels_v1"))
	for range 20 {
		deep = message(3, deep)
	}
	for _, c := range []struct {
		name    string
		header  []byte
		payload string
		want    string // of the error
	}{
		{"nothing of threads", header(2, 20, 1, payloadAt), message(1, message(1, attribute("service.name", "shop")))[:20], ErrNone.Error()},
		{"threads, and no file with the symbol", header(2, uint32(len(good)), 1, payloadAt), good, "none of its files has the symbol"},
		{"the same in the resource", header(1, uint32(len(message(1, good))), 1, payloadAt), message(1, good), "none of its files has the symbol"},
		{"another schema", header(2, uint32(len(other)), 1, payloadAt), other, "is not known"},
		{"no signature", make([]byte, headerBytes), "", ErrNone.Error()},
		{"a later version", header(3, 10, 1, payloadAt), good, "of version 3"},
		{"being changed", header(2, 10, 0, payloadAt), good, errChanging.Error()},
		{"4 GB of payload", header(2, 1<<32-1, 1, payloadAt), good, "4294967295 bytes"},
		{"a payload of the kernel's", header(2, 10, 1, 0xffffffff81000000), good, "cannot be read"},
		{"a payload nowhere", header(2, 10, 1, 8), good, "cannot be read"},
		{"nested too deep", header(2, uint32(len(deep)), 1, payloadAt), deep, ErrNone.Error()},
		{"cut off", header(2, uint32(len(good)-3), 1, payloadAt), good, ErrNone.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			payload := append([]byte(c.payload), make([]byte, 64)...)
			b, err := ofProcess(t, mapping, madeUp{headerAt: c.header, payloadAt: payload}.read, limits)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if took := limits.Bytes - b.Left(); took > 1<<20 {
				t.Errorf("%d bytes were read of a mapping of %d", took, terabyte)
			}
		})
	}
}

// TestManyMappings: who maps without end has the look ended.
func TestManyMappings(t *testing.T) {
	line := "7f0000000000-7f0000001000 r--p 00000000 fd:01 9 /lib/some.so\n"
	_, err := ofProcess(t, strings.Repeat(line, 3000), madeUp{}.read, budget.Limits{Nodes: 1000})
	if !budget.IsExceeded(err) {
		t.Errorf("%v", err)
	}
}

// TestChangedMeanwhile: a payload that was replaced while it was read is not believed.
func TestChangedMeanwhile(t *testing.T) {
	good := message(2, attribute("threadlocal.schema_version", "tls_v1"))
	looks := uint64(0)
	read := func(_ int, addr uint64, into []byte) (int, error) {
		if addr == headerAt {
			looks++
			return copy(into, header(2, uint32(len(good)), looks, payloadAt)), nil
		}
		return copy(into, good), nil
	}
	mapping := fmt.Sprintf("%x-%x rw-p 00000000 00:00 0 [anon:OTEL_CTX]\n", headerAt, headerAt+4096)
	if _, err := ofProcess(t, mapping, read, limits); !errors.Is(err, ErrChanging) {
		t.Errorf("%v", err)
	}
}

// TestPlacesThatCannotBe: what a dynamic linker would never write into a library's slots.
func TestPlacesThatCannotBe(t *testing.T) {
	for _, d := range []uint64{0, maxStatic, 1 << 63, 0xffff888000000000, headerAt} {
		if at, err := static(d); err == nil {
			t.Errorf("distance %#x: %+v", d, at)
		}
	}
	m := &memory{}
	for _, c := range [][2]uint64{{0, 8}, {maxModules + 1, 8}, {1 << 40, 8}, {1, 64}, {1, 1 << 63}} {
		if at, err := m.dynamic(elf.EM_X86_64, c[0], c[1], 64); err == nil {
			t.Errorf("module %d, offset %d: %+v", c[0], c[1], at)
		}
	}
}

// TestVectors: where the C libraries keep the blocks of their threads.
func TestVectors(t *testing.T) {
	for _, c := range []struct {
		machine elf.Machine
		musl    bool
		want    Place
	}{
		{elf.EM_X86_64, false, Place{Offset: 16, Vector: 8, Length: -16, Module: 3, Entry: 16}},
		{elf.EM_X86_64, true, Place{Offset: 16, Vector: 8, Length: 0, Module: 3, Entry: 8}},
		{elf.EM_AARCH64, false, Place{Offset: 16, Vector: 0, Length: -16, Module: 3, Entry: 16}},
		{elf.EM_AARCH64, true, Place{Offset: 16, Vector: -8, Length: 0, Module: 3, Entry: 8}},
	} {
		if at, err := (&memory{musl: c.musl}).dynamic(c.machine, 3, 16, 64); err != nil || at != c.want {
			t.Errorf("%v, musl %v: %+v, %v", c.machine, c.musl, at, err)
		}
	}
}

// FuzzContext: whatever a process says of itself, looking at it ends, and what is read is
// bounded.
func FuzzContext(f *testing.F) {
	f.Add(header(2, 49, 1, payloadAt), []byte(message(2, attribute("threadlocal.schema_version", "tls_v1"))))
	f.Add(header(1, 9, 1, payloadAt), []byte("\x12\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"))
	f.Fuzz(func(t *testing.T, header, payload []byte) {
		b := budget.New(context.Background(), limits)
		p := procmem.Process{PID: 7, Read: madeUp{headerAt: header, payloadAt: payload}.read, Budget: b}
		err := publishes(p, headerAt)
		if took := limits.Bytes - b.Left(); took > maxPayload+2*headerBytes {
			t.Errorf("%d bytes were read", took)
		}
		if err == nil && !bytes.Contains(payload, []byte(schemaKey)) {
			t.Errorf("a schema out of nothing in %q", payload)
		}
	})
}

// FuzzLibrary: whatever a file and its memory say, the place is one that can be, or there is
// none.
func FuzzLibrary(f *testing.F) {
	if self, err := os.Open("/proc/self/exe"); err == nil {
		head, _ := io.ReadAll(io.LimitReader(self, 4096))
		f.Add(head, uint64(1), uint64(8))
		self.Close()
	}
	f.Fuzz(func(t *testing.T, file []byte, first, second uint64) {
		b := budget.New(context.Background(), budget.Limits{Bytes: 1 << 20, Unpacked: 1 << 20, Nodes: 1 << 16})
		image, err := elffile.New(b, bytes.NewReader(file))
		if err != nil {
			return
		}
		s, err := lookUp(image)
		if err != nil {
			return
		}
		read := func(_ int, _ uint64, into []byte) (int, error) {
			words := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, first), second)
			return copy(into, words), nil
		}
		p := procmem.Process{PID: 7, Read: read, Budget: b}
		for _, at := range []func() (Place, error){
			func() (Place, error) { return ofProgram(image, s) },
			func() (Place, error) { return (&memory{}).ofLibrary(p, image, s, headerAt) },
		} {
			if place, err := at(); err == nil && (place.Offset >= maxStatic+64 || place.Offset < -2*maxStatic || place.Module > maxModules) {
				t.Errorf("%+v", place)
			}
		}
	})
}
