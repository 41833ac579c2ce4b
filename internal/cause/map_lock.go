package cause

import (
	"fmt"
	"slices"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// mapWork is what a process does with the lock of its memory map in its hands, by
// functions of the kernel since 5.10, and what to do about it.
var mapWork = []struct {
	functions []string
	what, fix string
}{
	{[]string{"dup_mmap", "copy_page_range"}, "fork() copies the page tables of all its memory", "Start programs with posix_spawn() or vfork(), or have a small process fork that is started first; MADV_DONTFORK or huge pages for large memory leave less to copy."},
	{[]string{"__mm_populate", "populate_vma_page_range"}, "mmap(MAP_POPULATE) or mlock() brings in all pages of a mapping", "Map without MAP_POPULATE and touch the pages afterwards, or map in small pieces; huge pages take a fraction of the time."},
	{[]string{"do_madvise", "madvise_vma_behavior", "madvise_do_behavior"}, "madvise() works on a large range", "Give memory back in smaller pieces or less often (jemalloc: dirty_decay_ms, background_thread; Go: GODEBUG=madvdontneed=0)."},
	{[]string{"do_mprotect_pkey", "change_protection"}, "mprotect() works on a large range", "Change the protection of smaller pieces, or once."},
	{[]string{"do_munmap", "__vm_munmap", "do_vmi_munmap", "do_vmi_align_munmap", "unmap_region", "unmap_vmas", "zap_pte_range"}, "munmap() gives back large memory", "Keep large memory and use it again rather than to unmap it (malloc: MALLOC_TRIM_THRESHOLD_, MALLOC_MMAP_THRESHOLD_), or unmap it in small pieces."},
}

// onMapLock says who seems to hold the lock: the thread that the chain leads to, and
// what the kernel did on behalf of the process most.
func onMapLock(v *View, r *root, f *Finding) {
	c, waiter := r.example(), r.blamed()
	pid := waiter.Process.PID
	f.Fix.Commands = []shell.Command{lookAtWaits(pid), shell.Line("slowray flame --pid %s --off-cpu -o flame.html   # who maps and unmaps", pid)}
	holder := ""
	if r.at < len(c.Hops)-1 {
		h := &c.Hops[r.at+1]
		holder = fmt.Sprintf("thread %d (%s)", h.TID, h.Comm)
		if h.Process.PID != pid {
			holder = who(h)
			f.Fix.Text = fmt.Sprintf("%s reads the memory map of %s in /proc: do that less often, or read smaps_rollup.", holder, waiter.Process.Comm)
		}
		f.Title = fmt.Sprintf("Requests of %s wait for mmap_lock (%s)", waiter.Process.Comm, holder)
		f.Evidence = append(f.Evidence, Evidence{Fact: "who seems to hold it", Value: holder + ", which " + h.Why, Source: "/proc/PID/task/TID"})
	}
	work, thread, share := v.mapWorkOf(pid)
	if work < 0 {
		return
	}
	if thread != "" {
		holder = thread
	}
	if holder == "" {
		holder = waiter.Process.Comm
	}
	f.Evidence = append(f.Evidence, Evidence{Fact: fmt.Sprintf("%s on the CPU: %s", holder, mapWork[work].what), Value: round(share), Unit: "share of the samples", Source: "CPU profile"})
	f.Fix.Text = fmt.Sprintf("It seems that %s has the lock while %s. %s", holder, mapWork[work].what, mapWork[work].fix)
}

// mapWorkOf is the work that has most samples of a thread of a process, or of all of it
// together; -1 when there is little.
func (v *View) mapWorkOf(pid int) (work int, thread string, share float64) {
	work = -1
	p := v.Process(pid)
	if v.Profile == nil || p == nil {
		return work, "", 0
	}
	of := func(tid int, name string) {
		e := v.executedBy([]*observe.Process{p}, tid)
		for i := range mapWork {
			for j := range e.functions {
				f := &e.functions[j]
				if f.Kind == observe.FrameKernel && slices.Contains(mapWork[i].functions, f.Name) && e.share(f) > share {
					work, thread, share = i, name, e.share(f)
				}
			}
		}
	}
	for _, i := range v.profiled[pid] {
		for j := range v.Profile.Processes[i].Threads {
			t := &v.Profile.Processes[i].Threads[j]
			if len(t.Functions) > 0 {
				of(t.TID, fmt.Sprintf("thread %d (%s)", t.TID, t.Comm))
			}
		}
	}
	of(0, thread)
	if share < noiseShare {
		return -1, "", 0
	}
	return work, thread, share
}
