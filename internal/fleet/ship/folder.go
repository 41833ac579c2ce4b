package ship

import (
	"os"

	"github.com/slowray/slowray/internal/safefile"
	"github.com/slowray/slowray/internal/store"
)

// folder is the path of a directory of this package's own. It is opened for each
// thing that is done in it, for the history may be moved away and begun anew; and by
// safefile, so that nobody else leads that elsewhere.
type folder string

// in does something in the directory.
func (f folder) in(do func(*safefile.Dir) error) error {
	d, err := safefile.OpenDir(string(f))
	if err != nil {
		return err
	}
	defer d.Close()
	return do(d)
}

// remove removes a file, if it is there.
func (f folder) remove(name string) {
	_ = f.in(func(d *safefile.Dir) error { return d.Remove(name) })
}

// read reads a small file.
func (f folder) read(name string) (text []byte, err error) {
	err = f.in(func(d *safefile.Dir) error {
		text, err = safefile.ReadRegular(d.Root, name, 1<<20)
		return err
	})
	return text, err
}

// write writes a file, whole or not at all.
func (f folder) write(name string, text []byte) error {
	return f.in(func(d *safefile.Dir) error {
		return d.ReplaceBy(name, ".new-"+name, func(out *os.File) error {
			_, err := out.Write(text)
			return err
		})
	})
}

// log opens a log.
func (f folder) log(name string) (l *store.LogFile, err error) {
	err = f.in(func(d *safefile.Dir) error {
		l, err = store.OpenLog(d.Root, name)
		return err
	})
	return l, err
}
