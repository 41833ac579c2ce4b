package snapshot

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// files reads a file, or all files below a directory. A file that is not there
// has no line: that is reported by Diff when it comes or goes.
func (s *Snapshot) files(path string) error {
	return filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return nil // it has gone meanwhile
		}
		sys := info.Sys().(*syscall.Stat_t)
		text := fmt.Sprintf("%s, owner %d:%d", info.Mode(), sys.Uid, sys.Gid)
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return nil
			}
			text += " → " + target
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += fmt.Sprintf(", %d bytes, sha256 %x, %s", len(data), sha256.Sum256(data), info.ModTime().UTC().Format(time.RFC3339Nano))
		}
		s.set(text, "file", path)
		return nil
	})
}
