package change

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/safefile"
	"github.com/slowray/slowray/internal/shell"
)

func init() {
	Register(cause.ChangeFile, kind[fileState]{
		read: readFile, apply: applyFile, present: presentFile, undo: undoFile, commands: fileCommands,
	})
}

// fileState is a file of sysfs: a value, or one of several in brackets.
type fileState struct {
	Path string `json:"path"`
	Old  string `json:"old"` // as it was read
}

// settingFiles are the files that may be written. Others of sysfs remove
// devices, put the machine to sleep, or start something.
var settingFiles = []string{
	"/sys/block/*/queue/*",
	"/sys/kernel/mm/transparent_hugepage/*",
	"/sys/kernel/mm/transparent_hugepage/khugepaged/*",
	"/sys/devices/system/clocksource/*/current_clocksource",
	"/sys/devices/system/cpu/*/cpufreq/*",
	"/sys/class/net/*/queues/*/*",
	"/sys/module/*/parameters/*",
}

func readFile(c *cause.Change) (fileState, string, error) {
	s := fileState{Path: c.Path}
	allowed := false
	for _, pattern := range settingFiles {
		ok, err := path.Match(pattern, c.Path)
		allowed = allowed || ok && err == nil && path.Clean(c.Path) == c.Path
	}
	if !allowed {
		return s, "", fmt.Errorf("%s is not a setting in sysfs: it is never written", c.Path)
	}
	if strings.TrimSpace(c.Value) == "" || strings.ContainsAny(c.Value, "\x00\n") || len(c.Value) > 4096 {
		return s, "", fmt.Errorf("%s: %q is not a value", c.Path, c.Value)
	}
	var err error
	if s.Old, err = s.get(); err != nil {
		if errors.Is(err, ErrGone) {
			err = errors.New("this kernel has no such file")
		}
		return s, "", fmt.Errorf("%s: %w", c.Path, err)
	}
	f, err := s.open(unix.O_WRONLY)
	if err != nil {
		return s, "", fmt.Errorf("%s: %w", c.Path, err)
	}
	f.Close()
	was := selected(s.Old)
	switch {
	case was == strings.TrimSpace(c.Value):
		return s, was, fmt.Errorf("%s is %s: %w", c.Path, was, ErrAlready)
	case offers(s.Old) && !strings.Contains(" "+sysctlWords(s.Old)+" ", " "+strings.TrimSpace(c.Value)+" "):
		return s, was, fmt.Errorf("%s: the kernel offers %s, and not %s", c.Path, sysctlWords(s.Old), c.Value)
	}
	return s, was, nil
}

// open opens the file within sysfs: its links lead to other places of it, and
// other file systems mounted there are not entered.
func (s *fileState) open(flags int) (*os.File, error) {
	f, err := safefile.OpenKernel("/sys", strings.TrimPrefix(s.Path, "/sys/"), flags, unix.SYSFS_MAGIC)
	if errors.Is(err, unix.ENOENT) {
		return nil, ErrGone
	}
	return f, refused(err, "root, and a setting that can be written")
}

func (s *fileState) get() (string, error) {
	f, err := s.open(unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 64<<10))
	return string(b), refused(err, "root")
}

func (s *fileState) set(value string) error {
	f, err := s.open(unix.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value + "\n")
	err = errors.Join(err, f.Close())
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ERANGE) {
		return fmt.Errorf("the kernel does not take %q", value)
	}
	if err != nil {
		return refused(err, "root")
	}
	now, err := s.get()
	if err == nil && selected(now) != strings.TrimSpace(value) {
		err = fmt.Errorf("the kernel made %q of %q", selected(now), value)
	}
	return err
}

// offers says whether a file lists values, with the one in force in brackets:
// "[none] mq-deadline".
func offers(text string) bool { return strings.Contains(text, "[") }

// selected is the value in force.
func selected(text string) string {
	if _, rest, ok := strings.Cut(text, "["); ok {
		if one, _, ok := strings.Cut(rest, "]"); ok {
			return one
		}
	}
	return strings.TrimSpace(text)
}

func fileError(c *cause.Change, err error) error {
	if err == nil || errors.Is(err, ErrGone) {
		return err
	}
	return fmt.Errorf("%s: %w", c.Path, err)
}

func applyFile(c *cause.Change, s *fileState) error { return fileError(c, s.set(c.Value)) }

func presentFile(c *cause.Change, s *fileState) (changeState, string, error) {
	now, err := s.get()
	switch {
	case err != nil:
		return foreign, "", fileError(c, err)
	case selected(now) == strings.TrimSpace(c.Value):
		return holds, "", nil
	case selected(now) == selected(s.Old):
		return before, "", nil
	}
	return foreign, selected(now), nil
}

func undoFile(c *cause.Change, s *fileState) error {
	now, err := s.get()
	if err != nil || now == s.Old {
		return fileError(c, err)
	}
	return fileError(c, s.set(selected(s.Old)))
}

func fileCommands(c *cause.Change, s *fileState) (do, undo []shell.Command) {
	write := func(v string) []shell.Command { return []shell.Command{shell.Write(v, shell.Path(s.Path))} }
	return write(c.Value), write(selected(s.Old))
}
