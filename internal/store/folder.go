package store

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// The directory of a store is held open (os.Root): what is below it is reached by
// names that nothing, no link and no rename, leads out of it. A writer's is a
// safefile.Dir; a reader's may be anybody's.

// readDir lists a directory in the order of names; a FIFO in its place would be
// waited for.
func readDir(root *os.Root, name string) ([]fs.DirEntry, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, err := f.ReadDir(-1)
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, err
}

// pathIn is where a name is, for people.
func pathIn(root *os.Root, name string) string { return filepath.Join(root.Name(), name) }
