package tlslib

import (
	"cmp"
	"context"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/elffile"
	"github.com/slowray/slowray/internal/sense/exits"
	"github.com/slowray/slowray/internal/sense/procmem"
)

// Kind is a function. The programs know it by its number (clear.bpf.c).
type Kind uint8

// Functions of OpenSSL 1.1 to 3, LibreSSL and BoringSSL.
const (
	Read Kind = 1 + iota
	ReadEx
	Write
	WriteEx
	Protocol // that was agreed (ALPN)
	Free
)

var openSSL = map[string]Kind{
	"SSL_read": Read, "SSL_read_ex": ReadEx, "SSL_write": Write, "SSL_write_ex": WriteEx,
	"SSL_get0_alpn_selected": Protocol, "SSL_free": Free,
}

// Site is a function: where in the file it begins (0 = of no interest, as for GoRead), and
// where it ends (none for Free and others whose end tells nothing).
type Site struct {
	Kind   Kind
	Entry  uint64
	Exits  []uint64
	Member uint16 // GoRead: where in a Conn the receiver is
}

// ID tells files apart, whatever their names.
type ID struct {
	Device string
	Inode  uint64
}

// File is one that has such functions. Close it.
type File struct {
	ID
	Name   string // as the process has it
	Sites  []Site
	handle *os.File
}

// Path leads to the very file that was read, also where its name is gone.
func (f *File) Path() string { return fmt.Sprintf("/proc/self/fd/%d", f.handle.Fd()) }

// Close closes it.
func (f *File) Close() { f.handle.Close() }

// Process is what is known of a process.
type Process struct {
	Files []*File // that were not known
	IDs   []ID    // of all that have such functions
	Other string  // where there are none: what encrypts, as far as can be told
}

// limits is what may be read of the files of one process, fileLimits of one of them.
var (
	limits     = budget.Limits{Bytes: 512 << 20, Unpacked: 64 << 20, Nodes: 4 << 20, Wall: 5 * time.Second}
	fileLimits = budget.Limits{Wall: 2 * time.Second}
)

// Bounds of what somebody may have made up: each place that is watched takes memory of the
// kernel. Libraries have one function of a kind, which is left at some places.
const (
	maxKnown = 4096 // files that are remembered
	maxFiles = 16   // of one process
	maxSites = 32   // of a file
	maxExits = 32   // of a function
)

// Finder remembers which files it has looked at.
type Finder struct {
	known map[ID]verdict
}

type verdict struct {
	has   bool   // such functions
	other string // by what else it may encrypt
}

// Find looks through the files of which a process executes code.
func (f *Finder) Find(ctx context.Context, pid int) (Process, error) {
	b := budget.New(ctx, limits)
	var p Process
	maps, err := executable(b, pid)
	if err != nil {
		return p, err
	}
	if f.known == nil || len(f.known) > maxKnown {
		f.known = map[ID]verdict{}
	}
	for i := range maps {
		m := &maps[i]
		id := ID{m.Device, m.Inode}
		v, known := f.known[id]
		if !known && len(p.Files) < maxFiles {
			file, other, read := open(b.Sub(fileLimits), pid, m)
			if file != nil {
				p.Files = append(p.Files, file)
			}
			if err := b.Err(); err != nil {
				p.forget(f)
				return Process{}, fmt.Errorf("files of process %d: %w", pid, err)
			}
			v = verdict{file != nil, other}
			if read {
				f.known[id] = v
			}
		}
		p.Other = cmp.Or(p.Other, v.other)
		if v.has {
			p.IDs = append(p.IDs, id)
		}
	}
	if len(p.IDs) > 0 {
		p.Other = ""
	} else {
		p.Other = cmp.Or(p.Other, "a TLS library without symbols")
	}
	return p, nil
}

// forget closes what was found.
func (p *Process) forget(f *Finder) {
	for _, file := range p.Files {
		file.Close()
		f.Forget(file.ID)
	}
}

// Forget has a file looked at anew.
func (f *Finder) Forget(id ID) { delete(f.known, id) }

// executable are the mappings of files that a process executes, one of each.
func executable(b *budget.Budget, pid int) ([]procmem.Mapping, error) {
	var out []procmem.Mapping
	seen := map[ID]bool{}
	err := procmem.EachMapping(b, "/proc", pid, func(m *procmem.Mapping) bool {
		id := ID{m.Device, m.Inode}
		if m.Executable && m.Inode != 0 && !strings.HasPrefix(m.Path, "[") && !seen[id] {
			seen[id] = true
			out = append(out, *m)
		}
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("mappings of process %d: %w", pid, err)
	}
	return out, nil
}

// open opens the file of a mapping where it has functions of TLS. other is by what else
// it may encrypt. A file that cannot be read has none. One that cannot be opened, as when the
// process has ended meanwhile, was not read: that says nothing of it.
func open(b *budget.Budget, pid int, m *procmem.Mapping) (file *File, other string, read bool) {
	if strings.HasPrefix(filepath.Base(m.Path), "libjvm.so") {
		return nil, "Java's own TLS", true
	}
	handle, err := procmem.OpenFile("/proc", pid, m)
	if err != nil {
		return nil, "", false
	}
	defer func() {
		if file == nil {
			handle.Close()
		}
	}()
	image, err := elffile.New(b, handle)
	if err != nil {
		return nil, "", true
	}
	sites, rustls := openSSLSites(image)
	switch {
	case has(sites, Read, ReadEx) && has(sites, Write, WriteEx):
		return &File{ID: ID{m.Device, m.Inode}, Name: m.Path, Sites: sites, handle: handle}, "", true
	case image.IsGo():
		if sites, other = goSites(image); sites != nil {
			file = &File{ID: ID{m.Device, m.Inode}, Name: m.Path, Sites: sites, handle: handle}
		}
		return file, other, true
	case rustls:
		return nil, "rustls", true
	}
	return nil, "", true
}

func has(sites []Site, kinds ...Kind) bool {
	return slices.ContainsFunc(sites, func(s Site) bool { return slices.Contains(kinds, s.Kind) })
}

// openSSLSites are the functions of OpenSSL that are in a file, and whether rustls is.
func openSSLSites(image *elffile.File) (sites []Site, rustls bool) {
	for _, table := range []elf.SectionType{elf.SHT_SYMTAB, elf.SHT_DYNSYM} {
		t := image.Symbols(table)
		if t == nil {
			continue
		}
		// A table that is broken, or over the budget, has what was read of it.
		_ = t.Each(func(s *elffile.Symbol) bool {
			if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Section == elf.SHN_UNDEF || s.Value == 0 || !s.Named() {
				return true
			}
			name, _, _ := strings.Cut(t.NameOfMany(s), "@")
			rustls = rustls || strings.Contains(name, "rustls")
			kind, ok := openSSL[name]
			if !ok {
				return true
			}
			if site, ok := siteOf(image, kind, s); ok {
				sites = append(sites, site)
			}
			return len(sites) <= maxSites
		})
	}
	if len(sites) > maxSites {
		return nil, rustls // it is made up
	}
	slices.SortFunc(sites, func(a, b Site) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Entry, b.Entry))
	})
	return slices.CompactFunc(sites, func(a, b Site) bool { return a.Kind == b.Kind && a.Entry == b.Entry }), rustls
}

// maxCode bounds the code of one of these functions, bytes: they have some hundreds.
const maxCode = 64 << 10

// siteOf finds where a function is left. One that ends in another one is none: what it
// returns is not known where it is left.
func siteOf(image *elffile.File, kind Kind, s *elffile.Symbol) (Site, bool) {
	p := image.Executable(s.Value)
	if p == nil {
		return Site{}, false
	}
	at := s.Value - p.Vaddr + p.Off
	if kind == Free {
		return Site{Kind: kind, Entry: at}, true
	}
	code := image.Loaded(s.Value, min(s.Size, maxCode))
	tail := false
	out, ok := exits.Find(image.Machine, code, func(offset int64) bool {
		out := offset < 0 || uint64(offset) >= s.Size
		tail = tail || out
		return out
	})
	if !ok || tail || len(out) == 0 || len(out) > maxExits || uint64(len(code)) != s.Size {
		return Site{}, false
	}
	begin, out := exits.Cheaper(image.Machine, code, out)
	for i := range out {
		out[i] += at
	}
	return Site{Kind: kind, Entry: at + begin, Exits: out}, true
}
