package symbol

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/elffile"
	"github.com/slowray/slowray/internal/sense/procmem"
)

// Missing says for how many locations of an image there is no name, and why.
type Missing struct {
	Where     string
	Locations int
	Why       string
	Over      bool // more would have to be read of it than the budget has
}

// Unread says of which binaries more would have had to be read than the budget
// has, in one line; nil when of none.
func Unread(missing []Missing) error {
	first, others := Missing{}, 0
	for _, m := range missing {
		switch {
		case !m.Over:
		case first.Where == "":
			first = m
		default:
			others++
		}
	}
	switch {
	case first.Where == "":
		return nil
	case others == 0:
		return fmt.Errorf("%s: some functions have no names: %s", first.Where, first.Why)
	}
	return fmt.Errorf("%s and %d more binaries: some functions have no names: %s", first.Where, others, first.Why)
}

// Limits is what a look at the functions of all processes of a host may take:
// less than a second of a CPU, and not much longer on a host that has none to
// spare. A large program has 200,000 symbols, of which 20 MB are read; what is
// unpacked is the symbols of stripped binaries of some distributions, some MB each.
var Limits = budget.Limits{Bytes: 1 << 30, Unpacked: 48 << 20, Files: 4096, Nodes: 12 << 20, Wall: 1200 * time.Millisecond}

// Frames names locations; the result is parallel to them. A location without
// a name is known by where its function begins in the binary, or where that is
// not known by itself: "[libc.so.6+0x1234]".
//
// Binaries share the budget: each has its turn, in the order of the locations,
// and those for which its share was not enough have another one with what the
// others left.
func (s *Space) Frames(b *budget.Budget, locations []Location) ([]observe.Frame, []Missing) {
	byImage := map[*image][]uint64{}
	var order []*image
	for _, l := range locations {
		if _, met := byImage[l.in]; !met {
			order = append(order, l.in)
		}
		byImage[l.in] = append(byImage[l.in], l.at)
	}
	for img, at := range byImage {
		slices.Sort(at)
		byImage[img] = slices.Compact(at)
	}
	named, over := s.nameImages(b, order, byImage)
	var missing []Missing
	for _, img := range order {
		less := len(byImage[img])
		for _, f := range named[img].frames {
			if !strings.HasPrefix(f.Name, "[") {
				less--
			}
		}
		if img.kind != imageFunction && less > 0 {
			missing = append(missing, Missing{Where: img.label(), Locations: less, Why: named[img].why, Over: over[img]})
		}
	}
	out := make([]observe.Frame, len(locations))
	for i, l := range locations {
		f, ok := named[l.in].frames[l.at]
		if !ok {
			f = l.in.unnamed(l.at)
		}
		out[i] = f
	}
	return out, missing
}

// names is what was found of an image.
type names struct {
	frames map[uint64]observe.Frame
	why    string // why some are missing
}

// nameImages names the places of images, and tells for which the budget was not
// enough.
func (s *Space) nameImages(b *budget.Budget, order []*image, at map[*image][]uint64) (named map[*image]names, over map[*image]bool) {
	named, over = map[*image]names{}, map[*image]bool{}
	for turn := range 2 {
		var again []*image
		for i, img := range order {
			part := b.Share(len(order) - i)
			frames, err := s.imageFrames(part, img, at[img], turn == 0)
			n := names{frames: frames}
			if err != nil {
				n.why = err.Error()
			}
			named[img], over[img] = n, budget.IsExceeded(err)
			if over[img] && part.Own() {
				again = append(again, img)
			}
		}
		order = again
	}
	return named, over
}

// label names the image in a report.
func (img *image) label() string {
	switch img.kind {
	case imageKernel:
		return "the kernel"
	case imageVDSO:
		return vdso
	case imageRuntime:
		return "code that " + img.name + " wrote at run time"
	case imageNone:
		return "memory of which no map was read"
	}
	return clean(img.name)
}

// unnamed is the frame of a location without a name.
func (img *image) unnamed(at uint64) observe.Frame {
	switch img.kind {
	case imageFile, imageVDSO:
		module := img.module()
		return observe.Frame{Name: fmt.Sprintf("[%s+%#x]", module, at), Kind: observe.FrameNative, Module: module}
	case imageRuntime:
		return observe.Frame{Name: "[code written at run time]", Kind: observe.FrameUnknown, Module: img.name}
	case imageFunction:
		return img.frame
	case imageKernel:
		return observe.Frame{Name: "[kernel]", Kind: observe.FrameKernel, Module: "vmlinux"}
	}
	return observe.Frame{Name: "[unknown]", Kind: observe.FrameUnknown}
}

func (img *image) module() string {
	if img.kind == imageVDSO {
		return "vdso"
	}
	return clean(path.Base(img.name))
}

// imageFrames names the places (sorted) of one image. again says that it has
// another turn, should the budget not be enough.
func (s *Space) imageFrames(b *budget.Budget, img *image, at []uint64, again bool) (frames map[uint64]observe.Frame, err error) {
	switch img.kind {
	case imageKernel:
		return s.kernelFrames(at)
	case imageVDSO:
		data, err := vdsoImage()
		if err != nil {
			return nil, err
		}
		found, err := nameOffsets(b, bytes.NewReader(data), at, false, img.debugFile)
		return img.binaryFrames(found), err
	case imageRuntime:
		return img.runtimeFrames(b, at, again)
	case imageFile:
		if img.file == nil {
			return nil, img.why
		}
		return img.fileFrames(b, at, again)
	}
	return nil, nil
}

// fileFrames names places of a binary, those first that are known from before.
func (img *image) fileFrames(b *budget.Budget, at []uint64, again bool) (map[uint64]observe.Frame, error) {
	content, known := elffile.IDOf(img.file)
	id := fileID{content, img.byAddress}
	if !known {
		found, err := nameOffsets(b, img.file, at, img.byAddress, img.debugFile)
		return img.binaryFrames(found), err
	}
	found, rest, err := binaries.look(id, at)
	if len(rest) == 0 {
		return img.binaryFrames(found), err
	}
	began := time.Now()
	more, err := nameOffsets(b, img.file, rest, img.byAddress, img.debugFile)
	maps.Copy(found, more)
	// A file that changed meanwhile has names of both. What ended because others
	// had taken all says nothing of this one.
	if now, ok := elffile.IDOf(img.file); ok && now == content && (b.Err() == nil || b.Own()) {
		spent := time.Since(began)
		if again {
			spent = 0
		}
		binaries.keep(id, rest, more, err, spent)
	}
	return img.binaryFrames(found), err
}

func (img *image) binaryFrames(found map[uint64]function) map[uint64]observe.Frame {
	frames := make(map[uint64]observe.Frame, len(found))
	for o, fn := range found {
		if fn.name == "" {
			frames[o] = img.unnamed(fn.start)
			continue
		}
		frames[o] = observe.Frame{Name: fn.name, Kind: fn.kind, Module: img.module(), File: fn.file, Line: fn.line}
	}
	return frames
}

func (img *image) runtimeFrames(b *budget.Budget, at []uint64, again bool) (map[uint64]observe.Frame, error) {
	if img.perfMap == nil {
		return nil, img.why
	}
	if err := binaries.waiting(img.perfMap); err != nil {
		return nil, err
	}
	began := time.Now()
	names, err := parsePerfMap(b, io.NewSectionReader(img.perfMap, 0, 1<<62), at)
	frames := make(map[uint64]observe.Frame, len(names))
	for a, name := range names {
		f := jitFrame(name)
		f.Module = path.Base(img.perfMap.Name())
		frames[a] = f
	}
	if b.Own() && !again {
		binaries.wait(img.perfMap, err, time.Since(began))
	}
	return frames, err
}

// vdsoImage reads the binary that the kernel maps into every process: from
// this one.
func vdsoImage() (data []byte, err error) {
	own := budget.New(context.Background(), budget.Limits{})
	var failed error
	err = procmem.EachMapping(own, "/proc", os.Getpid(), func(m *procmem.Mapping) bool {
		if !strings.HasPrefix(m.Path, vdso) || m.End-m.Start > 1<<20 {
			return true
		}
		var mem *os.File
		if mem, failed = os.Open("/proc/self/mem"); failed != nil {
			return false
		}
		defer mem.Close()
		data = make([]byte, m.End-m.Start)
		_, failed = mem.ReadAt(data, int64(m.Start))
		return false
	})
	if err = cmp.Or(err, failed); err == nil && data == nil {
		err = fmt.Errorf("%s is not there", vdso)
	}
	return data, err
}
