package observe

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// WriteWhole writes a file that is at path whole or not at all, also after a power cut,
// and that only its owner may read. Until it is whole it is unfinished, another name in
// the same directory; where that is empty, one that is not there yet.
func WriteWhole(path, unfinished string, write func(*os.File) error) (err error) {
	var f *os.File
	if unfinished == "" {
		f, err = os.CreateTemp(filepath.Dir(path), ".slowray-*") // mode 0600
	} else {
		f, err = os.OpenFile(unfinished, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	}
	if err != nil {
		return err
	}
	if err = write(f); err == nil {
		err = f.Sync()
	}
	if err = cmp.Or(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir has the names in a directory outlive a power cut, on file systems that know how.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return err
	}
	return nil
}
