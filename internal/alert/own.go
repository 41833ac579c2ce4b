package alert

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/slowray/slowray/internal/safefile"
)

// openTrusted opens a file that only root and who runs this can change, nor put another in
// place of.
func openTrusted(name string) (*os.File, error) {
	dir, err := safefile.OpenDir(filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	f, err := dir.OpenRegular(filepath.Base(name))
	if err != nil {
		var at *fs.PathError
		if errors.As(err, &at) {
			err = at.Err // without the path, which is relative to a directory
		}
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := ownFile(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}

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
