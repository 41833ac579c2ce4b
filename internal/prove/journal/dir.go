package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/slowray/slowray/internal/safefile"
	"github.com/slowray/slowray/internal/shell"
)

const (
	historyDir = "history" // of entries that are closed
	suffix     = ".json"
	backup     = ".bak" // of the second copy of an entry that is not closed
	aside      = ".damaged"
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
	root *safefile.Dir
}

// openDirectory makes the directory if there is none, and refuses one that
// somebody else could write to, or look into. A link is followed where only root and
// the calling user could have made it: what it leads to is what counts.
func openDirectory(path string, create bool) (*directory, error) {
	open := safefile.OpenDir
	if create {
		open = func(path string) (*safefile.Dir, error) { return safefile.MakeDir(path, 0o700) }
	}
	root, err := open(path)
	if errors.Is(err, safefile.ErrUnsafe) {
		return nil, fmt.Errorf("journal: %w: name another directory with --state DIR", err)
	}
	if err != nil {
		return nil, fmt.Errorf("journal: %w", advise(path, err))
	}
	st, err := root.Stat(".")
	switch {
	case err != nil:
	case int(st.Sys().(*syscall.Stat_t).Uid) != os.Geteuid():
		err = fmt.Errorf("%s belongs to root (needs root)", path)
	case st.Mode().Perm()&0o077 != 0:
		err = fmt.Errorf("%s has mode %04o: other users can look into it: run %s, or name another directory with --state DIR",
			path, st.Mode().Perm(), shell.Line("chmod 700 %s", shell.Path(path)))
	}
	if err != nil {
		root.Close()
		return nil, fmt.Errorf("journal: %w", err)
	}
	return &directory{path, root}, nil
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

// names gives those of all files in a folder ("." or history).
func (d *directory) names(folder string) ([]string, error) {
	f, err := d.root.OpenFile(folder, os.O_RDONLY|syscall.O_DIRECTORY, 0) // a FIFO would be waited for
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

// ids gives those of all entries in a folder, oldest first, also of one of which
// only the backup is there.
func (d *directory) ids(folder string) ([]string, error) {
	names, err := d.names(folder)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, name := range names {
		id, ending, _ := strings.Cut(name, ".")
		if ending = "." + ending; number(id) > 0 && (ending == suffix || ending == backup && folder != historyDir) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int { return number(a) - number(b) })
	return slices.Compact(ids), nil
}

// entries gives all of a folder, oldest first; one whose file is not whole is in
// state Damaged.
func (d *directory) entries(folder string) ([]Entry, error) {
	ids, err := d.ids(folder)
	if err != nil {
		return nil, err
	}
	var list []Entry
	for _, id := range ids {
		e, err := d.read(folder, id)
		if isGone(err) {
			continue // it was closed meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("journal: entry %s: %w", id, err)
		}
		list = append(list, *e)
	}
	return list, nil
}

// close moves an entry that is done with into the history, and drops what is
// too old there. The backup goes first: without it the entry says that nothing is
// left to be put back, while it would say the same of a lost entry.
func (d *directory) close(id string) error {
	if err := d.root.Mkdir(historyDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("journal: %w", advise(d.path, err))
	}
	step("close")
	if err := d.root.Remove(id + backup); err != nil && !isGone(err) {
		return fmt.Errorf("journal: %w", advise(d.path, err))
	}
	step("backup removed")
	if err := d.root.Sync(); err != nil {
		return fmt.Errorf("journal: %w", advise(d.path, err))
	}
	if err := d.root.Rename(id+suffix, filepath.Join(historyDir, id+suffix)); err != nil && !isGone(err) {
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
	return errors.Join(d.root.SyncIn(historyDir), d.root.Sync())
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
