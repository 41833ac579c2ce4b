package cause

import (
	"fmt"
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
	observe.InsideNetworkFS: NFSStalled, observe.InsideSwap: SwapThrash, observe.InsideReclaim: DirectReclaimStall,
	observe.InsideCompaction: CompactionStall, observe.InsideMapLock: MmapLockContention, observe.InsideDirectory: DirectoryLockContention,
	observe.InsideFileLock: FileWriteLock, observe.InsideCoreDump: CoreDump, observe.InsideRandom: EntropyWait, observe.InsideAudit: AuditBacklog,
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

// notYet says that an incident can be made, and that none is.
const notYet = "No incident of the lab plants it yet."

// notHere is why most of these are not planted.
const notHere = "What it takes is one for the whole host, or hardware, and would hurt everything else on it."

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
		id:        DirtyThrottled,
		title:     "Requests are slowed down in write(): more was written than the disk has taken",
		about:     "The kernel lets only so much be written that is not on a disk yet. Beyond that whoever writes is made to sleep (balance_dirty_pages), also when it is another program that wrote so much.",
		where:     "in balance_dirty_pages()",
		not:       "Dirty memory near its limit while nobody waits.",
		mend:      "Find who writes so much (the finding names the processes), have it write less or sync as it goes, and lower vm.dirty_bytes so that the disk begins earlier; or use a faster disk.",
		unplanted: notYet,
		follows:   []Parent{DiskSaturated},
		figures:   dirtyFigures,
		describe:  onStorage,
	}.cause().tried(onHost(tryMoreDirty))
	writebackThrottled = kernelWait{
		id:        WritebackThrottled,
		title:     "Requests wait because the block layer holds writes back",
		about:     "The block layer holds background writes back while reads take longer than their goal (blk-wbt), and threads that write wait for their turn.",
		where:     "in wbt_wait()",
		not:       "Throttled writes of a background program.",
		mend:      "Write less at once, or set the goal of the disk higher (/sys/block/DISK/queue/wbt_lat_usec; 0 switches it off).",
		unplanted: notHere,
		follows:   []Parent{DiskSaturated},
		describe:  onStorage,
	}.cause().tried(onHost(tryNoWriteThrottle))
	journalCommitStall = kernelWait{
		id:        JournalCommitStall,
		title:     "Requests wait for the journal of a file system to be written",
		about:     "To change anything on a file system, a place in its journal is needed. While the journal is written out, or is full, everybody who wants one waits: also for files that nobody syncs.",
		where:     "in the journal of a file system (jbd2, xfs_log, btrfs), in a call that does not sync",
		not:       "A thread in fsync(): that is fsync-bound.",
		mend:      "Find who syncs so often there, and give the file system a larger journal or one on a faster disk.",
		unplanted: notHere,
		follows:   []Parent{DiskSaturated},
		describe:  onStorage,
	}.cause()
	nfsStalled = kernelWait{
		id:        NFSStalled,
		title:     "Requests wait for the server of a network file system",
		about:     "Files of the service are on a network file system, and its server does not answer, or late. With a hard mount, calls wait without end.",
		where:     "in the client of a network file system (nfs, rpc, cifs, ceph)",
		not:       "A mount that nobody uses whose server is gone.",
		mend:      "Look at the server and at the way there; a mount with soft and timeo= fails instead of waiting without end.",
		unplanted: "No network file system can be mounted where the lab runs.",
		logged:    "nfs-not-responding",
		describe:  onNFS,
	}.cause()
	swapThrash = kernelWait{
		id:        SwapThrash,
		title:     "Requests wait for memory that was swapped out",
		about:     "Memory of the service was swapped out, and each request waits until the pages it needs have been read back.",
		where:     "for a page that is read from swap",
		not:       "Swapped memory that nobody asks for.",
		mend:      "Free memory, give the service's group more, or keep it from being swapped (memory.swap.max, mlockall).",
		unplanted: notHere,
		follows:   []Parent{MemoryPressure},
		figures:   swapFigures,
		describe:  onMemory,
	}.cause()
	directReclaimStall = kernelWait{
		id:        DirectReclaimStall,
		title:     "Requests wait while the kernel frees memory for them",
		about:     "There is no free page, and whoever needs one has to free some first: threads of the service stand in the reclaim.",
		where:     "in the reclaim of memory",
		not:       "Memory that is freed in the background (kswapd).",
		mend:      "Free memory, or have the kernel begin earlier (vm.watermark_scale_factor).",
		unplanted: notHere,
		follows:   []Parent{MemoryPressure},
		figures:   reclaimFigures,
		logged:    "page-allocation",
		describe:  onMemory,
	}.cause()
	compactionStall = kernelWait{
		id:        CompactionStall,
		title:     "Requests wait while the kernel moves memory together for large pages",
		about:     "Somebody asks for large pages, and memory is in small pieces: threads of the service stand in the compaction.",
		where:     "in the compaction of memory",
		not:       "Compaction in the background (kcompactd).",
		mend:      "Ask for large pages only where they help: set /sys/kernel/mm/transparent_hugepage/defrag to madvise or defer.",
		unplanted: notHere,
		follows:   []Parent{MemoryPressure},
		figures:   compactionFigures,
		logged:    "page-allocation",
		describe:  onMemory,
	}.cause().tried(onHost(tryFewerLargePages))
	mmapLockContention = kernelWait{
		id:        MmapLockContention,
		title:     "Requests wait for the lock of their process's memory map",
		about:     "All threads of a process share one memory map. Who maps, unmaps or faults a page in takes its lock, and one long holder (a large munmap, a fork, a reader of /proc/PID/maps or smaps) stops all.",
		where:     "for mmap_lock, by the functions that ask for it",
		not:       "A short wait for it now and then.",
		mend:      "Map less often and in larger pieces (an allocator that keeps memory: MALLOC_ARENA_MAX, jemalloc), use processes instead of threads, and do not read smaps of large processes so often.",
		unplanted: notYet,
		describe:  onMapLock,
	}.cause()
	directoryLockContention = kernelWait{
		id:        DirectoryLockContention,
		title:     "Requests wait for the lock of a directory",
		about:     "To make, delete or rename a file its directory is locked. Threads that all do so in one directory go one after the other, each as slowly as the file system is.",
		where:     "for the lock of a directory, by the functions that ask for it",
		not:       "A single listing of a large directory.",
		mend:      "Spread the files over several directories, and list large ones less often.",
		unplanted: notHere,
		follows:   []Parent{JournalCommitStall, DiskSaturated},
		describe:  onStorage,
	}.cause()
	fileWriteLock = kernelWait{
		id:        FileWriteLock,
		title:     "Requests wait for each other's writes to one file",
		about:     "Writes to one file go one after the other: the kernel locks it. One write that waits for the disk stops all others to that file, as to a common log.",
		where:     "for the lock of a file, by the functions that ask for it",
		not:       "A short wait for it now and then.",
		mend:      "Let each process write a file of its own, or gather the lines in one writer.",
		unplanted: notHere,
		follows:   []Parent{DirtyThrottled, JournalCommitStall, DiskSaturated},
		describe:  onStorage,
	}.cause()
	coreDump = kernelWait{
		id:        CoreDump,
		title:     "Requests wait while a process that crashed writes its core file",
		about:     "A process crashed, and until its memory has been written into a core file, or taken by the program in kernel.core_pattern, it neither answers nor can be started anew at its port.",
		where:     "in a core dump",
		not:       "A crash of another program.",
		mend:      "Find out why it crashed; limit what is dumped (ulimit -c, coredumpctl's ProcessSizeMax, /proc/PID/coredump_filter).",
		unplanted: notYet,
		logged:    "segfault",
	}.cause()
	entropyWait = kernelWait{
		id:        EntropyWait,
		title:     "Requests wait until the kernel has gathered entropy",
		about:     "Random numbers are asked for before the kernel has gathered enough to begin with: early after boot, on kernels before 5.6 also from /dev/random at any time.",
		where:     "in getrandom() or /dev/random",
		not:       "Calls of getrandom() that return at once.",
		mend:      "Give the machine a source of entropy (virtio-rng, haveged, jitterentropy), or a newer kernel.",
		unplanted: "Only old kernels and ones that boot do so.",
	}.cause()
	auditBacklog = kernelWait{
		id:        AuditBacklog,
		title:     "Requests wait for the audit daemon",
		about:     "Each call that an audit rule names waits until there is room in the queue to the audit daemon; when that is slow or stopped, all of them stand still.",
		where:     "for room in the queue of audit records",
		not:       "Audit records that are lost without anybody waiting.",
		mend:      "Mend auditd, write fewer rules, or let records be dropped (auditctl -b, --backlog_wait_time 0).",
		unplanted: "Audit rules are one set for the whole host.",
		logged:    "audit-backlog",
	}.cause()
	hungTask = kernelWait{
		id:        HungTask,
		title:     "Requests wait inside the kernel for something that does not come",
		about:     "Threads that should answer cannot be interrupted and make no step: a driver, a device or a lock of the kernel does not come back.",
		where:     "uninterruptible for " + nanoseconds(hungLeast) + " or longer, for nothing that has a cause of its own here",
		not:       "A background thread that is uninterruptible.",
		mend:      "The stack tells which part of the kernel it is; the kernel log has it too when it lasts two minutes.",
		unplanted: notHere,
		follows:   []Parent{DiskSaturated, MemoryPressure, ProcessStopped},
		logged:    "hung-task",
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
	case last.State == "D" && longest >= hungLeast && last.Inside != observe.InsideGroupMemory:
		return HungTask
	}
	return ""
}

// kernelWait is what differs between such causes.
type kernelWait struct {
	id                      ID
	title                   string
	about, where, not, mend string // of its page; where is what its threads were seen in
	unplanted               string
	follows                 []Parent
	figures                 func(*View) string                               // what the host as a whole tells of it; nil: nothing
	logged                  string                                           // the kernel's messages that belong to it
	describe                func(v *View, last *observe.WaitHop, f *Finding) // nil: the stack shows it
}

// cause declares it.
func (w kernelWait) cause() Cause {
	return Cause{
		ID: w.id, Title: w.title, Layer: LayerMachine, Class: ClassWait, Needs: []observe.Kind{observe.KindWaits},
		ConsequenceOf: w.follows, Folds: len(w.follows) > 0, Check: w.check,
		Doc: Doc{
			About: w.about,
			See:   []Symptom{SeeIdle, SeeWaves, SeeHang},
			Known: []string{
				"Threads that should answer were seen " + w.where + " (their stacks in the kernel, where those may be read, else the function they sleep in).",
				"That took " + percent(dominantShare) + " or more of the time of the slow requests.",
			},
			Not:  []string{w.not, "The same of a thread in the background, while no slow request was in progress."},
			Mend: w.mend, Unplanted: w.unplanted,
		},
	}
}

func (w kernelWait) check(v *View) Result {
	none, figures := "no thread that answers requests was seen to wait for that", ""
	if w.figures != nil {
		figures = w.figures(v)
		none += "; " + figures
	}
	return v.judgeRoots(w.id, none, func(r *root, f *Finding) {
		chain, last := r.example(), r.last()
		f.Subject.Path = chain.Path
		f.Evidence = append(f.Evidence, Evidence{Fact: "what is waited for", Value: strings.TrimSpace(last.Object + " " + chain.Text), Source: "/proc/PID/task/TID/stack"})
		if figures != "" {
			f.Evidence = append(f.Evidence, Evidence{Fact: "meanwhile", Value: figures, Source: "/proc/vmstat, /proc/meminfo"})
		}
		if l := v.kernelLine(w.logged); l != nil {
			f.Evidence = append(f.Evidence, Evidence{Fact: "the kernel logged", Value: l.Example, Unit: fmt.Sprintf("(%s times)", count(l.Count)), Source: "kernel log"})
		}
		f.Fix.Text = w.mend
		if w.describe != nil {
			w.describe(v, last, f)
			return
		}
		f.Fix.Commands = []shell.Command{lookAtWaits(last.Process.PID), shell.Line("cat /proc/%s/task/%s/stack", last.Process.PID, last.TID)}
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

func onStorage(v *View, last *observe.WaitHop, f *Finding) {
	f.Evidence = append(f.Evidence, v.diskEvidence()...)
	if users := v.diskUsers(); users != "" {
		f.Evidence = append(f.Evidence, Evidence{Fact: "most bytes", Value: users, Source: "/proc/PID/io"})
	}
	f.Fix.Commands = []shell.Command{lookAtWaits(last.Process.PID), shell.Line("iostat -x 1 5")}
}

func onNFS(_ *View, last *observe.WaitHop, f *Finding) {
	f.Fix.Commands = []shell.Command{shell.Line("nfsstat -m"), lookAtWaits(last.Process.PID)}
}

func onMemory(v *View, last *observe.WaitHop, f *Finding) {
	f.Evidence = append(f.Evidence, Evidence{Fact: "memory available", Value: v.Use.Memory.AvailableBytes, Limit: v.Use.Memory.TotalBytes, Unit: "bytes", Source: "/proc/meminfo"})
	f.Fix.Commands = []shell.Command{shell.Line("ps -eo pid,rss,comm --sort=-rss | head"), lookAtWaits(last.Process.PID)}
}

func onMapLock(_ *View, last *observe.WaitHop, f *Finding) {
	pid := last.Process.PID
	f.Fix.Commands = []shell.Command{lookAtWaits(pid), shell.Line("slowray flame --pid %s --off-cpu -o flame.html   # who maps and unmaps", pid)}
}
