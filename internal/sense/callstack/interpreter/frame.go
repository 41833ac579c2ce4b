package interpreter

import (
	"os"
	"path"
	"regexp"
	"strings"

	"go.opentelemetry.io/ebpf-profiler/libpf"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/symbol"
)

// kinds are those of the library's frames that have one here.
var kinds = map[libpf.InterpreterType]observe.FrameKind{
	libpf.PHP:     observe.FramePHP,
	libpf.PHPJIT:  observe.FramePHP,
	libpf.Python:  observe.FramePython,
	libpf.HotSpot: observe.FrameJava,
	libpf.V8:      observe.FrameNode,
	libpf.Ruby:    observe.FrameRuby,
	libpf.Go:      observe.FrameGo,
	libpf.Native:  observe.FrameNative,
}

// location is where a frame is.
func (u *Unwinder) location(f *libpf.Frame) symbol.Location {
	if f.Type.Interpreter() == libpf.Native && f.FunctionName == libpf.NullString {
		return u.native(f)
	}
	kind, ok := kinds[f.Type.Interpreter()]
	if !ok {
		kind = observe.FrameUnknown
	}
	name := f.FunctionName.String()
	if name == "" {
		name = "[" + f.Type.String() + "]"
	}
	if kind == observe.FrameJava {
		name = javaName(name)
	}
	// V8 marks its way from JavaScript to its own code and back: no function of
	// the program (symbolizeMarkerFrame, interpreter/nodev8/v8.go).
	if kind == observe.FrameNode && f.SourceFile == libpf.NullString && strings.HasPrefix(name, "V8::") {
		return u.space.Function(observe.Frame{Name: name, Kind: observe.FrameNative, Module: "node"})
	}
	frame := observe.Frame{Name: name, Kind: kind, File: f.SourceFile.String(), Line: int(f.SourceLine)}
	if kind == observe.FrameUnknown {
		frame.Module = f.Type.String()
	}
	return u.space.Function(frame)
}

// javaMethod is how the library writes a method: with what it returns and takes.
var javaMethod = regexp.MustCompile(`^[^ (]+ ([^ (]+)\(.*\)$`)

// javaName is a method without its types, as those of other languages.
func javaName(name string) string {
	if m := javaMethod.FindStringSubmatch(name); m != nil {
		return m[1]
	}
	return name
}

// native is a frame that the library does not name: it is known by its place
// in a binary.
func (u *Unwinder) native(f *libpf.Frame) symbol.Location {
	if !f.Mapping.Valid() {
		return u.space.Unknown()
	}
	key := f.Mapping.Value().File
	name := u.path(key)
	if name == "" {
		name = path.Base(key.Value().FileName.String())
	}
	return u.space.Binary(key, name, uint64(f.AddressOrLineno), func() *os.File { return u.take(key) })
}
