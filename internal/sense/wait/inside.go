package wait

import (
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// finer is functions that tell kinds of waits apart further, since 4.x: the
// first entry with a function on the stack counts. Locks are known by who asks
// for them.
var finer = []struct {
	what     observe.WaitInside
	of       []inside // the kinds that it makes finer
	prefixes []string
}{
	{observe.InsideCoreDump, nil, []string{"do_coredump", "vfs_coredump", "coredump_wait", "coredump_task_exit", "dump_emit", "elf_core_dump"}},
	{observe.InsideRandom, nil, []string{"wait_for_random_bytes"}},
	{observe.InsideAudit, nil, []string{"wait_for_auditd", "audit_log_start"}},
	{observe.InsideGroupMemory, []inside{insideMemory}, []string{"try_charge", "mem_cgroup_", "__mem_cgroup", "charge_memcg", "obj_cgroup_charge"}},
	{observe.InsideCompaction, []inside{insideMemory}, []string{"compact_zone", "try_to_compact_pages", "__alloc_pages_direct_compact", "isolate_migratepages"}},
	{observe.InsideSwap, []inside{insideMemory, insideDisk}, []string{"do_swap_page", "swap_read", "swapin_", "read_swap_cache", "__read_swap_cache", "shmem_swapin"}},
	{observe.InsideWriteback, []inside{insideDisk}, []string{"wbt_wait"}},
	{observe.InsideFrozen, []inside{insideLock}, []string{"percpu_rwsem_wait", "__percpu_down_read"}},
	{observe.InsideMapLock, []inside{insideLock}, []string{
		"lock_mm_and_find_vma", "mmap_read_lock", "mmap_write_lock", "vm_mmap_pgoff", "vm_munmap", "__vm_munmap", "do_mprotect_pkey", "__do_sys_brk", "do_brk",
		"do_madvise", "madvise_", "do_user_addr_fault", "exc_page_fault", "asm_exc_page_fault", "do_page_fault", "do_mlock", "__mm_populate", "get_user_pages",
		"exit_mm", "dup_mm", "dup_mmap", "__do_sys_mremap", "__x64_sys_mremap", "__arm64_sys_mremap", "__access_remote_vm", "m_start", "proc_get_vma", "ksm_", "khugepaged"}},
	{observe.InsideDirectory, []inside{insideLock}, []string{
		"open_last_lookups", "path_openat", "do_unlinkat", "do_renameat2", "lock_rename", "filename_create", "iterate_dir", "lookup_slow", "__lookup_slow",
		"do_rmdir", "do_mkdirat", "vfs_unlink", "vfs_rename", "walk_component", "path_lookupat", "lookup_one"}},
	{observe.InsideFileLock, []inside{insideLock}, []string{
		"ext4_file_write_iter", "ext4_buffered_write_iter", "ext4_dio_write_iter", "ext4_file_read_iter", "xfs_file_", "xfs_ilock", "btrfs_file_write_iter", "btrfs_buffered_write",
		"generic_file_write_iter", "shmem_file_write_iter", "do_truncate", "vfs_fallocate", "vfs_write", "inode_lock"}},
}

// asksForLock says that a function itself sleeps for nothing but a lock.
func asksForLock(function string) bool {
	for i := range finer {
		if slices.Contains(finer[i].of, insideLock) && slices.ContainsFunc(finer[i].prefixes, func(p string) bool { return strings.HasPrefix(function, p) }) {
			return true
		}
	}
	return false
}

// broad is what the kinds are called that nothing makes finer.
var broad = map[inside]observe.WaitInside{
	insideNetworkFS: observe.InsideNetworkFS, insideFuse: observe.InsideFuse, insideThrottle: observe.InsideDirty, insideJournal: observe.InsideJournal,
	insideDisk: observe.InsideDisk, insideMemory: observe.InsideReclaim, insideLock: observe.InsideLock,
}

// insideWhat names what a thread waits for inside the kernel.
func insideWhat(kind inside, functions []string) observe.WaitInside {
	for i := range finer {
		f := &finer[i]
		if len(f.of) > 0 && !slices.Contains(f.of, kind) {
			continue
		}
		for _, function := range functions {
			if slices.ContainsFunc(f.prefixes, func(p string) bool { return strings.HasPrefix(function, p) }) {
				return f.what
			}
		}
	}
	return broad[kind]
}
