package observe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
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
