package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

const (
	historyDir = "history" // of entries that are closed
	suffix     = ".json"
	maxHistory = 100      // entries
	maxBytes   = 64 << 20 // of an entry, which may hold files of configuration
)

// step is called before each step that changes the journal or the host, by name.
// Tests set it to be killed there.
var step = func(string) {}

// directory is the journal's, held open: nothing is reached by a path that
// somebody could have changed since it was checked.
type directory struct {
	path string
	root *os.Root
}

// openDirectory makes the directory if there is none, and refuses one that
// somebody else could write to.
func openDirectory(path string, create bool) (*directory, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	if create {
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.Mkdir(path, 0o700)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("journal: %w", advise(path, err))
		}
	}
	seen, err := os.Lstat(path)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", advise(path, err))
	}
	if err := private(seen); err != nil {
		return nil, fmt.Errorf("journal: %s: %w", path, err)
	}
	above, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	if above.Mode().Perm()&0o022 != 0 && above.Mode()&fs.ModeSticky == 0 {
		return nil, fmt.Errorf("journal: %s: others may write to the directory above it", path)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", advise(path, err))
	}
	opened, err := root.Stat(".")
	if err == nil && !os.SameFile(seen, opened) {
		err = errors.New("was replaced while it was opened")
	}
	if err != nil {
		root.Close()
		return nil, fmt.Errorf("journal: %s: %w", path, err)
	}
	return &directory{path, root}, nil
}

// private refuses what is not a directory that is ours alone.
func private(st fs.FileInfo) error {
	switch owner := st.Sys().(*syscall.Stat_t).Uid; {
	case st.Mode()&fs.ModeSymlink != 0:
		return errors.New("is a symbolic link: name the directory itself with --state DIR")
	case !st.IsDir():
		return errors.New("is not a directory: name one with --state DIR")
	case owner == 0 && os.Geteuid() != 0:
		return errors.New("belongs to root (needs root)")
	case int(owner) != os.Geteuid():
		return fmt.Errorf("belongs to user %d: name another with --state DIR", owner)
	case st.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("others may look into it: chmod 700 it, or name another with --state DIR")
	}
	return nil
}

// advise says what to do about an error of the directory.
func advise(path string, err error) error {
	cause := err
	if perr := (*fs.PathError)(nil); errors.As(err, &perr) {
		cause = perr.Err
	}
	switch {
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%s: %w: name a directory on another file system with --state DIR", path, cause)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%s: %w: make room, or name another directory with --state DIR", path, cause)
	case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
		return fmt.Errorf("%s: %w (needs root)", path, cause)
	}
	return fmt.Errorf("%s: %w", path, cause)
}

// write puts an entry on disk: when it returns, it is there, and at no moment
// is there less than the one before.
func (d *directory) write(e *Entry) (err error) {
	data, err := json.MarshalIndent(e, "", "\t")
	if err != nil {
		return fmt.Errorf("journal: entry %s: %w", e.ID, err)
	}
	if len(data) > maxBytes {
		return fmt.Errorf("journal: entry %s: too large (%d bytes)", e.ID, len(data))
	}
	name := e.ID + suffix
	tmp := name + ".new"
	step("create")
	// What a killed run has left of this name may be anything.
	if err := d.root.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("journal: %w", advise(d.path, err))
	}
	f, err := d.root.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("journal: %w", advise(d.path, err))
	}
	defer func() {
		if err != nil {
			d.root.Remove(tmp)
			err = fmt.Errorf("journal: %w", advise(d.path, err))
		}
	}()
	half := len(data) / 2
	_, err = f.Write(data[:half])
	step("half")
	if err == nil {
		_, err = f.Write(append(data[half:], '\n'))
	}
	step("written")
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	step("synced")
	if err := d.root.Rename(tmp, name); err != nil {
		return err
	}
	step("renamed")
	if err := d.sync("."); err != nil {
		return err
	}
	step("there")
	return nil
}

// sync makes the names in a directory last.
func (d *directory) sync(name string) error {
	f, err := d.root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// read gives the entry id; a file that cannot be trusted is an error that says why.
func (d *directory) read(folder, id string) (*Entry, error) {
	name := filepath.Join(folder, id+suffix)
	st, err := d.root.Lstat(name)
	if err != nil {
		return nil, err
	}
	switch sys := st.Sys().(*syscall.Stat_t); {
	case !st.Mode().IsRegular():
		return nil, errors.New("is not a regular file")
	case int(sys.Uid) != os.Geteuid():
		return nil, fmt.Errorf("belongs to user %d", sys.Uid)
	case st.Mode().Perm()&0o022 != 0:
		return nil, errors.New("others may write to it")
	case st.Size() > maxBytes:
		return nil, fmt.Errorf("is too large (%d bytes)", st.Size())
	}
	data, err := d.root.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return parseEntry(id, data)
}

// names gives those of all files in a folder ("." or history).
func (d *directory) names(folder string) ([]string, error) {
	f, err := d.root.Open(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("journal: %w", advise(d.path, err))
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", advise(d.path, err))
	}
	return names, nil
}

// ids gives those of all entries in a folder, oldest first.
func (d *directory) ids(folder string) ([]string, error) {
	names, err := d.names(folder)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, name := range names {
		if id, ok := strings.CutSuffix(name, suffix); ok && number(id) > 0 {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int { return number(a) - number(b) })
	return ids, nil
}

// entries gives all of a folder, oldest first; a file that cannot be read is an
// entry in state Damaged.
func (d *directory) entries(folder string) ([]Entry, error) {
	ids, err := d.ids(folder)
	if err != nil {
		return nil, err
	}
	var list []Entry
	for _, id := range ids {
		e, err := d.read(folder, id)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was closed meanwhile
		}
		if err != nil {
			e = &Entry{ID: id, State: Damaged, Problem: fmt.Sprintf("%s: %v", filepath.Join(d.path, folder, id+suffix), err)}
		}
		list = append(list, *e)
	}
	return list, nil
}

// close moves an entry that is done with into the history, and drops what is
// too old there.
func (d *directory) close(id string) error {
	if err := d.root.Mkdir(historyDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("journal: %w", advise(d.path, err))
	}
	step("close")
	if err := d.root.Rename(id+suffix, filepath.Join(historyDir, id+suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("journal: %w", advise(d.path, err))
	}
	step("closed")
	ids, err := d.ids(historyDir)
	if err != nil {
		return err
	}
	for len(ids) > maxHistory {
		d.root.Remove(filepath.Join(historyDir, ids[0]+suffix))
		ids = ids[1:]
	}
	return errors.Join(d.sync(historyDir), d.sync("."))
}

// nextID is one more than the highest there was.
func (d *directory) nextID() (string, error) {
	highest := 0
	for _, folder := range []string{".", historyDir} {
		names, err := d.names(folder)
		if err != nil {
			return "", err
		}
		for _, name := range names {
			id, _, _ := strings.Cut(name, ".")
			highest = max(highest, number(id))
		}
	}
	return fmt.Sprint(highest + 1), nil
}

// setAside renames the file of a damaged entry, which is kept for a person to read.
func (d *directory) setAside(id string) (string, error) {
	name := id + ".damaged"
	if err := d.root.Rename(id+suffix, name); err != nil {
		return "", err
	}
	return filepath.Join(d.path, name), d.sync(".")
}
