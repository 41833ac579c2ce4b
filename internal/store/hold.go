package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/safefile"
)

// hold looks whether the directory is still the one that is written to, and nobody
// else can write to it. It may have been moved, removed, or covered by a mount: what
// is written would go where nobody looks for it. Then it is begun anew, and the error
// says so. What was given away or opened to others is safefile.ErrUnsafe: nothing may
// be written. The caller holds syncing.
func (s *Store) hold() error {
	home := s.home.Load()
	switch err := home.Check(); {
	case errors.Is(err, safefile.ErrUnsafe):
		return err
	case !isAway(err) && same(home, lockName, s.lock):
		for _, k := range logKinds {
			if st := s.streams[k]; st.file != nil && !same(home, logPath(k, st.number), st.file) {
				st.rotate()
				if err := home.MkdirAll(openDir, 0o700); err != nil {
					return err
				}
				return fmt.Errorf("the %s log in %s was taken away: what was only there is lost", k, s.dir)
			}
		}
		return nil
	}
	home, lock, err := takeHome(s.dir)
	if err != nil {
		return err
	}
	s.lock.Close()
	s.lock = lock
	_ = s.home.Swap(home).Close() // who is using it still, in the background, fails and tries again
	last, _, err := numbers(home.Root)
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

// isAway says that a directory is not there any more. Where that cannot be known it
// is.
func isAway(err error) bool {
	return errors.Is(err, safefile.ErrReplaced) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
}

// same says whether a name still leads to an open file. Where that cannot be known
// it does.
func same(home *safefile.Dir, name string, f *os.File) bool {
	there, err := home.Lstat(name)
	if err != nil {
		return !isAway(err)
	}
	here, err := f.Stat()
	return err != nil || os.SameFile(there, here)
}
