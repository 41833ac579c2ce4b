package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// hold looks whether the directory is still the one that is written to. It may have
// been moved, removed, or covered by a mount: what is written would go where nobody
// looks for it. Then it is begun anew, and the error says so. The caller holds
// syncing.
func (s *Store) hold() error {
	if same(filepath.Join(s.dir, lockName), s.lock) {
		for _, k := range logKinds {
			if st := s.streams[k]; st.file != nil && !same(logPath(s.dir, k, st.number), st.file) {
				st.rotate()
				if err := os.MkdirAll(filepath.Join(s.dir, openDir), 0o700); err != nil {
					return err
				}
				return fmt.Errorf("the %s log in %s was taken away: what was only there is lost", k, s.dir)
			}
		}
		return nil
	}
	if err := os.MkdirAll(filepath.Join(s.dir, openDir), 0o700); err != nil {
		return err
	}
	lock, err := takeLock(s.dir)
	if err != nil {
		return err
	}
	s.lock.Close()
	s.lock = lock
	last, _, err := numbers(s.dir)
	if err != nil {
		return err
	}
	for _, k := range logKinds {
		st := s.streams[k]
		st.rotate()
		st.number = max(st.number, last[k]+1)
	}
	return fmt.Errorf("%s was moved or removed while it was written to: what is recorded from now on is in a new one", s.dir)
}

// same says whether a path still leads to an open file. Where that cannot be told
// it does.
func same(path string, f *os.File) bool {
	there, err := os.Lstat(path)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR)
	}
	here, err := f.Stat()
	return err != nil || os.SameFile(there, here)
}
