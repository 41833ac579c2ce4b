package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/slowray/slowray/internal/safefile"
)

// write puts an entry on disk, in two files: when it returns both are there, and
// at no moment is neither whole. The backup is written first. So it is never older
// than the file: where the file is lost, it knows all, and where the backup is lost,
// what only it knew was not begun.
func (d *directory) write(e *Entry) error {
	e.Generation++
	data, err := encode(e)
	if err != nil {
		return fmt.Errorf("journal: entry %s: %w", e.ID, err)
	}
	for _, name := range []string{e.ID + backup, e.ID + suffix} {
		if err := d.put(name, data); err != nil {
			return fmt.Errorf("journal: %w", advise(d.path, err))
		}
	}
	e.torn = false
	step("there")
	return nil
}

// put writes a file whole or not at all.
func (d *directory) put(name string, data []byte) error {
	step("create")
	err := d.root.ReplaceBy(name, name+".new", func(f *os.File) error {
		half := len(data) / 2
		_, err := f.Write(data[:half])
		step("half")
		if err == nil {
			_, err = f.Write(data[half:])
		}
		step("written")
		return err
	})
	step("renamed")
	return err
}

// read gives entry id: from the newer one of its files that are whole. Where the
// newest may be lost, or none is whole, the entry is Damaged, and has what is known.
// Of one that is not there the error is fs.ErrNotExist.
func (d *directory) read(folder, id string) (*Entry, error) {
	file, err := d.copy(filepath.Join(folder, id+suffix), id)
	if folder == historyDir {
		if err != nil {
			return nil, err
		}
		e := file.entry(id)
		if !file.whole() { // what it had changed was put back
			e.Changes, e.Problem = nil, fmt.Sprintf("%s %s", filepath.Join(d.path, folder, id+suffix), file.damage)
		}
		return e, nil
	}
	second, err2 := d.copy(id+backup, id)
	switch {
	case isGone(err) && isGone(err2):
		return nil, err
	case err != nil && !isGone(err):
		return nil, err
	case err2 != nil && !isGone(err2):
		return nil, err2
	case isGone(err):
		file = &salvage{damage: "is not there"}
	case isGone(err2):
		second = &salvage{damage: "is not there"}
	}
	if second.foreign && !file.whole() {
		file.foreign = true
	}
	if file.foreign {
		return d.damaged(file, id), nil
	}
	if second.whole() && (!file.whole() || second.generation > file.generation) {
		e := second.entry(id)
		if e.torn = !file.whole(); e.torn && e.Open() {
			e.Problem = fmt.Sprintf("%s %s; its backup is whole", filepath.Join(d.path, id+suffix), file.damage)
			e.State = Damaged
		}
		return e, nil
	}
	if file.whole() {
		return file.entry(id), nil
	}
	// Nothing is whole. What can be trusted of the two is not of different times in
	// any way that matters: a change is what it was since it was first made.
	if second.generation > file.generation {
		second.damage = file.damage
		file, second = second, file
	}
	file.merge(second)
	return d.damaged(file, id), nil
}

// damaged is an entry of which no file is whole.
func (d *directory) damaged(s *salvage, id string) *Entry {
	e := s.entry(id)
	e.torn = true
	e.Problem = fmt.Sprintf("%s %s", filepath.Join(d.path, id+suffix), s.damage)
	return e
}

// copy reads one file of an entry. What cannot be trusted or read is damaged; the
// error is fs.ErrNotExist, or that of a disk.
func (d *directory) copy(name, id string) (*salvage, error) {
	st, err := d.root.Lstat(name)
	if err != nil {
		return nil, err
	}
	damage := ""
	switch sys := st.Sys().(*syscall.Stat_t); {
	case !st.Mode().IsRegular():
		damage = "is not a regular file"
	case int(sys.Uid) != os.Geteuid():
		damage = fmt.Sprintf("belongs to user %d", sys.Uid)
	case st.Mode().Perm()&0o022 != 0:
		damage = "may be written to by others"
	case st.Size() > maxBytes:
		damage = fmt.Sprintf("is too large (%d bytes)", st.Size())
	}
	if damage != "" {
		return &salvage{damage: damage, foreign: true}, nil
	}
	data, err := safefile.ReadRegular(d.root.Root, name, maxBytes)
	switch {
	case isGone(err):
		return nil, err
	case err != nil: // a bad sector, as likely as not
		return &salvage{damage: fmt.Sprintf("cannot be read: %v", advise(name, err))}, nil
	}
	s := parse(id, data)
	return &s, nil
}

// setAside renames the files of an entry, which are kept for a person to read.
func (d *directory) setAside(id string) error {
	var errs []error
	for from, to := range map[string]string{id + suffix: id + aside, id + backup: id + backup + aside} {
		if err := d.root.Rename(from, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, d.root.Sync())...)
}

// keepDamaged gives the files of a damaged entry second names, before it is
// written anew from what is known of it.
func (d *directory) keepDamaged(id string) {
	for from, to := range map[string]string{id + suffix: id + aside, id + backup: id + backup + aside} {
		_ = d.root.Link(from, to) // what is there from before is as good
	}
}

// unknown says that there are changes of which nothing is known.
func (e *Entry) unknown() bool {
	return slices.ContainsFunc(e.Changes, func(it Item) bool { return it.Change.Kind == "" })
}
