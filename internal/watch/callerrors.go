package watch

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/callerror"
	"github.com/slowray/slowray/internal/sense/host"
)

// callErrors decides when it is watched which system calls fail: at the moments
// at which system calls are watched anyhow (calls.go). A service that lacks
// something lacks it at all times.
type callErrors struct {
	watcher *callerror.Watcher // nil where there is none
	on      bool
	resting sync.WaitGroup
}

func (c *callErrors) close() {
	c.resting.Wait()
	if c.watcher != nil {
		c.watcher.Close()
	}
}

func (s *session) startErrors() {
	var err error
	if s.errors.watcher, err = callerror.Load(s.fs.Proc); err != nil {
		s.gap(observe.KindErrors, "", err)
	}
}

// sampleErrors begins or ends to watch for failing calls.
func (s *session) sampleErrors(elapsed time.Duration) {
	c := &s.errors
	on := elapsed%(callsEvery*s.opt.rarely()) < callsMoment
	switch {
	case c.watcher == nil || on == c.on:
		return
	case on:
		if err := c.watcher.Watch(); err != nil {
			s.gap(observe.KindErrors, "", err)
			c.watcher.Close()
			c.watcher = nil
			return
		}
	default:
		// The kernel takes its time, and the sampling must go on.
		c.resting.Go(c.watcher.Rest)
	}
	c.on = on
}

func (s *session) endErrors() {
	if s.errors.watcher == nil {
		return
	}
	s.errors.resting.Wait()
	list, watched, losses, err := s.errors.watcher.Read()
	if err != nil {
		s.gap(observe.KindErrors, "", err)
		return
	}
	s.out.CallErrors, s.out.ErrorSeconds = list, watched.Seconds()
	s.out.Losses = append(s.out.Losses, losses...)
}

// mountLimits are those of all that is read of mounts and memory maps at the end of a
// window: a user may make 100,000 of either, in each namespace and process of theirs.
var mountLimits = budget.Limits{Bytes: 64 << 20, Nodes: 256 << 10, Wall: 250 * time.Millisecond}

// maxMountTables bounds the processes whose mounts are looked up.
const maxMountTables = 64

// endFilesystems reads how full the file systems are that the services see, and
// on which of them system calls failed.
func (s *session) endFilesystems() {
	b := budget.New(s.ctx, mountLimits)
	tablesLeft := maxMountTables
	pids := slices.Clone(s.serving)
	tables := map[int]host.MountTable{}
	for i := range s.out.CallErrors {
		e := &s.out.CallErrors[i]
		t, known := tables[e.PID]
		if !known {
			if tablesLeft == 0 {
				continue
			}
			// Of one that ended nothing is known.
			t, _ = s.fs.MountTableOf(b.Share(2*tablesLeft), e.PID)
			tablesLeft--
			tables[e.PID] = t
			pids = append(pids, e.PID)
		}
		if e.Error == "ENOMEM" {
			s.countMaps(b.Share(8), e.PID)
		}
		m, ok := t.ByID(e.MountID)
		if !ok {
			m, ok = t.OnDevice(e.Device)
		}
		if !ok && e.Path != "" && e.Path[0] == '/' && e.Device == "" {
			m, ok = t.Of(e.Path)
		}
		if ok {
			e.Mount, e.MountNS = m.Dir, t.NS
		}
	}
	var left int
	s.out.Filesystems, left = s.fs.Filesystems(b, pids)
	s.lose("file systems that were not looked at, for there were too many", int64(left))
	if len(s.out.Filesystems) == 0 && len(pids) > 0 {
		s.out.Gaps = append(s.out.Gaps, observe.Gap{Kind: observe.KindFiles, Because: "no file system that the services see could be looked at (needs root, or CAP_SYS_PTRACE)"})
	}
}

// countMaps counts the mappings of a process that was refused memory.
func (s *session) countMaps(b *budget.Budget, pid int) {
	for i := range s.out.Processes {
		p := &s.out.Processes[i]
		if p.PID != pid || p.EndedIn || p.Maps != 0 {
			continue
		}
		n, err := s.fs.MapCount(b, pid)
		if err != nil {
			n = 0 // of those that were counted nobody knows how many they are of
			s.partialGap(observe.KindProcess, 0, fmt.Sprintf("process %d", pid), fmt.Errorf("its memory mappings could not be counted: %w", err))
		}
		p.Maps = n
	}
}
