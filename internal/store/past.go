package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/safefile"
)

// What a store holds when it is opened has second names too, for those who send it
// elsewhere: its Parquet files, and the logs that are none yet. So it stays what it was,
// whatever the store merges and removes. Unpack makes logs of the files again.

// pastName is the file in a Link.Past that says that all names are there, and with which
// log of each stream begins what is not among them.
const pastName = "begins"

// PackedName is the second name of a Parquet file that has the rows of the logs from low
// to high.
func PackedName(stream string, low, high uint64) string {
	return fmt.Sprintf("%s.%d-%d%s", stream, low, high, parquetSuffix)
}

// ParsePackedName is the inverse of PackedName.
func ParsePackedName(name string) (stream string, low, high uint64, ok bool) {
	base, ok := strings.CutSuffix(name, parquetSuffix)
	stream, logs, _ := strings.Cut(base, ".")
	from, to, _ := strings.Cut(logs, "-")
	low, err := strconv.ParseUint(from, 10, 64)
	high, err2 := strconv.ParseUint(to, 10, 64)
	return stream, low, high, ok && err == nil && err2 == nil && PackedName(stream, low, high) == name
}

// maxPast bounds the file that PastBegins reads: it has a line for each stream.
const maxPast = 64 << 10

// PastBegins tells with which log of each stream begins what is not in a Link.Past; whole
// is false when not all of it is there, as when a writer was killed while it was opened.
func PastBegins(root *os.Root, dir string) (first map[string]uint64, whole bool, err error) {
	f, err := safefile.OpenRegular(root, filepath.Join(dir, pastName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPast))
	if err != nil {
		return nil, false, err
	}
	first = map[string]uint64{}
	for line := range strings.Lines(string(text)) {
		var stream string
		var number uint64
		if _, err := fmt.Sscanf(line, "%s %d\n", &stream, &number); err != nil {
			return nil, false, fmt.Errorf("%s: damaged", pathIn(root, filepath.Join(dir, pastName)))
		}
		first[stream] = number
	}
	return first, true, nil
}

// past gives what there is second names, in each Link.Past that does not have them.
func (l *linker) past(logs []openLog, next map[kind]*stream) error {
	home := l.home()
	for _, to := range l.to {
		if to.Past == "" {
			continue
		}
		if _, whole, err := PastBegins(home.Root, to.Past); err != nil || whole {
			if err != nil {
				return err
			}
			continue
		}
		if err := linkPast(home, to.Past, logs); err != nil {
			return err
		}
		var text strings.Builder
		for _, k := range logKinds {
			fmt.Fprintf(&text, "%s %d\n", k, next[k].number)
		}
		if err := home.ReplaceBy(filepath.Join(to.Past, pastName), filepath.Join(to.Past, newPrefix+pastName), func(f *os.File) error {
			_, err := f.WriteString(text.String())
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

func linkPast(home *safefile.Dir, to string, logs []openLog) error {
	// Of an earlier attempt: files may have been merged since.
	old, err := readDir(home.Root, to)
	if err != nil {
		return err
	}
	for _, f := range old {
		_, _, isLog := ParseLogName(f.Name())
		if _, _, _, packed := ParsePackedName(f.Name()); packed || isLog {
			if err := home.Remove(filepath.Join(to, f.Name())); err != nil {
				return err
			}
		}
	}
	for _, k := range logKinds {
		list, _, err := segments(home.Root, k)
		if err != nil {
			return err
		}
		for _, seg := range list {
			if err := home.Link(seg.path, filepath.Join(to, PackedName(string(k), seg.low, seg.high))); err != nil {
				return err
			}
		}
		for _, log := range logs {
			if log.kind != k || covers(list, log.number) {
				continue // its rows are in a file already: a writer was killed before it removed the log
			}
			if err := linkInto(home, to, log.path); err != nil {
				return err
			}
		}
	}
	return home.SyncIn(to)
}

// unpackBuffer is how much of a log is in memory while it is made, bytes, and some rows more.
const unpackBuffer = 1 << 20

// Unpack makes a log of a Parquet file of a stream, both below a directory, with its
// rows in their order; it is there whole or not at all. After some rows each it calls pace, whose error ends it. bad
// is what could not be read of the file: the log has the other rows.
func Unpack(home *safefile.Dir, path, stream, log string, pace func() error) (bad, err error) {
	in, err := safefile.OpenRegular(home.Root, path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	unfinished := filepath.Join(filepath.Dir(log), newPrefix+filepath.Base(log))
	u := &relogger{from: &openSegment{segment{kind: kind(stream), path: path}, in}, batch: newBatch(unpackBuffer + maxEntry + frameHead + 16), pace: pace}
	err = home.ReplaceBy(log, unfinished, func(out *os.File) error {
		u.out = out
		if _, err := out.WriteString(logMagic); err != nil {
			return err
		}
		return u.rows(kind(stream))
	})
	return u.bad, err
}

// relogger makes a log of a file.
type relogger struct {
	from  *openSegment
	batch *batch
	out   *os.File
	pace  func() error
	bad   error
}

// rows writes the rows of a kind.
func (u *relogger) rows(k kind) error {
	switch k {
	case kindRequests:
		var r Request
		var text phrases
		return unpack(u, func(row *requestRow) bool {
			row.request(&r, &text)
			return u.batch.putRequest(&r)
		})
	case kindSeconds:
		var entry []byte
		return unpack(u, func(row *secondRow) bool {
			entry = appendSecond(entry[:0], row)
			return u.batch.put(entrySecond, entry)
		})
	case kindFindings:
		return unpack(u, func(row *findingRow) bool {
			f, bad := row.finding()
			var entry []byte
			if bad == nil {
				entry, bad = appendFinding(nil, &f)
			}
			if bad != nil {
				u.bad = bad
				return true
			}
			return u.batch.put(entryFinding, entry)
		})
	}
	return fmt.Errorf("%s: is no stream", k)
}

func unpack[T any](u *relogger, put func(*T) bool) error {
	const all = 1 << 62
	runs, err := groupRuns[T](u.from, -all, all, nil, nil)
	if err != nil {
		u.bad = err
		return nil
	}
	for _, run := range runs {
		for rows, bad := range run.lots {
			if bad != nil {
				u.bad = bad
				break
			}
			for i := range rows {
				if put(&rows[i]) {
					continue
				}
				if err := u.flush(); err != nil {
					return err
				}
				if !put(&rows[i]) {
					u.bad = errors.New("a row is larger than any that was written")
				}
			}
			if len(u.batch.buf) >= unpackBuffer {
				if err := u.flush(); err != nil {
					return err
				}
			}
			if err := u.pace(); err != nil {
				return err
			}
		}
	}
	return u.flush()
}

func (u *relogger) flush() error {
	u.batch.seal()
	_, err := u.out.Write(u.batch.buf)
	u.batch.reset()
	return err
}
