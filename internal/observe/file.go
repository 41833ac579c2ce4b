package observe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/klauspost/compress/zstd"
)

// Bounds of what a saved file may unpack to: a window on a host with 100,000
// sockets takes a few MB. An empty object of three bytes becomes a structure
// of hundreds, so they are counted too.
const (
	maxDecoded = 128 << 20
	maxObjects = 500_000
)

// Write writes o as zstd-compressed JSON, which Load reads.
func Write(w io.Writer, o *Observation) error {
	z, err := zstd.NewWriter(w)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(z).Encode(o); err != nil {
		return err
	}
	return z.Close()
}

// Load reads a saved Observation. The error is one line that says what is
// wrong with the file.
func Load(path string) (*Observation, error) {
	f, size, err := OpenSaved(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	o, err := decode(io.LimitReader(f, size))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return o, nil
}

// OpenSaved opens a file that was saved: an observation, a capture, a profile. More than
// its size, in bytes, is not to be read: one that grows as fast as it is read has no
// end. What is no regular file is refused, and what the kernel makes up: reading
// that may wait, go on for ever, or change something. The error is one line.
func OpenSaved(path string) (f *os.File, size int64, err error) {
	// Nothing of the file itself is opened before it is known what it is.
	const oPath = 0x200000 // O_PATH, include/uapi/asm-generic/fcntl.h
	fd, err := syscall.Open(path, oPath|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer syscall.Close(fd)
	var st syscall.Stat_t
	var in syscall.Statfs_t
	if err := errors.Join(syscall.Fstat(fd, &st), syscall.Fstatfs(fd, &in)); err != nil {
		return nil, 0, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	switch {
	case st.Mode&syscall.S_IFMT != syscall.S_IFREG:
		return nil, 0, fmt.Errorf("%s: is not a saved file: not a regular one", path)
	case slices.Contains(madeUp, uint64(in.Type)):
		return nil, 0, fmt.Errorf("%s: is not a saved file: the kernel makes it up", path)
	}
	f, err = os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	var failed *os.PathError
	if errors.As(err, &failed) {
		failed.Path = path
	}
	return f, st.Size, err
}

// madeUp are the file systems without files of their own (statfs(2)): procfs, sysfs,
// debugfs, tracefs, securityfs, cgroup v1 and v2, bpf and selinuxfs.
var madeUp = []uint64{0x9fa0, 0x62656572, 0x64626720, 0x74726163, 0x73636673, 0x27e0eb, 0x63677270, 0xcafe4a11, 0xf97cff8c}

func decode(r io.Reader) (*Observation, error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderMaxMemory(maxDecoded), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	text, err := io.ReadAll(io.LimitReader(z, maxDecoded+1))
	large := len(text) > maxDecoded || bytes.Count(text, []byte("{")) > maxObjects
	var o Observation
	if err == nil && !large {
		err = json.NewDecoder(bytes.NewReader(text)).Decode(&o)
	}
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case large:
		return nil, errors.New("unpacks to far more than any window holds: not a slowray observation")
	case errors.Is(err, zstd.ErrMagicMismatch), errors.As(err, &syntax), errors.As(err, &kind), errors.Is(err, io.EOF):
		return nil, errors.New("not a slowray observation (make one with slowray why --save FILE)")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errors.New("truncated: the file ends early; copy it again")
	case err != nil:
		return nil, fmt.Errorf("damaged: %w", err)
	case o.Schema == SchemaObservation:
		return &o, nil
	case o.Schema == "slowray.observation/1":
		o.fromFirst()
		return &o, nil
	case strings.HasPrefix(o.Schema, "slowray.observation/"):
		return nil, fmt.Errorf("written by another version of slowray (%s, this one reads %s)", o.Schema, SchemaObservation)
	}
	return nil, errors.New("not a slowray observation (make one with slowray why --save FILE)")
}

// fromFirst brings what was read of the first format up to date: there a request on the
// host that nobody answered was one of the errors, too.
func (o *Observation) fromFirst() {
	o.Schema = SchemaObservation
	if o.Capture != nil {
		return // of the wire, where they were apart
	}
	for i := range o.Endpoints {
		e := &o.Endpoints[i]
		e.Errors -= min(e.Errors, e.Unanswered)
	}
}
