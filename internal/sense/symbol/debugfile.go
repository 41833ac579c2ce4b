package symbol

import (
	"bytes"
	"debug/elf"
	"io"
	"os"
	"path/filepath"

	"github.com/ulikunitz/xz"
)

// maxMiniDebug bounds what a compressed symbol table may grow to, in bytes.
const maxMiniDebug = 64 << 20

// miniDebug is the small binary with a symbol table that Fedora and its
// relatives pack into every stripped one, nil when there is none.
func miniDebug(f *elf.File) *elf.File {
	section := f.Section(".gnu_debugdata")
	if section == nil || section.Size > maxMiniDebug {
		return nil
	}
	packed, err := section.Data()
	if err != nil {
		return nil
	}
	in, err := xz.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(in, maxMiniDebug))
	if err != nil {
		return nil
	}
	mini, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil
	}
	return mini
}

// debugFile opens the file of symbols that a package of the distribution may
// have put beside a binary, as its process sees it; nil when there is none.
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
