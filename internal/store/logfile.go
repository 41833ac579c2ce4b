package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/safefile"
)

// ErrNotLog is for a file that has not even the header of a log: nothing in it was
// ever durable.
var ErrNotLog = errNotLog

// LogFile reads a log frame by frame, also while it is written to, in memory for
// one frame.
type LogFile struct {
	f   *os.File
	at  int64
	max int64 // bytes that the file has: as many are asked for at most
}

// LogName is the name of a log, as in DIR/open.
func LogName(stream string, number uint64) string {
	return filepath.Base(logPath(kind(stream), number))
}

// ParseLogName is the inverse of LogName.
func ParseLogName(name string) (stream string, number uint64, ok bool) {
	stream, rest, _ := strings.Cut(name, ".")
	digits, suffix, _ := strings.Cut(rest, ".")
	number, err := strconv.ParseUint(digits, 10, 64)
	return stream, number, err == nil && suffix == "log" && LogName(stream, number) == name
}

// OpenLog opens a log in a directory. Of one that is not yet a log the error is
// ErrNotLog.
func OpenLog(in *os.Root, name string) (*LogFile, error) {
	f, err := safefile.OpenRegular(in, name)
	if err != nil {
		return nil, err
	}
	magic := make([]byte, len(logMagic))
	if _, err = f.ReadAt(magic, 0); errors.Is(err, io.EOF) || err == nil && !isLog(magic) {
		err = fmt.Errorf("%s: %w", pathIn(in, name), ErrNotLog)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &LogFile{f: f, at: int64(len(logMagic))}, nil
}

// Close closes the file.
func (l *LogFile) Close() error { return l.f.Close() }

// Offset is where the next frame begins; GoTo goes to where one did.
func (l *LogFile) Offset() int64 { return l.at }

// GoTo goes to an Offset.
func (l *LogFile) GoTo(to int64) { l.at = to }

// Damaged is how many bytes there are from a frame on that is not whole, at the place where
// Next has found the end; 0 where nothing follows, or nothing but room that was never
// written.
func (l *LogFile) Damaged() int64 {
	st, err := l.f.Stat()
	if err != nil || st.Size() <= l.at {
		return 0
	}
	var head [frameHead]byte
	if n, _ := l.f.ReadAt(head[:], l.at); string(head[:n]) == string(make([]byte, n)) {
		return 0
	}
	return st.Size() - l.at
}

// Next appends the next frame's payload to buf, if the frame ends within the first
// limit bytes of the file; negative is all of it. At the end, or where the log is
// not whole any more, the error is io.EOF.
func (l *LogFile) Next(buf []byte, limit int64) ([]byte, error) {
	if limit < 0 || limit > l.max {
		st, err := l.f.Stat()
		if err != nil {
			return buf, err
		}
		l.max = st.Size()
	}
	if limit < 0 || limit > l.max {
		limit = l.max
	}
	var head [frameHead]byte
	if l.at+frameHead > limit {
		return buf, io.EOF
	}
	if _, err := l.f.ReadAt(head[:], l.at); err != nil {
		return buf, err
	}
	size := int(binary.LittleEndian.Uint32(head[:]))
	if size == 0 || size > maxFrame || l.at+frameHead+int64(size) > limit {
		return buf, io.EOF
	}
	from := len(buf)
	if need := from + size; cap(buf) < need {
		buf = append(make([]byte, 0, max(need, 2*cap(buf))), buf...)
	}
	buf = buf[:from+size]
	if _, err := l.f.ReadAt(buf[from:], l.at+frameHead); err != nil {
		return buf[:from], err
	}
	if crc32.Checksum(buf[from:], castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
		return buf[:from], io.EOF
	}
	l.at += frameHead + int64(size)
	return buf, nil
}
