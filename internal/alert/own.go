package alert

import (
	"errors"
	"os"
	"syscall"
)

// ownFile refuses a file that others than root and who runs this can write.
func ownFile(f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	const othersWrite = 0o022
	own, ok := st.Sys().(*syscall.Stat_t)
	if !ok || own.Uid != 0 && int(own.Uid) != os.Geteuid() || st.Mode().Perm()&othersWrite != 0 {
		return errors.New("others could have changed it: it must belong to root, and be writable by nobody else (chmod go-w)")
	}
	return nil
}
