package observe

// WaitInside is what a thread waits for inside the kernel, by the functions on
// its stack there; empty when those do not tell, or may not be read.
type WaitInside string

// What a thread can wait for inside the kernel.
const (
	InsideNetworkFS   WaitInside = "network file system"
	InsideFuse        WaitInside = "file system in user space"
	InsideDirty       WaitInside = "dirty page limit"   // balance_dirty_pages(): it wrote faster than the disk takes
	InsideWriteback   WaitInside = "writeback throttle" // the block layer holds writes back (blk-wbt)
	InsideJournal     WaitInside = "journal"            // of a file system: a commit
	InsideDisk        WaitInside = "disk"               // a block device
	InsideSwap        WaitInside = "swap"               // a page that was swapped out
	InsideReclaim     WaitInside = "memory reclaim"     // that memory is freed
	InsideGroupMemory WaitInside = "memory limit of a control group"
	InsideCompaction  WaitInside = "memory compaction"   // that memory is moved together
	InsideMapLock     WaitInside = "memory map lock"     // mmap_lock of the process
	InsideDirectory   WaitInside = "directory lock"      // i_rwsem of a directory
	InsideFileLock    WaitInside = "file write lock"     // i_rwsem of a file
	InsideFrozen      WaitInside = "frozen file system"  // that it is thawed (sb_start_write)
	InsideCoreDump    WaitInside = "core dump"           // that a core file has been written
	InsideRandom      WaitInside = "random numbers"      // that the kernel has gathered entropy
	InsideAudit       WaitInside = "audit"               // that the audit daemon reads
	InsideLock        WaitInside = "another kernel lock" // of which it is not known what it guards
)
