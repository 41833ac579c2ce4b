package change

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/safefile"
	"github.com/slowray/slowray/internal/shell"
)

func init() {
	Register(cause.ChangeSysctl, kind[sysctlState]{
		read: readSysctl, apply: applySysctl, present: presentSysctl, undo: undoSysctl, commands: sysctlCommands,
	})
}

type sysctlState struct {
	Place place  `json:"place"`
	File  string `json:"file"` // below /proc/sys
	Old   string `json:"old"`  // as it was read
	// Twin says the same in another unit: to set one makes the other 0.
	Twin    string `json:"twin,omitempty"`
	TwinOld string `json:"twin_old,omitempty"`
}

// twins are sysctls of which only one is in force (mm/page-writeback.c,
// mm/util.c). The one that is 0 cannot always be set to 0 again; to set the
// other does it.
var twins = map[string]string{
	"vm/dirty_bytes": "vm/dirty_ratio", "vm/dirty_ratio": "vm/dirty_bytes",
	"vm/dirty_background_bytes": "vm/dirty_background_ratio", "vm/dirty_background_ratio": "vm/dirty_background_bytes",
	"vm/overcommit_kbytes": "vm/overcommit_ratio", "vm/overcommit_ratio": "vm/overcommit_kbytes",
}

const sysctlRoot = "/proc/sys"

// sysctlFile is the path below /proc/sys of a name as sysctl(8) takes it: with
// dots, or with slashes; in the first form a slash stands for a dot.
func sysctlFile(name string) (string, error) {
	if i := strings.IndexAny(name, "./"); i >= 0 && name[i] == '.' {
		name = strings.Map(func(r rune) rune {
			switch r {
			case '.':
				return '/'
			case '/':
				return '.'
			}
			return r
		}, name)
	}
	if !filepath.IsLocal(name) || filepath.Clean(name) != name || strings.ContainsAny(name, "\x00\n") {
		return "", fmt.Errorf("%q is not the name of a sysctl", name)
	}
	return name, nil
}

// irrevocable are the last words of sysctls that change more than their own
// value, or run something: what they do cannot be put back.
var irrevocable = map[string]string{
	"disable_ipv6":   "it takes away addresses and routes",
	"addr_gen_mode":  "it makes other addresses",
	"disable_policy": "it sets other sysctls too",
	"forwarding":     "it sets other sysctls too",
	"mc_forwarding":  "it sets other sysctls too",
	"ip_forward":     "it sets other sysctls too",
	"drop_caches":    "it drops caches",
	"compact_memory": "it is an action, not a setting",
	"flush":          "it is an action, not a setting",
	"core_pattern":   "it names a program",
	"modprobe":       "it names a program",
	"hotplug":        "it names a program",
	"poweroff_cmd":   "it names a program",
	"sysrq":          "it does not bear on speed",
}

func readSysctl(c *cause.Change) (sysctlState, string, error) {
	var s sysctlState
	file, err := sysctlFile(c.Name)
	if err != nil {
		return s, "", err
	}
	if why, no := irrevocable[filepath.Base(file)]; no {
		return s, "", fmt.Errorf("%s is never changed: %s", c.Name, why)
	}
	if strings.ContainsAny(c.Value, "\x00\n") || strings.TrimSpace(c.Value) == "" || len(c.Value) > 4096 {
		return s, "", fmt.Errorf("%s: %q is not a value", c.Name, c.Value)
	}
	if c.NetNS != 0 && !strings.HasPrefix(file, "net/") {
		return s, "", fmt.Errorf("%s is not of a network namespace: set it on the host, not in the container", c.Name)
	}
	s.File = file
	if s.Place, err = placeOf(c); err != nil {
		return s, "", fmt.Errorf("%s: %w", c.Name, err)
	}
	err = s.Place.do(func() error {
		var err error
		if s.Old, err = readSysctlFile(file); err != nil {
			return missingSysctl(c, file, err)
		}
		if s.Twin = twins[file]; s.Twin != "" {
			if s.TwinOld, err = readSysctlFile(s.Twin); err != nil {
				return refused(err, "root")
			}
		}
		// A writable mount and mode are asked for; nothing is written.
		f, err := openSysctl(file, unix.O_WRONLY)
		if errors.Is(err, unix.EACCES) && c.NetNS != 0 && Capable(unix.CAP_NET_ADMIN) {
			return errors.New("it can only be read in this namespace: set it on the host, not in the container")
		}
		if err != nil {
			return refused(err, "root, or CAP_NET_ADMIN for net.*, and a writable /proc/sys")
		}
		return f.Close()
	})
	if err != nil {
		return s, "", fmt.Errorf("%s: %w", c.Name, err)
	}
	was := sysctlWords(s.Old)
	if sameValue(s.Old, c.Value) {
		return s, was, fmt.Errorf("%s is %s: %w", c.Name, was, ErrAlready)
	}
	return s, was, nil
}

func missingSysctl(c *cause.Change, file string, err error) error {
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		return refused(err, "root")
	case c.NetNS == 0:
		return errors.New("this kernel has no such sysctl, or its module is not loaded")
	}
	// This goroutine is in the namespace: another one is not.
	found := make(chan bool)
	go func() {
		_, err := os.Stat(filepath.Join(sysctlRoot, file))
		found <- err == nil
	}()
	if <-found {
		return errors.New("the namespace has none of its own: set it on the host, not in the container")
	}
	return errors.New("this kernel has no such sysctl, or its module is not loaded")
}

func openSysctl(file string, flags int) (*os.File, error) {
	return safefile.OpenKernel(sysctlRoot, file, flags, unix.PROC_SUPER_MAGIC)
}

func readSysctlFile(file string) (string, error) {
	f, err := openSysctl(file, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	return string(b), err
}

// writeSysctlFile writes with one call: the kernel takes each as a whole value.
func writeSysctlFile(file, value string) error {
	f, err := openSysctl(file, unix.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func applySysctl(c *cause.Change, s *sysctlState) error {
	return sysctlError(c, s.Place.do(func() error {
		if err := writeSysctlFile(s.File, c.Value+"\n"); err != nil {
			return refusedValue(err, c.Value)
		}
		now, err := readSysctlFile(s.File)
		if err == nil && !setTo(s.File, now, c.Value) {
			err = fmt.Errorf("the kernel made %q of it", sysctlWords(now))
		}
		return err
	}))
}

func refusedValue(err error, value string) error {
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ERANGE) {
		return fmt.Errorf("the kernel does not take the value %q", value)
	}
	return refused(err, "root, or CAP_NET_ADMIN for net.*")
}

func sysctlError(c *cause.Change, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	return nil
}

func presentSysctl(c *cause.Change, s *sysctlState) (changeState, string, error) {
	now := ""
	err := s.Place.do(func() (err error) {
		now, err = readSysctlFile(s.File)
		if errors.Is(err, fs.ErrNotExist) { // an interface that was taken away
			err = ErrGone
		}
		return err
	})
	switch {
	case err != nil:
		return foreign, "", sysctlError(c, err)
	case setTo(s.File, now, c.Value):
		return holds, "", nil
	case now == s.Old:
		return before, "", nil
	}
	return foreign, sysctlWords(now), nil
}

func undoSysctl(c *cause.Change, s *sysctlState) error {
	return sysctlError(c, s.Place.do(func() error {
		now, err := readSysctlFile(s.File)
		if errors.Is(err, fs.ErrNotExist) {
			return ErrGone
		}
		if err != nil || now == s.Old {
			return err
		}
		file, old := s.File, s.Old
		if s.Twin != "" && sysctlWords(s.Old) == "0" {
			file, old = s.Twin, s.TwinOld
		}
		if err := writeSysctlFile(file, old); err != nil {
			return refusedValue(err, sysctlWords(old))
		}
		now, err = readSysctlFile(s.File)
		if err == nil && now != s.Old {
			err = fmt.Errorf("it is %q and not %q again", sysctlWords(now), sysctlWords(s.Old))
		}
		return err
	}))
}

func sysctlCommands(c *cause.Change, s *sysctlState) (do, undo []shell.Command) {
	set := func(name, value string) []shell.Command {
		return []shell.Command{s.Place.prefix().Then(shell.Line("sysctl -w %s", shell.Sysctl(name+"="+sysctlWords(value))))}
	}
	if s.Twin != "" && sysctlWords(s.Old) == "0" {
		return set(c.Name, c.Value), set(strings.ReplaceAll(s.Twin, "/", "."), s.TwinOld)
	}
	return set(c.Name, c.Value), set(c.Name, s.Old)
}

func sysctlWords(value string) string { return strings.Join(strings.Fields(value), " ") }

// sameValue compares by fields: the kernel puts tabs between them.
func sameValue(a, b string) bool {
	return slices.Equal(strings.Fields(a), strings.Fields(b))
}

// bucketsInPage is how many hash chains of connection tracking fit a page
// (nf_ct_alloc_hashtable rounds up to whole pages).
var bucketsInPage = uint64(os.Getpagesize() / 8)

// setTo says whether a file holds what writing value into it gives.
func setTo(file, now, value string) bool {
	if sameValue(now, value) {
		return true
	}
	if filepath.Base(file) != "nf_conntrack_buckets" {
		return false
	}
	have, err1 := strconv.ParseUint(strings.TrimSpace(now), 10, 64)
	want, err2 := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
	return err1 == nil && err2 == nil && have == (want+bucketsInPage-1)/bucketsInPage*bucketsInPage
}
