package store

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// kind is one sort of what is stored: the name of its folder.
type kind string

// The kinds. The last two are made from seconds.
const (
	kindRequests  kind = "requests"
	kindSeconds   kind = "seconds"
	kindFindings  kind = "findings"
	kindSeconds10 kind = "seconds10"
	kindMinutes5  kind = "minutes5"

	kindObservations kind = "observations" // files of observe.Write, see observation.go
)

// source is the kind whose logs a kind's files are made from.
func (k kind) source() kind {
	if k == kindSeconds10 || k == kindMinutes5 {
		return kindSeconds
	}
	return k
}

// parquetKinds have Parquet files; logKinds have logs.
var (
	parquetKinds = []kind{kindRequests, kindSeconds, kindFindings, kindSeconds10, kindMinutes5}
	logKinds     = []kind{kindRequests, kindSeconds, kindFindings}
)

const (
	openDir       = "open"
	lockName      = "lock"
	newPrefix     = ".new-" // a file that is being written; without parquetSuffix, for DuckDB's * takes hidden files too
	parquetSuffix = ".parquet"
	dateForm      = "2006-01-02"
	clockForm     = "150405"
	otherDayForm  = "20060102T150405"
)

// segment is a Parquet file. It holds what was in the logs from low to high: a
// file whose logs are all in another one is what a killed writer left.
type segment struct {
	kind        kind
	path        string // below the store's directory
	first, last int64  // s since 1970 of the first and last row
	low, high   uint64
	bytes       int64
}

// name is the segment's path below the store's directory:
// KIND/DATE/FIRST-LAST.LOGS.parquet, with the date in LAST where it is another.
func (s *segment) name() string {
	first, last := time.Unix(s.first, 0).UTC(), time.Unix(s.last, 0).UTC()
	day := first.Format(dateForm)
	end := last.Format(clockForm)
	if last.Format(dateForm) != day {
		end = last.Format(otherDayForm)
	}
	logs := strconv.FormatUint(s.low, 10)
	if s.high != s.low {
		logs += "-" + strconv.FormatUint(s.high, 10)
	}
	return filepath.Join(string(s.kind), day, first.Format(clockForm)+"-"+end+"."+logs+parquetSuffix)
}

// parseSegment reads a name back: of the day's folder and of the file.
func parseSegment(k kind, day, file string) (segment, bool) {
	s := segment{kind: k}
	base, ok := strings.CutSuffix(file, parquetSuffix)
	times, logs, ok2 := strings.Cut(base, ".")
	from, to, ok3 := strings.Cut(times, "-")
	if !ok || !ok2 || !ok3 {
		return s, false
	}
	first, err := time.Parse(dateForm+clockForm, day+from)
	if err != nil {
		return s, false
	}
	last, err := time.Parse(dateForm+clockForm, day+to)
	if err != nil {
		if last, err = time.Parse(otherDayForm, to); err != nil {
			return s, false
		}
	}
	low, high, both := strings.Cut(logs, "-")
	if s.low, err = strconv.ParseUint(low, 10, 64); err != nil {
		return s, false
	}
	s.high = s.low
	if both {
		if s.high, err = strconv.ParseUint(high, 10, 64); err != nil {
			return s, false
		}
	}
	s.first, s.last = first.Unix(), last.Unix()
	return s, s.first <= s.last && s.low <= s.high
}

// Moments that a name can tell: what is beyond is put to the nearest.
const (
	minSecond = 0
	maxSecond = 253402300799 // the end of the year 9999
)

func nameable(s int64) int64 { return min(max(s, minSecond), maxSecond) }

// segments lists the Parquet files of a kind by their first second. Files whose
// names do not belong are left alone. superseded are those whose rows are in
// others too.
func segments(root *os.Root, k kind) (list, superseded []segment, err error) {
	days, err := readDir(root, string(k))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	var all []segment
	for _, day := range days {
		if _, err := time.Parse(dateForm, day.Name()); err != nil || !day.IsDir() {
			continue
		}
		files, err := readDir(root, filepath.Join(string(k), day.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, nil, err
		}
		for _, f := range files {
			s, ok := parseSegment(k, day.Name(), f.Name())
			if !ok || !f.Type().IsRegular() {
				continue
			}
			if info, err := f.Info(); err == nil {
				s.bytes = info.Size()
			}
			s.path = filepath.Join(string(k), day.Name(), f.Name())
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b segment) int {
		return cmp.Or(cmp.Compare(a.low, b.low), -cmp.Compare(a.high, b.high), strings.Compare(a.path, b.path))
	})
	covered := false
	var high uint64
	for _, s := range all {
		if covered && s.high <= high {
			superseded = append(superseded, s)
			continue
		}
		covered, high = true, s.high
		list = append(list, s)
	}
	slices.SortStableFunc(list, func(a, b segment) int { return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.low, b.low)) })
	return list, superseded, nil
}

// covers says whether a log is in one of the files.
func covers(list []segment, number uint64) bool {
	return slices.ContainsFunc(list, func(s segment) bool { return s.low <= number && number <= s.high })
}

// openLog is a log below DIR/open.
type openLog struct {
	kind   kind
	number uint64
	path   string // below the store's directory
	bytes  int64
}

// logPath is where a log is, below the store's directory.
func logPath(k kind, number uint64) string {
	return filepath.Join(openDir, fmt.Sprintf("%s.%d.log", k, number))
}

// openLogs lists the logs, in the order in which they were written.
func openLogs(root *os.Root) ([]openLog, error) {
	files, err := readDir(root, openDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var logs []openLog
	for _, f := range files {
		name, rest, _ := strings.Cut(f.Name(), ".")
		digits, suffix, _ := strings.Cut(rest, ".")
		number, err := strconv.ParseUint(digits, 10, 64)
		if err != nil || suffix != "log" || !slices.Contains(logKinds, kind(name)) || !f.Type().IsRegular() {
			continue
		}
		l := openLog{kind: kind(name), number: number, path: filepath.Join(openDir, f.Name())}
		if info, err := f.Info(); err == nil {
			l.bytes = info.Size()
		}
		logs = append(logs, l)
	}
	slices.SortFunc(logs, func(a, b openLog) int {
		return cmp.Or(strings.Compare(string(a.kind), string(b.kind)), cmp.Compare(a.number, b.number))
	})
	return logs, nil
}
