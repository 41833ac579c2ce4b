package sandbox

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// mount is a line of /proc/PID/mountinfo (proc_pid_mountinfo(5)).
type mount struct {
	at   string
	kind string // type of the file system
}

func readMounts() ([]mount, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("lab: mounts: %w", err)
	}
	return parseMounts(string(data)), nil
}

// mountEscapes is how blanks and the like are written there.
var mountEscapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

func parseMounts(mountinfo string) []mount {
	var mounts []mount
	for line := range strings.Lines(mountinfo) {
		before, after, _ := strings.Cut(line, " - ")
		f, of := strings.Fields(before), strings.Fields(after)
		if len(f) >= 6 && len(of) >= 1 {
			mounts = append(mounts, mount{at: mountEscapes.Replace(f[4]), kind: of[0]})
		}
	}
	return mounts
}

// privateMounts sees to it that what is mounted in this mount namespace from now on is
// mounted nowhere else. The root of a chroot(2) into a plain directory is no mount
// point, and takes no propagation type (mount(2): EINVAL): there this process changes
// to a copy of all mounts, which is put over /proc, the one mount that there has to be.
func privateMounts() error {
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	const at = "/proc"
	for _, m := range []struct {
		source string
		flags  uintptr
	}{{"", unix.MS_PRIVATE}, {"/", unix.MS_BIND | unix.MS_REC}, {"", unix.MS_REC | unix.MS_PRIVATE}} {
		if err := unix.Mount(m.source, at, "", m.flags, ""); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	}
	if err := unix.Chroot(at); err != nil {
		return err
	}
	return unix.Chdir("/")
}

// unmountBelow takes away what is mounted below a directory, in this mount
// namespace, so that removing the directory reaches nothing that was mounted.
func unmountBelow(dir string) error {
	mounts, err := readMounts()
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(mounts) { // the inner ones come last
		if !strings.HasPrefix(m.at, dir+"/") {
			continue
		}
		if err := unix.Unmount(m.at, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("lab: unmount %s: %w", m.at, err)
		}
	}
	return nil
}
