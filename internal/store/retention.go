package store

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// shares of MaxBytes for the kinds, in hundredths. Room that one kind does not
// need is used by the others: when all is too much, the oldest file of the kind
// that is most above its share goes. So what is large does not drive out the
// sums, and the sums reach further back.
var shares = map[kind]float64{
	kindRequests:     30,
	kindSeconds:      25,
	kindSeconds10:    20,
	kindMinutes5:     10,
	kindFindings:     5,
	kindObservations: 10,
}

// storedFile is a file that may be removed.
type storedFile struct {
	path  string // below the store's directory
	bytes int64
	last  int64 // s since 1970 of what is in it
}

// retain removes what is too old, and the oldest of what is too much. Logs are
// never removed.
func (s *Store) retain() error {
	home := s.home.Load()
	stock, logBytes, err := inventory(home.Root)
	if err != nil {
		return err
	}
	total := logBytes
	used := map[kind]int64{}
	for k, files := range stock {
		for _, f := range files {
			used[k] += f.bytes
		}
		total += used[k]
	}
	var failed error
	remove := func(k kind, f storedFile) {
		used[k] -= f.bytes
		total -= f.bytes
		if err := home.Remove(f.path); err != nil {
			failed = err
			return
		}
		delete(s.damaged, f.path)
		home.Remove(filepath.Dir(f.path)) // the day's folder, when it was the last one
		s.removed.Add(1)
	}
	now := s.now()
	// A clock that jumps ahead makes nothing older.
	if t := s.opened.Add(s.elapsed()); t.Before(now) {
		now = t
	}
	oldest := now.Add(-s.opt.MaxAge).Unix()
	for k, files := range stock {
		stock[k] = slices.DeleteFunc(slices.Clone(files), func(f storedFile) bool {
			if f.last >= oldest {
				return false
			}
			remove(k, f)
			return true
		})
	}
	for total > s.opt.MaxBytes {
		var most kind
		for k, files := range stock {
			if len(files) > 0 && (most == "" || float64(used[k])/shares[k] > float64(used[most])/shares[most]) {
				most = k
			}
		}
		if most == "" {
			break
		}
		remove(most, stock[most][0])
		stock[most] = stock[most][1:]
	}
	s.bytes.Store(total)
	return failed
}

// inventory lists all files but the logs, whose bytes it tells, by kind: what was
// written first comes first, whatever the clock said then.
func inventory(root *os.Root) (stock map[kind][]storedFile, logBytes int64, err error) {
	stock = map[kind][]storedFile{}
	for _, k := range parquetKinds {
		list, superseded, err := segments(root, k)
		if err != nil {
			return nil, 0, err
		}
		list = append(list, superseded...)
		slices.SortFunc(list, func(a, b segment) int { return cmp.Compare(a.high, b.high) })
		for _, seg := range list {
			stock[k] = append(stock[k], storedFile{seg.path, seg.bytes, seg.last})
		}
	}
	windows, err := observations(root, time.Time{}, time.Time{}, true)
	if err != nil {
		return nil, 0, err
	}
	for _, w := range windows {
		stock[kindObservations] = append(stock[kindObservations], storedFile{w.name, w.bytes, w.End.Unix()})
	}
	logs, err := openLogs(root)
	for _, l := range logs {
		logBytes += l.bytes
	}
	return stock, logBytes, err
}
