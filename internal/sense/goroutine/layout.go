package goroutine

import (
	"debug/dwarf"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// layout is where the fields of the runtime's structures are that are read
// (runtime/runtime2.go), on 64-bit machines.
type layout struct {
	syscallSP, syscallPC uint64
	status, id           uint64
	waitSince, reason    uint64
	procID               uint64 // of m
	inlined              bool   // the table of inlined calls is as since Go 1.20
	goFunc               uint64 // of moduledata
}

// Fields that are where they are in all versions since Go 1.18.
const (
	gStackLow  = 0
	gStackHigh = 8
	gM         = 48
	gSchedSP   = 56
	gSchedPC   = 64

	sudogG       = 0
	sudogElement = 24

	moduleHeader    = 0
	moduleFunctions = 104 // pclntable
	moduleTable     = 128 // ftab
	moduleText      = 176
	moduleTextEnd   = 184
	moduleData      = 208 // data, edata, bss, ebss, noptrbss, enoptrbss
	moduleSize      = 328
)

// layouts are those of the releases, as the debugging information of programs
// says that their compilers build: 1.18.10, 1.20.14, 1.21.13, 1.22.12, 1.23.12,
// 1.24.9, 1.25.3 and 1.26.8. They have not changed within a release so far.
var layouts = []struct {
	first, last int // minor versions of Go 1
	layout
}{
	{18, 19, layout{112, 120, 144, 152, 168, 176, 72, false, 304}},
	{20, 22, layout{112, 120, 144, 152, 168, 176, 72, true, 320}},
	{23, 24, layout{112, 120, 152, 160, 176, 184, 72, true, 320}},
	{25, 26, layout{104, 112, 144, 152, 168, 176, 64, true, 320}},
}

var errVersion = errors.New("its version of Go is not known to this slowray, and the program has no debugging information (DWARF)")

// minorOf is 22 of "go1.22.3 X:loopvar"; false of a version of another form,
// as that of a development build.
func minorOf(version string) (int, bool) {
	rest, ok := strings.CutPrefix(version, "go1.")
	if !ok {
		return 0, false
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end >= 0 {
		rest = rest[:end]
	}
	n, err := strconv.Atoi(rest)
	return n, err == nil
}

// layoutOf is the layout of a program built by a version of Go.
func layoutOf(version string, f *elf.File) (layout, error) {
	minor, known := minorOf(version)
	if known {
		for i := range layouts {
			if minor >= layouts[i].first && minor <= layouts[i].last {
				return layouts[i].layout, nil
			}
		}
		if minor < layouts[0].first {
			return layout{}, fmt.Errorf("it is built by %s: goroutines are read since Go 1.%d", version, layouts[0].first)
		}
	}
	return layoutInDWARF(f)
}

// maxDWARF bounds the debugging information that is read for a layout, in bytes.
const maxDWARF = 64 << 20

// layoutInDWARF is the layout that the debugging information tells.
func layoutInDWARF(f *elf.File) (l layout, err error) {
	for _, name := range []string{".debug_info", ".zdebug_info"} {
		if s := f.Section(name); s != nil && s.Size > maxDWARF {
			return l, fmt.Errorf("its version of Go is not known to this slowray, and its debugging information takes over %d MB", maxDWARF>>20)
		}
	}
	info := f.Section(".debug_info")
	if info == nil {
		return l, errVersion
	}
	raw, err := info.Data()
	if err != nil {
		return l, fmt.Errorf("debugging information: %w", err)
	}
	d, err := f.DWARF()
	if err != nil {
		return l, fmt.Errorf("debugging information: %w", err)
	}
	r, err := runtimeUnit(d, raw)
	if err != nil {
		return l, err
	}
	fields := map[string]map[string]*uint64{
		"runtime.g": {
			"syscallsp": &l.syscallSP, "syscallpc": &l.syscallPC, "atomicstatus": &l.status, "goid": &l.id, "waitsince": &l.waitSince, "waitreason": &l.reason,
		},
		"runtime.m":          {"procid": &l.procID},
		"runtime.moduledata": {"gofunc": &l.goFunc},
	}
	l.inlined = true
	for len(fields) > 0 {
		e, err := r.Next()
		if err != nil {
			return l, fmt.Errorf("debugging information: %w", err)
		}
		if e == nil || e.Tag == dwarf.TagCompileUnit {
			return l, errVersion
		}
		name, _ := e.Val(dwarf.AttrName).(string)
		wanted := fields[name]
		if e.Tag != dwarf.TagStructType || wanted == nil {
			continue
		}
		t, err := d.Type(e.Offset)
		if err != nil {
			return l, fmt.Errorf("debugging information: %w", err)
		}
		st, ok := t.(*dwarf.StructType)
		if !ok {
			return l, errVersion
		}
		for _, field := range st.Field {
			if to := wanted[field.Name]; to != nil {
				*to = uint64(field.ByteOffset)
				delete(wanted, field.Name)
			}
		}
		if len(wanted) > 0 {
			return l, errVersion
		}
		delete(fields, name)
	}
	return l, nil
}

// runtimeUnit reads on behind the beginning of the runtime's unit. Units are
// found by their lengths: to read through all of them would take seconds.
func runtimeUnit(d *dwarf.Data, info []byte) (*dwarf.Reader, error) {
	r := d.Reader()
	for at := 0; at+12 <= len(info); {
		length := int(binary.LittleEndian.Uint32(info[at:]))
		version := binary.LittleEndian.Uint16(info[at+4:])
		if length <= 0 || length > len(info)-at-4 {
			break // also the 64-bit form, which Go has no use for
		}
		header := 11
		if version >= 5 {
			header = 12
		}
		r.Seek(dwarf.Offset(at + header))
		e, err := r.Next()
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("debugging information: %w", err)
		}
		if e != nil && e.Tag == dwarf.TagCompileUnit {
			if name, _ := e.Val(dwarf.AttrName).(string); name == "runtime" {
				return r, nil
			}
		}
		at += 4 + length
	}
	return nil, errVersion
}
