package wait

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/budget"
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
	name := ""
	if !onMount {
		// A link on the way may lead elsewhere: where it matters the kernel's own stack says that
		// it is a file system of that type.
		if name, mount, onMount = l.namedMount(t); !mount.UserSpace() && !inFilesystem(functions, mount.Type) {
			name, onMount = "", false
		}
	}
	if kind != insideVfork && kind != insideNetworkFS && kind != insideFuse && onMount {
		switch {
		case mount.UserSpace():
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
	if name != "" {
		k.object, k.extra = printable.Name(name, 512), mount.Dir
	}
	if onMount {
		k.mount = &observe.WaitMount{Dir: printable.Name(mount.Dir, 1024), Root: printable.Name(mount.Root, 1024), Type: printable.Name(mount.Type, 64), Source: printable.Name(mount.Source, 256),
			Device: mount.Number()}
		k.object += fmt.Sprintf(" (%s on %s)", printable.Name(mount.Type, 64), printable.Name(mount.Source, 256))
		if k.end == observe.EndDisk || k.end == observe.EndFuse {
			k.path = printable.Name(mount.Dir, 1024)
		}
	}
	switch {
	case kind == insideFuse:
		l.fuseServer(k, mount, onMount)
	case k.inside == observe.InsideMapLock:
		if k.targets = l.mapHolders(t.p); len(k.targets) > 0 {
			k.wants = observe.WantsRelease
		}
	}
	return k
}

// inFilesystem says whether functions of a file system of this type are on a stack.
func inFilesystem(functions []string, kind string) bool {
	switch kind {
	case "":
		return false
	case "nfs4":
		kind = "nfs"
	case "overlay":
		kind = "ovl"
	}
	return slices.ContainsFunc(functions, func(f string) bool { return strings.HasPrefix(strings.TrimLeft(f, "_"), kind+"_") })
}

// mapHolders is who seems to hold the lock of a process's memory map, which is written
// nowhere that can be read: a thread of it that sleeps where it has it; else the one that
// runs, when all others sleep; else who reads the map in /proc.
func (l *look) mapHolders(p *process) []target {
	if p.holdersAsked {
		return p.holders
	}
	p.holdersAsked = true
	l.complete(p)
	var running []*thread
	asked := 0
	for _, t := range p.threads {
		switch {
		case t.state == 'R':
			running = append(running, t)
		case asked == maxStacks:
		case t.state == 'D' || t.state == 'S' && t.call.known && !t.call.outside && mapsMemory[l.calls[t.call.nr].name]:
			asked++
			if holdsMapLock(l.functions(t)) {
				p.holders = []target{{pid: p.pid, tid: t.tid, how: observe.HowInferred, why: "sleeps in the kernel where it has the lock"}}
				return p.holders
			}
		}
	}
	if len(running) == 1 {
		p.holders = []target{{pid: p.pid, tid: running[0].tid, how: observe.HowInferred, why: "runs meanwhile"}}
	} else {
		p.holders = l.mapReaders(p)
	}
	return p.holders
}

// maxStacks is how many threads of a process are asked for their stacks in the kernel.
const maxStacks = 64

// mapsMemory is the calls that take the lock of the memory map for longer.
var mapsMemory = map[string]bool{"mmap": true, "munmap": true, "mremap": true, "mprotect": true, "madvise": true, "brk": true, "mlock": true, "fork": true, "clone": true}

// holdsMapLock says that a thread with such a stack sleeps with the lock. Who faults a
// page in lets go of it before it waits (lock_folio_maybe_drop_mmap, mm/filemap.c).
func holdsMapLock(functions []string) bool {
	return len(functions) > 0 && !asksForLock(functions[0]) && !strings.HasPrefix(functions[0], "rwsem_down") && slices.ContainsFunc(functions, func(f string) bool {
		return slices.ContainsFunc([]string{"vm_mmap_pgoff", "vm_munmap", "__vm_munmap", "do_mprotect_pkey", "madvise_vma", "dup_mm", "__do_sys_brk", "__do_sys_mremap"},
			func(prefix string) bool { return strings.HasPrefix(f, prefix) })
	})
}

// mapReaders is the processes that have a file of /proc open which shows the map of a
// process. Reading it takes the lock.
func (l *look) mapReaders(p *process) (out []target) {
	for _, name := range []string{"smaps", "smaps_rollup", "numa_maps", "pagemap", "maps"} {
		for _, h := range l.opened().named[name] {
			file := fmt.Sprintf("/proc/%d/%s", p.pid, name)
			if int(h.pid) != p.pid && len(out) < maxBranches && l.holds(h, file) {
				out = append(out, target{pid: int(h.pid), how: observe.HowInferred, why: "has " + file + " open"})
			}
		}
	}
	return out
}

// namedMount is the file that a call of a thread names, and the mount that it is on.
func (l *look) namedMount(t *thread) (name string, m host.Mount, ok bool) {
	c, known := l.calls[t.call.nr]
	if !known || !t.call.known || t.call.running || t.call.outside || t.call.foreign || c.does != opens && c.does != names {
		return "", m, false
	}
	name, ok = l.text(t.p, t.call.args[c.fd], 4096)
	if !ok || name == "" {
		return "", m, false
	}
	if name[0] != '/' {
		from := l.path(t, "cwd")
		if dir := int32(t.call.args[0]); c.fd == 1 && dir >= 0 {
			from = l.path(t, fmt.Sprintf("fd/%d", dir))
		}
		at, err := os.Readlink(from)
		if err != nil {
			return "", m, false
		}
		name = path.Join(at, name)
	}
	m, ok = l.fs.MountAt(t.p.pid, name)
	return name, m, ok
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

// fuseServer names the process that serves a FUSE file system: who has its connection
// open, of which fdinfo tells the device since 6.16 (fuse_dev_show_fdinfo,
// fs/fuse/dev.c); else the one that has the mount point as an argument; else the only server of the host.
func (l *look) fuseServer(k *link, m host.Mount, onMount bool) {
	if onMount && !m.UserSpace() {
		return // virtiofs: the hypervisor
	}
	var sure, told, all []int
	for _, h := range l.opened().named["fuse"] {
		pid := int(h.pid)
		if !l.holds(h, "/dev/fuse") {
			continue
		}
		if !slices.Contains(all, pid) {
			all = append(all, pid)
		}
		if !onMount {
			continue
		}
		device, ok := host.ParseUint(keyed(l.fdInfo(pid, int(h.fd)), "fuse_connection:"))
		switch {
		case ok && device == m.Device() && !slices.Contains(sure, pid):
			sure = append(sure, pid)
		case !ok && !slices.Contains(told, pid) && l.argument(pid, m.Dir):
			told = append(told, pid)
		}
	}
	why := "serves the file system on " + printable.Name(m.Dir, 256)
	switch {
	case len(sure) > 0:
		all = sure
	case len(told) > 0:
		all = told
	case len(all) != 1:
		return
	case !onMount:
		why = "is the only FUSE server of this host"
	}
	for _, pid := range all[:min(len(all), maxBranches)] {
		k.targets = append(k.targets, target{pid: pid, how: observe.HowInferred, why: why})
	}
	k.wants = observe.WantsAnswer
}

// argument says whether a process was started with this argument.
func (l *look) argument(pid int, is string) bool {
	if l.budget.File() != nil {
		return false
	}
	b, err := budget.Head(fmt.Sprintf("%s/%d/cmdline", l.fs.Proc, pid), 16<<10)
	return err == nil && slices.Contains(strings.Split(string(b), "\x00"), is)
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
