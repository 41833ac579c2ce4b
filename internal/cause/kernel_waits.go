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
	dirtyThrottled = kernelWait(DirtyThrottled, "Requests are slowed down in write(): more was written than the disk has taken",
		"The kernel lets only so much be written that is not on a disk yet. Beyond that whoever writes is made to sleep (balance_dirty_pages), also when it is another program that wrote so much.",
		"in balance_dirty_pages()", "Dirty memory near its limit while nobody waits.",
		"Find who writes so much (the finding names the processes), have it write less or sync as it goes, and lower vm.dirty_bytes so that the disk begins earlier; or use a faster disk.", notYet, DiskSaturated).tried(onHost(tryMoreDirty))
	writebackThrottled = kernelWait(WritebackThrottled, "Requests wait because the block layer holds writes back",
		"The block layer holds background writes back while reads take longer than their goal (blk-wbt), and threads that write wait for their turn.",
		"in wbt_wait()", "Throttled writes of a background program.",
		"Write less at once, or set the goal of the disk higher (/sys/block/DISK/queue/wbt_lat_usec; 0 switches it off).", notHere, DiskSaturated).tried(onHost(tryNoWriteThrottle))
	journalCommitStall = kernelWait(JournalCommitStall, "Requests wait for the journal of a file system to be written",
		"To change anything on a file system, a place in its journal is needed. While the journal is written out, or is full, everybody who wants one waits: also for files that nobody syncs.",
		"in the journal of a file system (jbd2, xfs_log, btrfs), in a call that does not sync", "A thread in fsync(): that is fsync-bound.",
		"Find who syncs so often there, and give the file system a larger journal or one on a faster disk.", notHere, DiskSaturated)
	nfsStalled = kernelWait(NFSStalled, "Requests wait for the server of a network file system",
		"Files of the service are on a network file system, and its server does not answer, or late. With a hard mount, calls wait without end.",
		"in the client of a network file system (nfs, rpc, cifs, ceph)", "A mount that nobody uses whose server is gone.",
		"Look at the server and at the way there; a mount with soft and timeo= fails instead of waiting without end.", "No network file system can be mounted where the lab runs.")
	swapThrash = kernelWait(SwapThrash, "Requests wait for memory that was swapped out",
		"Memory of the service was swapped out, and each request waits until the pages it needs have been read back.",
		"for a page that is read from swap", "Swapped memory that nobody asks for.",
		"Free memory, give the service's group more, or keep it from being swapped (memory.swap.max, mlockall).", notHere, MemoryPressure)
	directReclaimStall = kernelWait(DirectReclaimStall, "Requests wait while the kernel frees memory for them",
		"There is no free page, and whoever needs one has to free some first: threads of the service stand in the reclaim.",
		"in the reclaim of memory", "Memory that is freed in the background (kswapd).",
		"Free memory, or have the kernel begin earlier (vm.watermark_scale_factor).", notHere, MemoryPressure)
	compactionStall = kernelWait(CompactionStall, "Requests wait while the kernel moves memory together for large pages",
		"Somebody asks for large pages, and memory is in small pieces: threads of the service stand in the compaction.",
		"in the compaction of memory", "Compaction in the background (kcompactd).",
		"Ask for large pages only where they help: set /sys/kernel/mm/transparent_hugepage/defrag to madvise or defer.", notHere, MemoryPressure).tried(onHost(tryFewerLargePages))
	mmapLockContention = kernelWait(MmapLockContention, "Requests wait for the lock of their process's memory map",
		"All threads of a process share one memory map. Who maps, unmaps or faults a page in takes its lock, and one long holder (a large munmap, a fork, a reader of /proc/PID/maps or smaps) stops all.",
		"for mmap_lock, by the functions that ask for it", "A short wait for it now and then.",
		"Map less often and in larger pieces (an allocator that keeps memory: MALLOC_ARENA_MAX, jemalloc), use processes instead of threads, and do not read smaps of large processes so often.", notYet)
	directoryLockContention = kernelWait(DirectoryLockContention, "Requests wait for the lock of a directory",
		"To make, delete or rename a file its directory is locked. Threads that all do so in one directory go one after the other, each as slowly as the file system is.",
		"for the lock of a directory, by the functions that ask for it", "A single listing of a large directory.",
		"Spread the files over several directories, and list large ones less often.", notHere, JournalCommitStall, DiskSaturated)
	fileWriteLock = kernelWait(FileWriteLock, "Requests wait for each other's writes to one file",
		"Writes to one file go one after the other: the kernel locks it. One write that waits for the disk stops all others to that file, as to a common log.",
		"for the lock of a file, by the functions that ask for it", "A short wait for it now and then.",
		"Let each process write a file of its own, or gather the lines in one writer.", notHere, DirtyThrottled, JournalCommitStall, DiskSaturated)
	coreDump = kernelWait(CoreDump, "Requests wait while a process that crashed writes its core file",
		"A process crashed, and until its memory has been written into a core file, or taken by the program in kernel.core_pattern, it neither answers nor can be started anew at its port.",
		"in a core dump", "A crash of another program.",
		"Find out why it crashed; limit what is dumped (ulimit -c, coredumpctl's ProcessSizeMax, /proc/PID/coredump_filter).", notYet)
	entropyWait = kernelWait(EntropyWait, "Requests wait until the kernel has gathered entropy",
		"Random numbers are asked for before the kernel has gathered enough to begin with: early after boot, on kernels before 5.6 also from /dev/random at any time.",
		"in getrandom() or /dev/random", "Calls of getrandom() that return at once.",
		"Give the machine a source of entropy (virtio-rng, haveged, jitterentropy), or a newer kernel.", "Only old kernels and ones that boot do so.")
	auditBacklog = kernelWait(AuditBacklog, "Requests wait for the audit daemon",
		"Each call that an audit rule names waits until there is room in the queue to the audit daemon; when that is slow or stopped, all of them stand still.",
		"for room in the queue of audit records", "Audit records that are lost without anybody waiting.",
		"Mend auditd, write fewer rules, or let records be dropped (auditctl -b, --backlog_wait_time 0).", "Audit rules are one set for the whole host.")
	hungTask = kernelWait(HungTask, "Requests wait inside the kernel for something that does not come",
		"Threads that should answer cannot be interrupted and make no step: a driver, a device or a lock of the kernel does not come back.",
		"uninterruptible for "+nanoseconds(hungLeast)+" or longer, for nothing that has a cause of its own here", "A background thread that is uninterruptible.",
		"The stack tells which part of the kernel it is; the kernel log has it too when it lasts two minutes.", notHere, DiskSaturated, MemoryPressure, ProcessStopped)
)

// kernelWait declares such a cause; follows are those that it may follow from.
func kernelWait(id ID, title, about, where, not, mend, unplanted string, follows ...Parent) Cause {
	return Cause{
		ID: id, Title: title, Layer: LayerMachine, Class: ClassWait, Needs: []observe.Kind{observe.KindWaits}, ConsequenceOf: follows, Folds: len(follows) > 0,
		Check: func(v *View) Result { return v.checkKernelWait(id, mend) },
		Doc: Doc{
			About: about,
			See:   []Symptom{SeeIdle, SeeWaves, SeeHang},
			Known: []string{
				"Threads that should answer were seen " + where + " (their stacks in the kernel, where those may be read, else the function they sleep in).",
				"That took " + percent(dominantShare) + " or more of the time of the slow requests.",
			},
			Not:  []string{not, "The same of a thread in the background, while no slow request was in progress."},
			Mend: mend, Unplanted: unplanted,
		},
	}
}

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

// kernelFigures is what the host as a whole tells of such a wait.
func (v *View) kernelFigures(id ID) string {
	m := &v.Use.Memory
	vm := func(names ...string) (n uint64) {
		for _, name := range names {
			n += v.Use.VM[name]
		}
		return n
	}
	switch id {
	case DirtyThrottled:
		return fmt.Sprintf("; %d MB are written and not on a disk yet", (m.DirtyBytes+m.WritebackBytes)>>20)
	case SwapThrash:
		return fmt.Sprintf("; %s pages were swapped in and %s out", count(vm("pswpin")), count(vm("pswpout")))
	case DirectReclaimStall:
		return fmt.Sprintf("; memory was freed by who needed it %s times", count(vm("allocstall_normal", "allocstall_movable", "allocstall_dma32", "allocstall_dma")))
	case CompactionStall:
		return fmt.Sprintf("; there were %s stalls for compaction", count(vm("compact_stall")))
	}
	return ""
}

// kernelKinds are the messages of the kernel that belong to a wait.
var kernelKinds = map[ID]string{
	NFSStalled: "nfs-not-responding", HungTask: "hung-task", AuditBacklog: "audit-backlog", CoreDump: "segfault",
	DirectReclaimStall: "page-allocation", CompactionStall: "page-allocation",
}

func (v *View) checkKernelWait(id ID, mend string) Result {
	return v.judgeRoots(id, "no thread that answers requests was seen to wait for that"+v.kernelFigures(id), func(r *root, f *Finding) {
		v.describeKernelWait(id, mend, r, f)
	})
}

func (v *View) describeKernelWait(id ID, mend string, r *root, f *Finding) {
	chain, last := r.example(), r.last()
	f.Subject.Path = chain.Path
	f.Evidence = append(f.Evidence, Evidence{Fact: "what is waited for", Value: strings.TrimSpace(last.Object + " " + chain.Text), Source: "/proc/PID/task/TID/stack"})
	if figures := strings.TrimPrefix(v.kernelFigures(id), "; "); figures != "" {
		f.Evidence = append(f.Evidence, Evidence{Fact: "meanwhile", Value: figures, Source: "/proc/vmstat, /proc/meminfo"})
	}
	if l := v.kernelLine(kernelKinds[id]); l != nil {
		f.Evidence = append(f.Evidence, Evidence{Fact: "the kernel logged", Value: l.Example, Unit: fmt.Sprintf("(%s times)", count(l.Count)), Source: "kernel log"})
	}
	f.Fix.Text = mend
	pid := last.Process.PID
	look := lookAtWaits(pid)
	switch id {
	case DirtyThrottled, WritebackThrottled, JournalCommitStall, DirectoryLockContention, FileWriteLock:
		f.Evidence = append(f.Evidence, v.diskEvidence()...)
		if users := v.diskUsers(); users != "" {
			f.Evidence = append(f.Evidence, Evidence{Fact: "most bytes", Value: users, Source: "/proc/PID/io"})
		}
		f.Fix.Commands = []shell.Command{look, shell.Line("iostat -x 1 5")}
	case NFSStalled:
		f.Fix.Commands = []shell.Command{shell.Line("nfsstat -m"), look}
	case SwapThrash, DirectReclaimStall, CompactionStall:
		f.Evidence = append(f.Evidence, Evidence{Fact: "memory available", Value: v.Use.Memory.AvailableBytes, Limit: v.Use.Memory.TotalBytes, Unit: "bytes", Source: "/proc/meminfo"})
		f.Fix.Commands = []shell.Command{shell.Line("ps -eo pid,rss,comm --sort=-rss | head"), look}
	case MmapLockContention:
		f.Fix.Commands = []shell.Command{look, shell.Line("slowray flame --pid %s --off-cpu -o flame.html   # who maps and unmaps", pid)}
	default:
		f.Fix.Commands = []shell.Command{look, shell.Line("cat /proc/%s/task/%s/stack", pid, last.TID)}
	}
}
