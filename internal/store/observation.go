package store

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/safefile"
)

// Observations are files as slowray why --save writes them:
// observations/DATE/FIRST-LAST.json.zst, times of day in UTC; -2 and so on
// follow where two windows have the same seconds.

const (
	observationSuffix = ".json.zst"
	unfinishedWindow  = ".slowray-" // begins the name of one that is being written
)

// windowOf is the time an Observation covers.
func windowOf(o *observe.Observation) (start, end time.Time) {
	start = o.Window.Start
	return start, start.Add(time.Duration(o.Window.Seconds * float64(time.Second)))
}

// saveObservation writes o to a file of its own, whole or not at all.
func (s *Store) saveObservation(o *observe.Observation, start, end time.Time) error {
	seg := segment{kind: kindObservations, first: nameable(start.Unix()), last: nameable(max(start.Unix(), end.Unix()))}
	base := strings.TrimSuffix(seg.name(), ".0"+parquetSuffix)
	day := filepath.Dir(base)
	home := s.home.Load()
	path := base + observationSuffix
	for i := 2; ; i++ {
		if _, err := home.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			break
		}
		path = fmt.Sprintf("%s-%d%s", base, i, observationSuffix)
	}
	err := fs.ErrNotExist
	for range 2 { // the folder may be taken for one that is empty, and removed, just now
		if errors.Is(err, fs.ErrNotExist) {
			if err = makeDay(home, day); err == nil {
				err = home.ReplaceBy(path, filepath.Join(day, unfinishedWindow+filepath.Base(path)), func(f *os.File) error { return observe.Write(f, o) })
			}
		}
	}
	if err != nil {
		return err
	}
	if info, err := home.Stat(path); err == nil {
		s.bytes.Add(info.Size())
	}
	return nil
}

// makeDay makes the folder of a day.
func makeDay(home *safefile.Dir, day string) error {
	if _, err := home.Stat(day); err == nil {
		return nil
	}
	if err := home.MkdirAll(day, 0o700); err != nil {
		return err
	}
	return cmp.Or(home.SyncIn(filepath.Dir(day)), home.Sync())
}

// observationFile is a stored Observation with its size.
type observationFile struct {
	Window
	name  string // below the store's directory
	bytes int64
}

// longestWindow is more than any window lasts.
const longestWindow = time.Hour

// observations lists the stored windows that overlap a range by their start, with
// their sizes where those are asked for. Zero times leave the range open. There are
// ten thousand in a week, and more of shorter windows: days outside of the range
// are not read.
func observations(root *os.Root, from, to time.Time, sizes bool) ([]observationFile, error) {
	const windows = string(kindObservations)
	days, err := readDir(root, windows)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []observationFile
	const day = 24 * time.Hour
	for _, folder := range days {
		date, err := time.Parse(dateForm, folder.Name())
		if err != nil || !overlaps(date, date.Add(day+longestWindow), from, to) {
			continue
		}
		files, err := readDir(root, filepath.Join(windows, folder.Name()))
		if err != nil {
			continue // removed meanwhile, or no folder
		}
		for _, f := range files {
			base, ok := strings.CutSuffix(f.Name(), observationSuffix)
			if !ok || !f.Type().IsRegular() {
				continue
			}
			if parts := strings.Split(base, "-"); len(parts) == 3 {
				base = parts[0] + "-" + parts[1]
			}
			seg, ok := parseSegment(kindObservations, folder.Name(), base+".0"+parquetSuffix)
			if !ok {
				continue
			}
			name := filepath.Join(windows, folder.Name(), f.Name())
			o := observationFile{name: name, Window: Window{
				Path: pathIn(root, name), Start: time.Unix(seg.first, 0).UTC(), End: time.Unix(seg.last, 0).UTC(),
			}}
			if !overlaps(o.Start, o.End, from, to) {
				continue
			}
			if sizes {
				if info, err := f.Info(); err == nil {
					o.bytes = info.Size()
				}
			}
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b observationFile) int {
		return cmp.Or(a.Start.Compare(b.Start), strings.Compare(a.name, b.name))
	})
	return list, nil
}
