package safefile

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// maxXattr is the most that the kernel lets an extended attribute, or the list of
// their names, have (XATTR_SIZE_MAX, include/uapi/linux/limits.h).
const maxXattr = 64 << 10

func xattrs(fd int) (map[string][]byte, error) {
	buf := make([]byte, maxXattr)
	n, err := unix.Flistxattr(fd, buf)
	if errors.Is(err, unix.ENOTSUP) || n == 0 && err == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for name := range strings.SplitSeq(strings.TrimRight(string(buf[:n]), "\x00"), "\x00") {
		value := make([]byte, maxXattr)
		n, err := unix.Fgetxattr(fd, name, value)
		if errors.Is(err, unix.ENODATA) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out[name] = value[:n]
	}
	return out, nil
}

// setXattrs gives a file these extended attributes and no others, which it may
// have from its directory.
func setXattrs(fd int, want map[string][]byte) error {
	have, err := xattrs(fd)
	if err != nil {
		return fmt.Errorf("extended attributes: %w", err)
	}
	for name, value := range want {
		if old, ok := have[name]; ok && bytes.Equal(old, value) {
			continue
		}
		if err := unix.Fsetxattr(fd, name, value, 0); err != nil {
			return fmt.Errorf("extended attribute %s: %w", name, err)
		}
	}
	for name := range have {
		if _, ok := want[name]; !ok {
			if err := unix.Fremovexattr(fd, name); err != nil {
				return fmt.Errorf("extended attribute %s: %w", name, err)
			}
		}
	}
	return nil
}
