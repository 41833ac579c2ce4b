package change

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
	"github.com/slowray/slowray/internal/sense/elffile"
	"github.com/slowray/slowray/internal/sense/host"
)

// Version is which version of its program and of its configuration a service runs: texts
// that are equal where these are, on whatever host, and tell nothing of what they are of.
type Version struct {
	PID int
	// Program is of the build that is executed, and of the scripts and archives that the
	// command line names; empty where the program cannot be read.
	Program string
	// Config is of the files that it is known to be configured by, as they are on disk;
	// empty where there are none, or one cannot be read.
	Config string
}

// Bounds of what is read of one service.
const (
	maxConfigFiles = 512
	maxConfigBytes = 8 << 20
	// wholeBytes is how large a file is that is read as a whole; of a larger one its size,
	// its beginning and its end are taken: where an archive has its directory, with the
	// checksums of all that is in it.
	wholeBytes = 512 << 10
	// digits are how many of a digest are kept: two of a million versions are taken for one
	// with a probability of 1 in 500.
	digits = 12
)

// Versions tells the versions of services. It reads no file of a file system that may not
// answer. A service that is over its part of the budget has none.
func Versions(b *budget.Budget, fs host.FS, services []Service) []Version {
	k := &looker{fs: fs, left: maxStats, roots: map[uint64]*view{}}
	var list []Version
	services = services[:min(len(services), maxService)]
	for i := range services {
		s := &services[i]
		k.b = b.Share(len(services) - i)
		if s.Exe == "" {
			s.fill(fs)
		}
		view := k.of(s.PID)
		if view == nil {
			continue
		}
		config := slices.Clone(s.Config)
		var code []string
		for _, name := range s.named() {
			switch {
			case isConfig(name):
				if !slices.Contains(config, name) {
					config = append(config, name)
				}
			case slices.Contains(codeFiles, path.Ext(name)):
				code = append(code, name)
			}
		}
		v := Version{PID: s.PID, Program: k.programVersion(view, s, code), Config: k.configVersion(view, config)}
		if k.b.Err() == nil && (v.Program != "" || v.Config != "") {
			list = append(list, v)
		}
	}
	return list
}

// codeFiles are the names of programs that another one executes.
var codeFiles = []string{".py", ".pyc", ".pyz", ".js", ".cjs", ".mjs", ".ts", ".rb", ".ru", ".php", ".phar", ".pl", ".psgi", ".lua", ".jar", ".war", ".dll", ".exs", ".beam", ".sh"}

// named are the files that a command line names, whether they are there or not.
func (s *Service) named() (names []string) {
	for i, arg := range s.Args {
		if i > 0 && strings.HasPrefix(arg, "-") {
			_, arg, _ = strings.Cut(arg, "=") // --config=/etc/app.yaml
		}
		if i == 0 || len(arg) == 0 || len(arg) > 512 || path.Ext(arg) == "" {
			continue
		}
		if !path.IsAbs(arg) {
			if s.Cwd == "" {
				continue
			}
			arg = path.Join(s.Cwd, arg)
		}
		if names = append(names, arg); len(names) == maxBeside {
			break
		}
	}
	return names
}

// configVersion is of the contents of files, in their order; a file that is named and not
// there is as good as an empty one.
func (k *looker) configVersion(v *view, names []string) string {
	sum, left, any := sha256.New(), int64(maxConfigBytes), false
	for _, name := range names[:min(len(names), maxConfigFiles)] {
		st, ok := k.stat(v, name)
		if !ok || st.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		text, _, err := v.root.ReadFile(name, left)
		if err != nil {
			return ""
		}
		left -= int64(len(text))
		length(sum, int64(len(text)))
		io.WriteString(sum, text)
		any = true
	}
	if !any {
		return ""
	}
	return short(sum)
}

// programVersion is of what a service executes: also where its file was replaced since.
func (k *looker) programVersion(v *view, s *Service, code []string) string {
	sum := sha256.New()
	if !v.table.Answers(strings.TrimSuffix(s.Exe, " (deleted)")) {
		return ""
	}
	exe, err := v.root.OpenLink(filepath.Join(k.fs.Proc, strconv.Itoa(s.PID), "exe"))
	if err != nil {
		return ""
	}
	defer exe.Close()
	if id := buildOf(k.b, exe); id != "" {
		io.WriteString(sum, id)
	} else if err := someOf(k.b, sum, exe); err != nil {
		return ""
	}
	for _, name := range code {
		st, ok := k.stat(v, name)
		if !ok || st.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		f, err := v.root.Open(name)
		if err != nil {
			return ""
		}
		err = someOf(k.b, sum, f)
		f.Close()
		if err != nil {
			return ""
		}
	}
	return short(sum)
}

// buildOf is the number that the linker gave a binary, "" where it gave none.
func buildOf(b *budget.Budget, f *rootfs.File) string {
	e, err := elffile.New(b.Sub(buildLimits), f)
	if err != nil {
		return ""
	}
	return e.BuildID()
}

// buildLimits is what may be read for a build ID: the headers and some notes.
var buildLimits = budget.Limits{Bytes: 16 << 20, Wall: 100 * time.Millisecond}

// file is what someOf reads.
type file interface {
	io.Reader
	io.Seeker
}

// someOf adds a file to a sum: all of it, or of a large one its size and both ends.
func someOf(b *budget.Budget, sum hash.Hash, f file) error {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	length(sum, size)
	part := func(from, n int64) error {
		if _, err := f.Seek(from, io.SeekStart); err != nil {
			return err
		}
		_, err := io.CopyN(sum, b.Reader(f), n)
		return err
	}
	if size <= wholeBytes {
		return part(0, size)
	}
	if err := part(0, wholeBytes/2); err != nil {
		return err
	}
	return part(size-wholeBytes/2, wholeBytes/2)
}

func length(sum hash.Hash, n int64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	sum.Write(b[:])
}

func short(sum hash.Hash) string { return hex.EncodeToString(sum.Sum(nil))[:digits] }
