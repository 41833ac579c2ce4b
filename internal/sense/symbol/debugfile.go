package symbol

import (
	"os"
	"path/filepath"
)

// debugFile opens the file of symbols that a package of the distribution may
// have put next to a binary, as its process sees it; nil when there is none.
func (img *image) debugFile(id string) *os.File {
	if len(id) < 3 {
		return nil
	}
	f, err := img.root.Open(filepath.Join("/usr/lib/debug/.build-id", id[:2], id[2:]+".debug"))
	if err != nil {
		return nil
	}
	return f
}
