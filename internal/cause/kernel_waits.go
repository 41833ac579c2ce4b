package cause

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// kernelWaits says which cause it is when requests wait for a thing inside the
// kernel: storage that is not the disk itself, memory, a lock of the kernel.
// Like all causes of waits they are found by the time that slow requests lose
// so. What is not here is blocked-on-disk where it is storage, else hung-task
// where it lasts.
var kernelWaits = map[observe.WaitInside]ID{
	observe.InsideDirty: DirtyThrottled, observe.InsideWriteback: WritebackThrottled, observe.InsideJournal: JournalCommitStall,
	observe.InsideNetworkFS: NFSStalled, observe.InsideSwap: SwapThrash, observe.InsideReclaim: DirectReclaimStall, observe.InsideGroupMemory: DirectReclaimStall,
	observe.InsideCompaction: CompactionStall, observe.InsideMapLock: MmapLockContention, observe.InsideDirectory: DirectoryLockContention,
	observe.InsideFileLock: FileWriteLock, observe.InsideCoreDump: CoreDump, observe.InsideRandom: EntropyWait, observe.InsideAudit: AuditBacklog,
	observe.InsideFrozen: HungTask,
}

// isKernelWait says whether a cause is one of those, or hung-task.
func isKernelWait(id ID) bool {
	for _, one := range kernelWaits {
		if one == id {
			return true
		}
	}
	return id == HungTask
}

const (
	DirtyThrottled          ID = "dirty-throttled"
	WritebackThrottled      ID = "writeback-throttled"
	JournalCommitStall      ID = "journal-commit-stall"
	NFSStalled              ID = "nfs-stalled"
	SwapThrash              ID = "swap-thrash"
	DirectReclaimStall      ID = "direct-reclaim-stall"
	CompactionStall         ID = "compaction-stall"
	MmapLockContention      ID = "mmap-lock-contention"
	DirectoryLockContention ID = "directory-lock-contention"
	FileWriteLock           ID = "file-write-lock"
	CoreDump                ID = "core-dump"
	EntropyWait             ID = "entropy-wait"
	AuditBacklog            ID = "audit-backlog"
	HungTask                ID = "hung-task"
)

var (
	dirtyThrottled = kernelWait{
		id:       DirtyThrottled,
		title:    "write() is throttled by dirty page limits",
		follows:  []Parent{DiskSaturated},
		figures:  dirtyFigures,
		describe: onStorage,
	}.cause().tried(onHost(tryMoreDirty))
	writebackThrottled = kernelWait{
		id:       WritebackThrottled,
		title:    "Requests wait because the block layer holds writes back",
		follows:  []Parent{DiskSaturated},
		describe: onStorage,
	}.cause().tried(onHost(tryNoWriteThrottle))
	journalCommitStall = kernelWait{
		id:       JournalCommitStall,
		title:    "Requests wait for a file system's journal commit",
		follows:  []Parent{DiskSaturated},
		describe: onStorage,
	}.cause()
	nfsStalled = kernelWait{
		id:       NFSStalled,
		title:    "The NFS server does not answer",
		logged:   "nfs-not-responding",
		describe: onNFS,
	}.cause()
	swapThrash = kernelWait{
		id:       SwapThrash,
		title:    "Requests wait for memory that was swapped out",
		follows:  []Parent{MemoryPressure},
		figures:  swapFigures,
		describe: onMemory,
	}.cause().tried(inGroups((*View).moreMemory))
	directReclaimStall = kernelWait{
		id:       DirectReclaimStall,
		title:    "Requests wait while the kernel frees memory for them",
		follows:  []Parent{MemoryPressure, PageCacheThrash, MemoryHighThrottled, JVMHeapOverLimit, ContainerOOMKilled},
		figures:  reclaimFigures,
		logged:   "page-allocation",
		describe: onMemory,
	}.cause().tried(inGroups((*View).moreMemory))
	compactionStall = kernelWait{
		id:       CompactionStall,
		title:    "Memory compaction for huge pages stalls requests",
		follows:  []Parent{MemoryPressure},
		figures:  compactionFigures,
		logged:   "page-allocation",
		describe: onMemory,
	}.cause().tried(onHost(tryFewerLargePages))
	mmapLockContention = kernelWait{
		id:       MmapLockContention,
		title:    "Contention on mmap_lock",
		describe: onMapLock,
	}.cause()
	directoryLockContention = kernelWait{
		id:       DirectoryLockContention,
		title:    "Requests wait for the lock of a directory",
		follows:  []Parent{JournalCommitStall, DiskSaturated},
		describe: onStorage,
	}.cause()
	fileWriteLock = kernelWait{
		id:       FileWriteLock,
		title:    "Requests wait for each other's writes to one file",
		follows:  []Parent{DirtyThrottled, JournalCommitStall, DiskSaturated},
		describe: onStorage,
	}.cause()
	coreDump = kernelWait{
		id:     CoreDump,
		title:  "A crashed process writes its core dump",
		logged: "segfault",
	}.cause()
	entropyWait = kernelWait{
		id:    EntropyWait,
		title: "Requests wait until the kernel has gathered entropy",
	}.cause()
	auditBacklog = kernelWait{
		id:     AuditBacklog,
		title:  "Requests wait for the audit daemon",
		logged: "audit-backlog",
	}.cause()
	hungTask = kernelWait{
		id:      HungTask,
		title:   "Threads hang in uninterruptible sleep (D state)",
		follows: []Parent{DiskSaturated, MemoryPressure, ProcessStopped},
		logged:  "hung-task",
		describe: func(_ *View, r *root, f *Finding) {
			last := r.last()
			f.Fix.Commands = []shell.Command{lookAtWaits(last.Process.PID), shell.Line("cat /proc/%s/task/%s/stack", last.Process.PID, last.TID)}
			if last.Inside == observe.InsideFrozen {
				f.Title = "A file system is frozen (fsfreeze)"
				f.Fix.Text = "Find what froze it (a snapshot, a backup, a hypervisor's guest agent), and have it thaw at once, or take snapshots when few write."
				f.Fix.Commands = append(f.Fix.Commands, shell.Line("ps -eo pid,etimes,args | grep -e '[f]sfreeze' -e '[s]napshot' -e '[q]emu-ga'"), shell.Line("findmnt -lo TARGET,SOURCE,FSTYPE"), shell.Line("fsfreeze --unfreeze MOUNTPOINT   # where it was forgotten"))
			}
		},
	}.cause()
)

// blameKernel is blame for a chain that ends inside the kernel.
func blameKernel(c *observe.WaitChain, longest int64) ID {
	last := &c.Hops[len(c.Hops)-1]
	if isSync(last.Syscall) && c.End != observe.EndFuse && last.Inside != observe.InsideNetworkFS {
		return FsyncBound
	}
	if id := kernelWaits[last.Inside]; id != "" {
		return id
	}
	switch {
	case c.End == observe.EndDisk, c.End == observe.EndFuse:
		return BlockedOnDisk
	case last.State == "D" && longest >= hungLeast:
		return HungTask
	}
	return ""
}

// swapsIn says that who waits for room in its control group swaps: what it had to make
// room for is what it reads back.
func (v *View) swapsIn(c *observe.WaitChain) bool {
	return c.Hops[len(c.Hops)-1].Inside == observe.InsideGroupMemory && float64(v.Use.VM["pswpin"]) >= refaultRate*v.Window.Seconds
}

// kernelWait is what differs between such causes.
type kernelWait struct {
	id       ID
	title    string
	follows  []Parent
	figures  func(*View) string                 // what the host as a whole tells of it; nil: nothing
	logged   string                             // the kernel's messages that belong to it
	describe func(v *View, r *root, f *Finding) // nil: the stack shows it
}

// cause declares it.
func (w kernelWait) cause() Cause {
	return Cause{
		ID: w.id, Title: w.title, Layer: LayerMachine, Class: ClassWait, Needs: []observe.Kind{observe.KindWaits},
		ConsequenceOf: w.follows, Folds: len(w.follows) > 0, Check: w.check,
	}
}

func (w kernelWait) check(v *View) Result {
	none, figures := "no thread that answers requests was seen to wait for that", ""
	if w.figures != nil {
		figures = w.figures(v)
		none += "; " + figures
	}
	return v.judgeRoots(w.id, none, func(r *root, f *Finding) {
		chain, waiter := r.example(), r.blamed()
		text := chain.Text
		if r.at < len(chain.Hops)-1 {
			text = "for the " + string(waiter.Inside)
		}
		f.Subject.Path = chain.Path
		f.Evidence = append(f.Evidence, Evidence{Fact: "what is waited for", Value: strings.TrimSpace(waiter.Object + " " + text), Source: "/proc/PID/task/TID/stack"})
		if figures != "" {
			f.Evidence = append(f.Evidence, Evidence{Fact: "meanwhile", Value: figures, Source: "/proc/vmstat, /proc/meminfo"})
		}
		if l := v.kernelLine(w.logged); l != nil {
			f.Evidence = append(f.Evidence, Evidence{Fact: "the kernel logged", Value: l.Example, Unit: fmt.Sprintf("(%s times)", count(l.Count)), Source: "kernel log"})
		}
		f.Fix.Text = MustPage(w.id).Fix
		if w.describe != nil {
			w.describe(v, r, f)
			return
		}
		f.Fix.Commands = []shell.Command{lookAtWaits(waiter.Process.PID), shell.Line("cat /proc/%s/task/%s/stack", waiter.Process.PID, waiter.TID)}
	})
}

// vmCount adds up counters of /proc/vmstat.
func (v *View) vmCount(names ...string) string {
	var n uint64
	for _, name := range names {
		n += v.Use.VM[name]
	}
	return count(n)
}

func dirtyFigures(v *View) string {
	m := &v.Use.Memory
	return fmt.Sprintf("%d MB are written and not on a disk yet", (m.DirtyBytes+m.WritebackBytes)>>20)
}

func swapFigures(v *View) string {
	return fmt.Sprintf("%s pages were swapped in and %s out", v.vmCount("pswpin"), v.vmCount("pswpout"))
}

func reclaimFigures(v *View) string {
	return fmt.Sprintf("memory was freed by who needed it %s times", v.vmCount("allocstall_normal", "allocstall_movable", "allocstall_dma32", "allocstall_dma"))
}

func compactionFigures(v *View) string {
	return fmt.Sprintf("there were %s stalls for compaction", v.vmCount("compact_stall"))
}

func onStorage(v *View, r *root, f *Finding) {
	f.Evidence = append(f.Evidence, v.diskEvidence(r.store())...)
	if users := v.diskUsers(r.store()); users != "" {
		f.Evidence = append(f.Evidence, Evidence{Fact: "most bytes", Value: users, Source: "/proc/PID/io"})
	}
	f.Fix.Commands = []shell.Command{lookAtWaits(r.last().Process.PID), shell.Line("iostat -x 1 5")}
}

func onNFS(_ *View, r *root, f *Finding) {
	f.Fix.Commands = []shell.Command{shell.Line("nfsstat -m"), lookAtWaits(r.last().Process.PID)}
}

func onMemory(v *View, r *root, f *Finding) {
	pid := r.last().Process.PID
	if c := v.groupAtLimit(pid); c != nil {
		h, want := v.holderOfGroup(c), 2*c.MemoryLimitBytes
		f.Subject.Kind, f.Subject.Path = "cgroup", c.Path
		f.Evidence = append(f.Evidence, memoryEvidence("memory of "+h.text, c.MemoryUsedBytes, c.MemoryLimitBytes, "memory.current, memory.usage_in_bytes"),
			memoryEvidence("memory of the machine available", v.Use.Memory.AvailableBytes, v.Use.Memory.TotalBytes, "/proc/meminfo"))
		f.Fix.Text = fmt.Sprintf("Raise the memory limit of %s (%s): what its requests use does not fit.%s", h.text, byteText(c.MemoryLimitBytes), h.setsWhere())
		h.raise(&f.Fix, c.MemoryFile, utoa(want), memorySetting(want))
		return
	}
	f.Evidence = append(f.Evidence, Evidence{Fact: "memory available", Value: v.Use.Memory.AvailableBytes, Limit: v.Use.Memory.TotalBytes, Unit: "bytes", Source: "/proc/meminfo"})
	f.Fix.Commands = []shell.Command{shell.Line("ps -eo pid,rss,comm --sort=-rss | head"), lookAtWaits(pid)}
}

// groupAtLimit is the control group of a process that is at its memory limit; nil when
// none is.
func (v *View) groupAtLimit(pid int) *observe.Cgroup {
	for _, c := range v.groupsAt(slices.Clone(v.groups[pid])) {
		if c.MemoryLimitBytes > 0 && ratio(c.MemoryUsedBytes, c.MemoryLimitBytes) >= nearLimit {
			return c
		}
	}
	return nil
}
