package change

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/safefile"
)

// pinned is a BPF program that is kept by a file while nothing else may hold
// it: so it is still there when slowray was killed.
type pinned struct {
	ID   uint32 `json:"id"`
	Tag  string `json:"tag"`
	Path string `json:"path"`
}

// bpffs is a directory where the BPF file system is mounted.
func bpffs() (string, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		head, tail, _ := strings.Cut(line, " - ")
		f, kind := strings.Fields(head), strings.Fields(tail)
		if len(f) < 6 || len(kind) == 0 || kind[0] != "bpf" || f[3] != "/" || strings.Contains(f[4], `\`) {
			continue
		}
		if unix.Access(f[4], unix.W_OK) == nil {
			return f[4], nil
		}
	}
	return "", errors.New("its program would be lost with it, as no BPF file system is mounted to keep it (mount -t bpf bpf /sys/fs/bpf): not taken away")
}

// keepable finds out whether a program can be kept.
func keepable(id uint32) (*pinned, error) {
	dir, err := bpffs()
	if err != nil {
		return nil, err
	}
	prog, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		return nil, fmt.Errorf("program %d: %w", id, refused(unwrapped(err), "CAP_SYS_ADMIN"))
	}
	defer prog.Close()
	info, err := prog.Info()
	if err != nil {
		return nil, fmt.Errorf("program %d: %w", id, err)
	}
	if own, err := safefile.OpenDir(filepath.Join(dir, keptDir)); err == nil {
		own.Close()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return &pinned{ID: id, Tag: info.Tag, Path: filepath.Join(dir, keptDir, fmt.Sprintf("slowray-kept-%d", id))}, nil
}

// keptDir is a directory of slowray's own in the BPF file system, in which all may
// write if it was not mounted otherwise.
const keptDir = "slowray"

// at calls f with a path to where the program is kept, in its directory, which is
// held open.
func (p *pinned) at(dir *safefile.Dir, err error, f func(path string) error) error {
	if err != nil {
		return err
	}
	defer dir.Close()
	open, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer open.Close()
	return f(fmt.Sprintf("/proc/self/fd/%d/%s", open.Fd(), filepath.Base(p.Path)))
}

func (p *pinned) dir() string { return filepath.Dir(p.Path) }

func unwrapped(err error) error {
	var code unix.Errno
	if errors.As(err, &code) {
		return code
	}
	return err
}

func (p *pinned) pin() error {
	if prog, err := p.pinnedProgram(); err == nil {
		return prog.Close()
	}
	prog, err := ebpf.NewProgramFromID(ebpf.ProgramID(p.ID))
	if errors.Is(err, fs.ErrNotExist) {
		return ErrGone
	}
	if err != nil {
		return fmt.Errorf("program %d: %w", p.ID, err)
	}
	defer prog.Close()
	dir, err := safefile.MakeDir(p.dir(), 0o700)
	if err := p.at(dir, err, prog.Pin); err != nil {
		return fmt.Errorf("program %d: keep it as %s: %w", p.ID, p.Path, err)
	}
	return nil
}

func (p *pinned) pinnedProgram() (*ebpf.Program, error) {
	var prog *ebpf.Program
	dir, err := safefile.OpenDir(p.dir())
	err = p.at(dir, err, func(path string) (err error) {
		prog, err = ebpf.LoadPinnedProgram(path, nil)
		return err
	})
	if err != nil {
		return nil, err
	}
	info, err := prog.Info()
	if id, ok := info.ID(); err != nil || !ok || uint32(id) != p.ID {
		prog.Close()
		return nil, ErrGone
	}
	return prog, nil
}

// open gives the program, from its file or, before it was pinned, by its number.
func (p *pinned) open() (*ebpf.Program, error) {
	if prog, err := p.pinnedProgram(); err == nil {
		return prog, nil
	}
	prog, err := ebpf.NewProgramFromID(ebpf.ProgramID(p.ID))
	if err != nil {
		return nil, fmt.Errorf("program %d is lost: %s is not there", p.ID, p.Path)
	}
	return prog, nil
}

func (p *pinned) unpin() {
	if dir, err := safefile.OpenDir(p.dir()); err == nil {
		_ = dir.Remove(filepath.Base(p.Path))
		dir.Close()
		_ = safefile.RemoveDir(p.dir()) // after the last one
	}
}
