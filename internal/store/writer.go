package store

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/safefile"
)

// Defaults and bounds of a writer.
const (
	defaultMaxBytes = 2 << 30
	defaultMaxAge   = 7 * 24 * time.Hour
	defaultSegment  = 5 * time.Minute

	requestBuffer = 8 << 20 // bytes between two syncs: about 100,000 requests
	secondBuffer  = 8 << 20 // endpoints of a second, of about 500 bytes each
	findingBuffer = 4 << 20 // findings of some windows
	maxLogSize    = 8 << 20 // then a log becomes a Parquet file before its time
	keepInterval  = time.Minute
)

// Store is the one writer of a directory. Its methods may be called from any
// goroutine.
type Store struct {
	dir  string
	home atomic.Pointer[safefile.Dir] // dir, held open; another one when that was moved away
	opt  Options
	lock *os.File

	now     func() time.Time     // by the clock, which may jump
	elapsed func() time.Duration // since Open, which does not
	opened  time.Time            // by the clock

	streams map[kind]*stream // by logKinds

	syncing sync.Mutex      // one Sync at a time
	keeping sync.Mutex      // one goroutine makes, merges and removes files
	damaged map[string]bool // files that cannot be merged; keeping's
	wake    chan struct{}
	done    chan struct{}
	ended   sync.WaitGroup
	closed  atomic.Bool

	requests, seconds, findings, observations atomic.Uint64
	recovered, torn, removed                  atomic.Uint64
	bytes                                     atomic.Int64

	errMu     sync.Mutex
	syncError string // of the last Sync
	keepError string // of the last time files were made
	saveError string // of the last window

	followMu  sync.Mutex
	followers map[kind][]chan struct{}
	links     linker // of the syncing goroutine
}

// Open makes dir where it is missing, takes its lock, and makes good what a
// killed writer left. A directory of another user, or one that somebody else could
// lead elsewhere, is refused: see safefile.MakeDir. The error is one line.
func Open(dir string, opt Options) (*Store, error) {
	s, err := open(dir, opt, time.Now)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	s.ended.Add(1)
	go s.run()
	return s, nil
}

// open is Open without the goroutine that makes, merges and removes files.
func open(dir string, opt Options, now func() time.Time) (*Store, error) {
	opt.MaxBytes = cmp.Or(opt.MaxBytes, defaultMaxBytes)
	opt.MaxAge = cmp.Or(opt.MaxAge, defaultMaxAge)
	opt.Segment = cmp.Or(opt.Segment, defaultSegment)
	home, lock, err := takeHome(dir)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	s := &Store{
		dir: dir, opt: opt, now: now, lock: lock, streams: map[kind]*stream{},
		opened: now(), elapsed: func() time.Duration { return time.Since(began) },
		damaged: map[string]bool{}, wake: make(chan struct{}, 1), done: make(chan struct{}),
		followers: map[kind][]chan struct{}{}, links: linker{to: opt.Links},
	}
	s.home.Store(home)
	s.links.home = s.home.Load
	if err := s.recover(); err != nil {
		lock.Close()
		home.Close()
		return nil, err
	}
	return s, nil
}

// takeHome opens the directory of a store, and takes its lock.
func takeHome(dir string) (home *safefile.Dir, lock *os.File, err error) {
	if home, err = safefile.MakeDir(dir, 0o700); err != nil {
		return nil, nil, err
	}
	if err = home.MkdirAll(openDir, 0o700); err == nil {
		lock, err = takeLock(home)
	}
	if err != nil {
		home.Close()
		return nil, nil, err
	}
	return home, lock, nil
}

// takeLock is held by the one writer, as long as it lives.
func takeLock(home *safefile.Dir) (*os.File, error) {
	f, err := home.OpenFile(lockName, os.O_RDWR|os.O_CREATE|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder := make([]byte, 20)
		n, _ := f.Read(holder)
		f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", home.Path(), err)
		}
		who := strings.TrimSpace(string(holder[:n]))
		if strings.Trim(who, "0123456789") != "" || who == "" {
			who = "unknown"
		}
		return nil, fmt.Errorf("%s is being written to by another slowray (pid %s): stop it, or choose another directory", home.Path(), who)
	}
	// For the message above only: that it fails is no harm.
	if f.Truncate(0) == nil {
		fmt.Fprintln(f, os.Getpid())
	}
	return f, nil
}

// recover looks at what the last writer left, removes what it had not finished,
// and numbers the logs on from there.
func (s *Store) recover() error {
	home := s.home.Load()
	removeUnfinished(home, string(kindObservations), unfinishedWindow)
	for _, k := range parquetKinds {
		removeUnfinished(home, string(k), newPrefix)
	}
	last, logs, err := numbers(home.Root)
	if err != nil {
		return err
	}
	for _, l := range logs {
		data, err := readLog(home.Root, l.path)
		s.torn.Add(uint64(data.torn))
		if err == nil {
			s.recovered.Add(data.count())
		}
	}
	for k, limit := range map[kind]int{kindRequests: requestBuffer, kindSeconds: secondBuffer, kindFindings: findingBuffer} {
		s.streams[k] = newStream(s.home.Load, k, limit, max(last[k], s.links.last(k))+1)
		s.streams[k].created = s.links.add
	}
	if err := s.links.past(logs, s.streams); err != nil {
		return err
	}
	return s.links.existing(logs)
}

// numbers are the last ones in use, by kinds that have logs, and the logs.
func numbers(root *os.Root) (last map[kind]uint64, logs []openLog, err error) {
	last = map[kind]uint64{}
	for _, k := range parquetKinds {
		list, _, err := segments(root, k)
		if err != nil {
			return nil, nil, err
		}
		for _, seg := range list {
			last[k.source()] = max(last[k.source()], seg.high)
		}
	}
	logs, err = openLogs(root)
	for _, l := range logs {
		last[l.kind] = max(last[l.kind], l.number)
	}
	return last, logs, err
}

// removeUnfinished removes files that a killed writer had begun.
func removeUnfinished(home *safefile.Dir, dir, prefix string) {
	days, _ := readDir(home.Root, dir)
	for _, day := range days {
		files, _ := readDir(home.Root, filepath.Join(dir, day.Name()))
		for _, f := range files {
			if strings.HasPrefix(f.Name(), prefix) {
				home.Remove(filepath.Join(dir, day.Name(), f.Name()))
			}
		}
	}
}

// AddRequest takes a copy of r. It never waits for the disk: a request for
// which there is no room is dropped and counted. It allocates nothing in steady
// use.
func (s *Store) AddRequest(r *Request) {
	if s.streams[kindRequests].putRequest(r) {
		s.requests.Add(1)
	}
}

// AddSecond takes a copy of what is kept of sec; see Second. It does not wait
// for the disk either.
func (s *Store) AddSecond(sec *Second) {
	var row secondRow
	row.set(sec, 1)
	if s.streams[kindSeconds].put(entrySecond, appendSecond(nil, &row)) {
		s.seconds.Add(1)
	}
}

// AddObservation writes o to a file of its own and adds its findings. It waits
// for the disk.
func (s *Store) AddObservation(o *observe.Observation, findings []cause.Finding) error {
	if s.closed.Load() {
		return errClosed
	}
	start, end := windowOf(o)
	for i := range findings {
		entry, err := appendFinding(nil, &Finding{Start: start, End: end, Finding: findings[i]})
		if err != nil {
			return fmt.Errorf("store: finding: %w", err)
		}
		if s.streams[kindFindings].put(entryFinding, entry) {
			s.findings.Add(1)
		}
	}
	err := s.saveObservation(o, start, end)
	if err != nil {
		err = fmt.Errorf("store: %w", err)
	} else {
		s.observations.Add(1)
	}
	s.errMu.Lock()
	s.saveError = textOf(err)
	s.errMu.Unlock()
	return err
}

var errClosed = errors.New("store: closed")

// Sync makes durable what was added before. Call it each second. Where it fails,
// what it could not write is dropped and counted, and the next one goes on.
func (s *Store) Sync() error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	if s.closed.Load() {
		return errClosed
	}
	return s.sync()
}

func (s *Store) sync() error {
	var errs []error
	now := s.now()
	err := s.hold()
	if errors.Is(err, safefile.ErrUnsafe) {
		return s.synced(fmt.Errorf("store: %w", err))
	}
	if err != nil {
		errs = append(errs, err)
	}
	s.links.again()
	for _, k := range logKinds {
		st := s.streams[k]
		if st.due(now, s.opt.Segment, maxLogSize) && st.rotate() {
			s.wakeKeeper()
		}
		if err := st.sync(now); err != nil {
			errs = append(errs, err)
		}
		if st.durable() {
			s.tellFollowers(k)
		}
	}
	return s.synced(oneLine(errs))
}

// synced notes what came of a Sync.
func (s *Store) synced(err error) error {
	s.errMu.Lock()
	s.syncError = textOf(err)
	s.errMu.Unlock()
	return err
}

// oneLine is the first of some errors, as the store's.
func oneLine(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("store: %w", errs[0])
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Stats is what was done since Open.
func (s *Store) Stats() Stats {
	x := Stats{
		Requests: s.requests.Load(), Seconds: s.seconds.Load(), Findings: s.findings.Load(), Observations: s.observations.Load(),
		Bytes: s.bytes.Load(), Recovered: s.recovered.Load(), Torn: s.torn.Load(), Removed: s.removed.Load(),
		Unlinked: s.links.missed.Load(),
	}
	for k, st := range s.streams {
		st.mu.Lock()
		if k == kindRequests {
			x.Dropped += st.dropped
		} else {
			x.DroppedSeconds += st.dropped
		}
		st.mu.Unlock()
	}
	s.errMu.Lock()
	x.LastError = cmp.Or(s.syncError, s.keepError, s.saveError)
	s.errMu.Unlock()
	return x
}

func (s *Store) wakeKeeper() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run makes, merges and removes files in the background.
func (s *Store) run() {
	defer s.ended.Done()
	tick := time.NewTicker(keepInterval)
	defer tick.Stop()
	s.keep()
	for {
		select {
		case <-s.done:
			return
		case <-s.wake:
		case <-tick.C:
		}
		s.keep()
	}
}

// keep makes files of logs that are ended, merges small ones, and removes what is
// too old or too much.
func (s *Store) keep() error {
	s.keeping.Lock()
	defer s.keeping.Unlock()
	var errs []error
	for _, do := range []func() error{s.convertLogs, s.compact, s.retain} {
		if err := do(); err != nil {
			errs = append(errs, err)
		}
	}
	err := oneLine(errs)
	s.errMu.Lock()
	s.keepError = textOf(err)
	s.errMu.Unlock()
	return err
}

// Close writes what is left and gives the lock back. What is added afterwards is
// lost.
func (s *Store) Close() error {
	s.syncing.Lock()
	if s.closed.Swap(true) {
		s.syncing.Unlock()
		return errClosed
	}
	err := s.sync()
	for k, st := range s.streams {
		st.rotate()
		if st.durable() {
			s.tellFollowers(k)
		}
	}
	s.syncing.Unlock()
	close(s.done)
	s.ended.Wait()
	if keepErr := s.keep(); err == nil {
		err = keepErr
	}
	s.lock.Close()
	s.home.Load().Close()
	return err
}
