package tlslib

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/elffile"
	"github.com/slowray/slowray/internal/sense/procmem"
)

// library is an ELF file with functions, as many of each name, that are left at so many places.
func library(functions, exits int) []byte {
	const code = 0x1000
	names := []string{"SSL_read", "SSL_write"}
	text := bytes.Repeat([]byte{0xc3}, functions*len(names)*exits)
	strings := []byte{0}
	symbols := make([]elf.Sym64, 1)
	for k, name := range names {
		at := uint32(len(strings))
		strings = append(append(strings, name...), 0)
		for i := range functions {
			symbols = append(symbols, elf.Sym64{Name: at, Info: uint8(elf.STT_FUNC), Shndx: 1, Value: uint64(code + (k*functions+i)*exits), Size: uint64(exits)})
		}
	}
	var table bytes.Buffer
	_ = binary.Write(&table, binary.LittleEndian, symbols)
	end := uint64(code + len(text))
	sections := []elf.Section64{{}, {Type: uint32(elf.SHT_DYNSYM), Off: end, Size: uint64(table.Len()), Link: 2, Entsize: elf.Sym64Size},
		{Type: uint32(elf.SHT_STRTAB), Off: end + uint64(table.Len()), Size: uint64(len(strings))}}
	h := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Phoff: 64, Phentsize: 56, Phnum: 1, Ehsize: 64,
		Shoff: end + uint64(table.Len()+len(strings)), Shentsize: 64, Shnum: uint16(len(sections)),
	}
	copy(h.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	var out bytes.Buffer
	_ = binary.Write(&out, binary.LittleEndian, &h)
	_ = binary.Write(&out, binary.LittleEndian, &elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Filesz: end, Memsz: end})
	out.Write(make([]byte, code-out.Len()))
	out.Write(text)
	out.Write(table.Bytes())
	out.Write(strings)
	_ = binary.Write(&out, binary.LittleEndian, sections)
	return out.Bytes()
}

// TestMadeUp: each place that is watched takes memory of the kernel, so of a file that
// somebody has made up not all are.
func TestMadeUp(t *testing.T) {
	for _, c := range []struct{ functions, exits, want int }{{1, 3, 2}, {4, 3, 8}, {1, maxExits, 2}, {1, maxExits + 1, 0}, {1, 60_000, 0}, {maxSites, 1, 0}, {10_000, 8, 0}} {
		image, err := elffile.New(budget.New(context.Background(), limits), bytes.NewReader(library(c.functions, c.exits)))
		if err != nil {
			t.Fatal(err)
		}
		if sites, _ := openSSLSites(image); len(sites) != c.want {
			t.Errorf("%d functions that are left at %d places: %d are watched, want %d", c.functions, c.exits, len(sites), c.want)
		}
	}
}

// TestFindMany: of one process so many files are found at a time, and the others later.
func TestFindMany(t *testing.T) {
	dir := t.TempDir()
	for i := range maxFiles + 5 {
		name := filepath.Join(dir, string(rune('a'+i)))
		if err := os.WriteFile(name, library(1, 3), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		b, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Munmap(b) })
	}
	var f Finder
	for _, want := range []int{maxFiles, 5, 0} {
		p, err := f.Find(context.Background(), os.Getpid())
		if err != nil || len(p.Files) != want {
			t.Fatalf("%d files, %v; want %d", len(p.Files), err, want)
		}
		for _, file := range p.Files {
			file.Close()
		}
	}
}

// TestEnded: a file that could not be opened, as when a process has ended meanwhile, is
// looked at again in another process.
func TestEnded(t *testing.T) {
	const ended = 1 << 30 // no process has it
	if _, _, read := open(budget.New(context.Background(), limits), ended, &procmem.Mapping{Path: "/usr/lib/libssl.so.3", Inode: 7, Device: "fd:01"}); read {
		t.Error("a file of a process that has ended is taken for read")
	}
}
