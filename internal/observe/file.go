package observe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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

// Savable says early whether Save will be able to write to path.
func Savable(path string) error {
	if err := regular(path); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".slowray-*")
	if err != nil {
		return fmt.Errorf("save observation: %w", err)
	}
	f.Close()
	return os.Remove(f.Name())
}

// regular refuses to replace a device, a directory or a FIFO by a file.
func regular(path string) error {
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		return fmt.Errorf("save observation: %s: not a regular file", path)
	}
	return nil
}

// Save writes o to a file, as zstd-compressed JSON. The file appears whole or
// not at all, and only its owner may read it: it holds command lines.
func Save(path string, o *Observation) (err error) {
	if err := regular(path); err != nil {
		return err
	}
	// A link keeps pointing: what it points to is replaced.
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	err = WriteWhole(path, "", func(f *os.File) error {
		z, err := zstd.NewWriter(f)
		if err != nil {
			return err
		}
		if err := json.NewEncoder(z).Encode(o); err != nil {
			return err
		}
		return z.Close()
	})
	if err != nil {
		return fmt.Errorf("save observation: %w", err)
	}
	return nil
}

// Load reads a saved Observation. The error is one line that says what is
// wrong with the file.
func Load(path string) (*Observation, error) {
	// Opening a FIFO would wait for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	o, err := decode(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return o, nil
}

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
	case strings.HasPrefix(o.Schema, "slowray.observation/"):
		return nil, fmt.Errorf("written by another version of slowray (%s, this one reads %s)", o.Schema, SchemaObservation)
	}
	return nil, errors.New("not a slowray observation (make one with slowray why --save FILE)")
}
