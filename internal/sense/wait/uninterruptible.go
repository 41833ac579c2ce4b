package wait

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/sense/host"
)

// inside is what a thread does in the kernel, by the functions on its stack.
type inside int

const (
	insideUnknown inside = iota
	insideNetworkFS
	insideFuse
	insideThrottle
	insideMemory
	insideJournal
	insideDisk
	insideLock
	insideVfork
	insideTimer
	insidePoll
	insideFutex
)

// kernelFunctions is prefixes of functions that threads sleep in, over the
// versions since 4.x, the more telling kinds first: a thread in the journal of
// a file system sleeps in a general function too.
var kernelFunctions = []struct {
	kind     inside
	prefixes []string
}{
	{insideNetworkFS, []string{"nfs", "__nfs", "rpc_", "__rpc_", "cifs_", "smb2_", "SMB2_", "smb_", "ceph_", "afs_", "v9fs_", "p9_"}},
	{insideFuse, []string{"fuse_", "__fuse", "request_wait_answer"}},
	{insideVfork, []string{"wait_for_vfork_done"}},
	{insideThrottle, []string{"balance_dirty_pages"}},
	{insideMemory, []string{"shrink_", "do_try_to_free_pages", "try_to_free_", "try_charge", "mem_cgroup_", "__mem_cgroup", "compact_zone", "throttle_direct_reclaim", "reclaim_throttle", "do_swap_page", "swap_", "oom_kill"}},
	{insideJournal, []string{"jbd2_", "start_this_handle", "wait_transaction_locked", "add_transaction_credits", "do_get_write_access", "xlog_", "xfs_log_", "btrfs_commit", "wait_current_trans", "f2fs_issue_checkpoint"}},
	{insideDisk, []string{"io_schedule", "blk_", "__blk", "blkdev_", "wait_on_page", "folio_wait", "__folio_lock", "__lock_page", "bit_wait_io", "submit_bio", "submit_bh", "wait_on_buffer", "__wait_on_buffer", "do_blockdev_direct_IO", "iomap_dio", "__iomap_dio", "filemap_", "__filemap", "wait_on_page_writeback", "rq_qos_wait", "wbt_wait", "get_request", "md_", "dm_", "ext4_", "xfs_", "btrfs_", "f2fs_", "nvme", "scsi", "sync_inodes", "wb_wait", "writeback_", "__writeback"}},
	{insideLock, []string{"rwsem_down", "__mutex_lock", "mutex_lock", "__down", "down_", "percpu_rwsem", "__percpu", "rtnl_lock", "__lock_sock", "lock_sock", "synchronize_", "wait_rcu"}},
	{insideTimer, []string{"hrtimer_nanosleep", "do_nanosleep", "common_nsleep"}},
	{insidePoll, []string{"do_sys_poll", "do_poll", "poll_schedule_timeout", "do_select", "ep_poll", "core_sys_select"}},
	{insideFutex, []string{"futex_", "__futex"}},
}

// insideOf finds the most telling function of a stack. Who waits for a lock
// waits for that, whatever it was going to do. The functions of locks themselves are
// left out of stacks (stack_trace_consume_entry_nosched, kernel/stacktrace.c): who
// asks for one stands first.
func insideOf(functions []string) (inside, string) {
	if len(functions) > 0 && asksForLock(functions[0]) {
		return insideLock, functions[0]
	}
	for _, f := range functions[:min(len(functions), 2)] {
		if strings.HasPrefix(f, "rwsem_down") || strings.HasPrefix(f, "__mutex_lock") || strings.HasPrefix(f, "mutex_lock") {
			return insideLock, f
		}
	}
	for _, k := range kernelFunctions {
		for _, f := range functions {
			for _, prefix := range k.prefixes {
				if strings.HasPrefix(f, prefix) {
					return k.kind, f
				}
			}
		}
	}
	return insideUnknown, ""
}

// functions is where a thread sleeps in the kernel: its stack where that may be
// read (CAP_SYS_ADMIN), else the one function of wchan.
func (l *look) functions(t *thread) []string {
	wchan := l.wchanOf(t)
	b, err := os.ReadFile(l.path(t, "stack"))
	if stack := parseStack(b); err == nil && len(stack) > 0 {
		return stack
	}
	if wchan == "" {
		return nil
	}
	return []string{wchan}
}

// parseStack reads /proc/PID/stack: lines "[<0>] function+0x1/0x2".
func parseStack(b []byte) []string {
	var out []string
	for line := range strings.Lines(string(b)) {
		_, f, ok := strings.Cut(line, "] ")
		if !ok {
			continue
		}
		f, _, _ = strings.Cut(strings.TrimSpace(f), "+")
		if f != "" && len(out) < 64 {
			out = append(out, printable.Name(f, 128))
		}
	}
	return out
}

// inKernel is the wait of a thread that no other thread's call ends: for
// storage, for memory, for a lock inside the kernel.
func (l *look) inKernel(t *thread, o object) *link {
	functions := l.functions(t)
	kind, function := insideOf(functions)
	mount, onMount := l.mountOf(t, o)
	if kind != insideVfork && kind != insideNetworkFS && kind != insideFuse && onMount {
		switch {
		case strings.HasPrefix(mount.Type, "fuse"):
			kind = insideFuse
		case strings.HasPrefix(mount.Type, "nfs"), mount.Type == "cifs", mount.Type == "smb3", mount.Type == "ceph", mount.Type == "9p":
			kind = insideNetworkFS
		}
	}
	k := l.kernelLink(t, kind, function)
	k.inside = insideWhat(kind, functions)
	if k.inside == observe.InsideFrozen {
		// Other locks of that kind are held for moments; this one is taken for as long
		// as a file system is frozen (freeze_super, fs/super.c).
		if slices.ContainsFunc(functions, func(f string) bool {
			return strings.HasPrefix(f, "mnt_want_write") || strings.Contains(f, "start_write") || strings.Contains(f, "write_iter") || f == "vfs_write" || strings.Contains(f, "path_openat") || strings.HasPrefix(f, "do_unlinkat")
		}) {
			k.text = "waits until the file system is thawed that somebody has frozen (fsfreeze, a snapshot)"
		} else {
			k.inside = observe.InsideLock
		}
	}
	if o.kind != noObject {
		k.object = o.String()
		k.extra = mount.Dir
	}
	if onMount {
		k.object += fmt.Sprintf(" (%s on %s)", printable.Name(mount.Type, 64), printable.Name(mount.Source, 256))
		if k.end == observe.EndDisk || k.end == observe.EndFuse {
			k.path = printable.Name(mount.Dir, 1024)
		}
	}
	if kind == insideFuse {
		l.fuseServer(k)
	}
	return k
}

// kernelLink is the wait of a thread inside the kernel in words.
func (l *look) kernelLink(t *thread, kind inside, function string) *link {
	switch kind {
	case insideNetworkFS:
		return ends(observe.WaitDisk, observe.EndDisk, "waits for the server of a network file system (%s)", nameOr(function, l.wchanOf(t)))
	case insideFuse:
		return ends(observe.WaitFuse, observe.EndFuse, "waits for a file system's server in user space (FUSE); which process that is cannot be read")
	case insideThrottle:
		return ends(observe.WaitDisk, observe.EndDisk, "is slowed down by the kernel: more was written than the disk has taken (balance_dirty_pages)")
	case insideMemory:
		return ends(observe.WaitKernel, observe.EndKernel, "waits for memory to be freed or swapped in (%s)", function)
	case insideJournal:
		return ends(observe.WaitDisk, observe.EndDisk, "waits for the file system's journal to reach the disk (%s)", function)
	case insideDisk:
		return ends(observe.WaitDisk, observe.EndDisk, "waits for the disk (%s)", function)
	case insideVfork:
		return l.forked(t)
	}
	where := nameOr(function, l.wchanOf(t))
	switch {
	case t.p.kernel:
		return ends(observe.WaitEpoll, observe.EndIdle, "a kernel thread without work")
	case t.state != 'D':
		return ends(observe.WaitUnknown, observe.EndUnseen, "sleeps in %s, which is not followed", where)
	case kind == insideLock:
		return ends(observe.WaitKernel, observe.EndKernel, "waits for a lock inside the kernel (%s); its holder is not told", where)
	}
	return ends(observe.WaitKernel, observe.EndKernel, "cannot be interrupted inside the kernel (%s)", where)
}

// nameOr is the first that is known.
func nameOr(names ...string) string {
	for _, name := range names {
		if name != "" {
			return name
		}
	}
	return "a function that may not be seen"
}

// mountOf is the mount that a file lies on.
func (l *look) mountOf(t *thread, o object) (host.Mount, bool) {
	if o.kind != fileObject {
		return host.Mount{}, false
	}
	id, ok := host.ParseSmall(keyed(l.fdInfo(t.p.pid, o.fd), "mnt_id:"))
	if !ok {
		return host.Mount{}, false
	}
	return l.fs.MountOf(t.p.pid, id)
}

// fuseServer names the server of a FUSE file system when the host has only one:
// nothing in /proc tells which server is whose.
func (l *look) fuseServer(k *link) {
	var servers []int
	for _, h := range l.opened().named["fuse"] {
		if !slices.Contains(servers, int(h.pid)) && l.holds(h, "/dev/fuse") {
			servers = append(servers, int(h.pid))
		}
	}
	if len(servers) != 1 {
		return
	}
	k.targets = []target{{pid: servers[0], how: observe.HowInferred, why: "is the only FUSE server of this host"}}
	k.wants = observe.WantsAnswer
}

// holds says whether a descriptor still stands for the file of this name.
func (l *look) holds(h holding, name string) bool {
	link, err := os.Readlink(fmt.Sprintf("%s/%d/fd/%d", l.fs.Proc, h.pid, h.fd))
	return err == nil && link == name
}

// byWchan is the wait of a thread whose system call is not known, or says
// nothing: by the kernel function it sleeps in.
func (l *look) byWchan(t *thread) *link {
	kind, _ := insideOf([]string{l.wchanOf(t)})
	switch kind {
	case insideTimer:
		return ends(observe.WaitSleep, observe.EndSleep, "sleeps for a time that it chose itself")
	case insidePoll:
		return ends(observe.WaitEpoll, observe.EndIdle, "waits for any of several descriptors")
	case insideFutex:
		return noOwner("waits to be woken; what for could not be read")
	}
	return l.inKernel(t, object{fd: -1})
}

// outside is the wait of a thread that is asleep but in no system call: a page
// that has to be brought, or a signal that is being dealt with.
func (l *look) outside(t *thread) *link {
	if strings.HasPrefix(l.wchanOf(t), "handle_userfault") {
		return ends(observe.WaitEvent, observe.EndNoOwner, "waits for a page of its memory that another process supplies (userfaultfd)")
	}
	return l.inKernel(t, object{fd: -1})
}
