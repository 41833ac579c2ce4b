package config

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/slowray/slowray/internal/safefile"
)

// maxFile is the largest file that is changed, in bytes.
const maxFile = 4 << 20

var errNoFile = errors.New("no such file")

// file is a file of a configuration as it is now.
type file struct {
	*safefile.File
	spot safefile.Spot
	tree *safefile.Tree
}

// openFile finds and reads a file that the server's user may have changed: what
// belongs to a third user is not the server's.
func (s *server) openFile(t *safefile.Tree, name string) (*file, error) {
	spot, err := t.Find(name)
	if err == nil && spot.Owner != 0 && s.uid != 0 && int(spot.Owner) != s.uid {
		err = fmt.Errorf("%s belongs to user %d, and %s (pid %d) runs as user %d", spot.Path, spot.Owner, s.name, s.pid, s.uid)
	}
	if err != nil {
		return nil, missing(err)
	}
	return readFile(t, spot)
}

// readFile reads what is at a spot. errNoFile: there is nothing.
func readFile(t *safefile.Tree, spot safefile.Spot) (*file, error) {
	f, err := t.Read(spot)
	if err != nil {
		return nil, missing(err)
	}
	return &file{f, spot, t}, nil
}

func missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errNoFile
	}
	return err
}

// writable says why the file could not be changed.
func (f *file) writable() error {
	if f.Locked == "" {
		return nil
	}
	what := "its directory"
	if f.InPlace {
		what = "it"
	}
	return fmt.Errorf("%s cannot be changed: %s is not writable: %s", f.spot.Path, what, f.Locked)
}

// tempName begins with a dot, which no include with a wildcard matches.
func tempName() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b)
	return ".slowray-" + hex.EncodeToString(b)
}

func sum(text []byte) string {
	s := sha256.Sum256(text)
	return hex.EncodeToString(s[:])
}

// packed is a file's content, compressed; base64 in JSON.
type packed []byte

func pack(text []byte) packed {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	_, _ = w.Write(text)
	_ = w.Close()
	return b.Bytes()
}

func (p packed) unpack() ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(p))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(r, maxFile+1))
}
