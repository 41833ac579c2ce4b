package watch

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

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
	// Of processes that ended while it looked no file system is known, whoever looks.
	if len(s.out.Filesystems) == 0 && len(s.serving) > 0 {
		s.gap(observe.KindFiles, "", errors.New("no file system that the services see could be looked at (needs root, or CAP_SYS_PTRACE)"))
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
