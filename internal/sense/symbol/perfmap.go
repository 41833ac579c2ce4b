package symbol

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// openPerfMap opens the map that a just-in-time compiler writes for profilers,
// /tmp/perf-PID.map where the process sees it and with the number by which it
// knows itself. A file of another user is not believed, as perf(1) has it.
func (p *Process) openPerfMap() (f *os.File, err error) {
	uid, own, err := p.identity()
	if err != nil {
		return nil, errors.New("the process ended")
	}
	path := fmt.Sprintf("/tmp/perf-%d.map", own)
	f, err = p.root().Open(path)
	if err != nil {
		return nil, errors.New("there is no " + path)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || (st.Uid != uid && st.Uid != 0) {
		f.Close()
		return nil, errors.New(path + " belongs to another user")
	}
	return f, nil
}

// maxStatus is how much of a process's status is read, bytes: the number by which it
// knows itself comes after its groups, of which there may be 65,536 (NGROUPS_MAX).
const maxStatus = 1 << 20

// identity is a process's user, and the number by which it knows itself.
func (p *Process) identity() (uid uint32, own int, err error) {
	data, err := budget.Head(filepath.Join(p.space.proc, strconv.Itoa(p.pid), "status"), maxStatus)
	if err != nil {
		return 0, 0, err
	}
	own = p.pid
	for line := range bytes.Lines(data) {
		if rest, ok := host.AfterKey(line, "Uid:"); ok {
			if f := bytes.Fields(rest); len(f) > 1 {
				n, _ := host.ParseUint(f[1])
				uid = uint32(n)
			}
		}
		if rest, ok := host.AfterKey(line, "NSpid:"); ok {
			if f := bytes.Fields(rest); len(f) > 0 {
				if n, ok := host.ParseSmall(f[len(f)-1]); ok {
					own = n
				}
			}
		}
	}
	return uid, own, nil
}

// parsePerfMap finds the names of sorted addresses in a map of lines "start
// size name", numbers in hexadecimal. Memory is used again: of several entries
// that hold an address the last one counts. Over the budget, what was found until
// then is returned with its error.
func parsePerfMap(b *budget.Budget, r io.Reader, addresses []uint64) (map[uint64]string, error) {
	found := map[uint64]string{}
	in := bufio.NewReaderSize(b.Reader(r), 1<<18)
	for {
		line, err := in.ReadSlice('\n')
		if over := b.Node(); over != nil {
			return found, over
		}
		if err == bufio.ErrBufferFull {
			// A name of that length is none: skip it.
			for err == bufio.ErrBufferFull {
				_, err = in.ReadSlice('\n')
			}
			line = nil
		}
		if len(line) > 0 {
			// All lines may claim all addresses.
			if over := b.Nodes(int64(matchPerfLine(line, addresses, found))); over != nil {
				return found, over
			}
		}
		switch {
		case err == io.EOF:
			return found, nil
		case err != nil:
			return found, err
		}
	}
}

// maxPerfName bounds a name in a map, bytes: more of it than is shown.
const maxPerfName = 2 * maxName

// matchPerfLine gives the addresses that a line holds its name, and tells how
// many there are.
func matchPerfLine(line []byte, addresses []uint64, found map[uint64]string) (n int) {
	from, rest, ok := bytes.Cut(bytes.TrimRight(line, "\n"), []byte(" "))
	size, name, ok2 := bytes.Cut(rest, []byte(" "))
	start, ok3 := host.ParseHex(bytes.TrimPrefix(from, []byte("0x")))
	length, ok4 := host.ParseHex(bytes.TrimPrefix(size, []byte("0x")))
	if !ok || !ok2 || !ok3 || !ok4 {
		return 0
	}
	i, _ := slices.BinarySearch(addresses, start)
	if i == len(addresses) || addresses[i]-start >= length {
		return 0
	}
	text := string(name[:min(len(name), maxPerfName)])
	for ; i < len(addresses) && addresses[i]-start < length; i++ {
		found[addresses[i]] = text
		n++
	}
	return n
}

// jitFrame takes apart what compilers write as a name.
func jitFrame(name string) observe.Frame {
	name = clean(name)
	f := observe.Frame{Name: name, Kind: observe.FrameUnknown}
	switch {
	case strings.HasPrefix(name, "py::"): // CPython with -X perf: py::function:/file.py
		f.Kind = observe.FramePython
		f.Name, f.File, _ = strings.Cut(name[len("py::"):], ":")
		return f
	case strings.HasPrefix(name, "L") && strings.Contains(name, ";::"): // perf-map-agent: Lcom/foo/Bar;::method
		class, method, _ := strings.Cut(name[1:], ";::")
		f.Kind, f.Name = observe.FrameJava, strings.ReplaceAll(class, "/", ".")+"."+method
		return f
	}
	for _, prefix := range nodePrefixes {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			return nodeFrame(rest)
		}
	}
	return f
}

// nodePrefixes are what V8 writes before its functions (Logger::KindToMarker
// and CodeTag, src/logging/log.cc).
var nodePrefixes = []string{"JS:", "LazyCompile:", "Function:", "Script:", "Eval:", "RegExp:", "Builtin:", "BytecodeHandler:", "Stub:"}

// nodeFrame reads "*name file:///dir/file.js:12:3": a mark of how far it is
// compiled, name and place.
func nodeFrame(text string) observe.Frame {
	f := observe.Frame{Kind: observe.FrameNode}
	text = strings.TrimLeft(text, "*~^+")
	name, place, _ := strings.Cut(text, " ")
	if name == "" {
		name = "(anonymous)"
	}
	f.Name = name
	parts := strings.Split(strings.TrimPrefix(place, "file://"), ":")
	numbers := 0
	for numbers < 2 && len(parts)-numbers > 1 {
		if _, err := strconv.Atoi(parts[len(parts)-1-numbers]); err != nil {
			break
		}
		numbers++
	}
	if numbers > 0 {
		f.Line, _ = strconv.Atoi(parts[len(parts)-numbers])
	}
	f.File = strings.Join(parts[:len(parts)-numbers], ":")
	return f
}
