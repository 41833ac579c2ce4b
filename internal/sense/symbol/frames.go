package symbol

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// Missing says for how many locations of an image there is no name, and why.
type Missing struct {
	Where     string
	Locations int
	Why       string
}

// Frames names locations; the result is parallel to them. A location without
// a name is told by where its function begins in the binary, or where that is
// not known by itself: "[libc.so.6+0x1234]".
func (s *Space) Frames(locations []Location) ([]observe.Frame, []Missing) {
	byImage := map[*image][]uint64{}
	var order []*image
	for _, l := range locations {
		if _, met := byImage[l.in]; !met {
			order = append(order, l.in)
		}
		byImage[l.in] = append(byImage[l.in], l.at)
	}
	named := map[*image]map[uint64]observe.Frame{}
	var missing []Missing
	for _, img := range order {
		at := byImage[img]
		slices.Sort(at)
		at = slices.Compact(at)
		frames, why := s.imageFrames(img, at)
		named[img] = frames
		less := len(at)
		for _, f := range frames {
			if !strings.HasPrefix(f.Name, "[") {
				less--
			}
		}
		if img.kind != imageFunction && less > 0 {
			missing = append(missing, Missing{Where: img.label(), Locations: less, Why: why})
		}
	}
	out := make([]observe.Frame, len(locations))
	for i, l := range locations {
		f, ok := named[l.in][l.at]
		if !ok {
			f = l.in.unnamed(l.at)
		}
		out[i] = f
	}
	return out, missing
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

// imageFrames names the places (sorted) of one image.
func (s *Space) imageFrames(img *image, at []uint64) (frames map[uint64]observe.Frame, why string) {
	switch img.kind {
	case imageKernel:
		frames, err := s.kernelFrames(at)
		if err != nil {
			return frames, err.Error()
		}
		return frames, ""
	case imageVDSO:
		data, err := vdsoImage()
		if err != nil {
			return nil, err.Error()
		}
		return img.binaryFrames(bytes.NewReader(data), at)
	case imageRuntime:
		return img.runtimeFrames(at)
	case imageFile:
		if img.file == nil {
			return nil, img.why
		}
		return img.binaryFrames(img.file, at)
	}
	return nil, ""
}

func (img *image) binaryFrames(r io.ReaderAt, at []uint64) (map[uint64]observe.Frame, string) {
	found, err := nameOffsets(r, at, img.byAddress, img.debugFile)
	frames := make(map[uint64]observe.Frame, len(found))
	for o, fn := range found {
		if fn.name == "" {
			frames[o] = img.unnamed(fn.start)
			continue
		}
		frames[o] = observe.Frame{Name: fn.name, Kind: fn.kind, Module: img.module(), File: fn.file, Line: fn.line}
	}
	if err != nil {
		return frames, err.Error()
	}
	return frames, ""
}

func (img *image) runtimeFrames(at []uint64) (map[uint64]observe.Frame, string) {
	if img.perfMap == nil {
		return nil, img.why
	}
	names, err := parsePerfMap(io.NewSectionReader(img.perfMap, 0, maxPerfMap), at)
	frames := make(map[uint64]observe.Frame, len(names))
	for a, name := range names {
		f := jitFrame(name)
		f.Module = path.Base(img.perfMap.Name())
		frames[a] = f
	}
	if err != nil {
		return frames, err.Error()
	}
	return frames, ""
}

// vdsoImage reads the binary that the kernel maps into every process: from
// this one.
func vdsoImage() ([]byte, error) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	for _, m := range parseMaps(maps) {
		if !strings.HasPrefix(m.path, vdso) || m.end-m.start > 1<<20 {
			continue
		}
		mem, err := os.Open("/proc/self/mem")
		if err != nil {
			return nil, err
		}
		defer mem.Close()
		data := make([]byte, m.end-m.start)
		_, err = mem.ReadAt(data, int64(m.start))
		return data, err
	}
	return nil, fmt.Errorf("%s is not there", vdso)
}
