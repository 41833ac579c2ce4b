package cause

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// KernelThreadBusy: a thread of the kernel takes a good part of a CPU, and
// requests are slow for lack of one, or of what the thread is busy with. Tools
// that look into processes show nothing of it.
const KernelThreadBusy ID = "kernel-thread-busy"

var kernelThreadBusy = Cause{
	ID:            KernelThreadBusy,
	Title:         "A kernel thread saturates a CPU",
	Layer:         LayerMachine,
	Class:         ClassMachine | ClassCPU,
	Needs:         []observe.Kind{observe.KindRequests, observe.KindProcess},
	ConsequenceOf: []Parent{SoftirqSaturated, MemoryPressure, DiskSaturated, CPUSaturated},
	Folds:         true,
	Check:         checkKernelThread,
}

func checkKernelThread(v *View) Result {
	var top *observe.Process
	for i := range v.Processes {
		if p := &v.Processes[i]; p.Kernel && (top == nil || p.CPUSeconds() > top.CPUSeconds()) {
			top = p
		}
	}
	if top == nil || top.CPUSeconds() == 0 {
		return ruledOut("no kernel thread used a CPU to speak of")
	}
	used := ratio(top.CPUSeconds(), v.Window.Seconds)
	duty := dutyOf(top.Comm)
	because := fmt.Sprintf("the busiest kernel thread, %s (%s), uses %s of a CPU", top.Comm, duty.what, percent(used))
	if used < kernelThreadShare {
		return ruledOut(because)
	}
	// On full CPUs what they take is taken from somebody, as by any other outsider
	// (cpu-saturated): less of it is worth telling. Work that is put off moves from
	// one thread of its kind to another.
	floor, all, kin := threadFloor, v.Use.CPU.Total(), 0.0
	for i := range v.Processes {
		if p := &v.Processes[i]; p.Kernel && duty.prefix != "" && strings.HasPrefix(p.Comm, duty.prefix) {
			kin += p.CPUSeconds()
		}
	}
	if !duty.waits && ratio(v.Use.CPU.Idle+v.Use.CPU.IOWait, all) < idleWhenFull && ratio(kin, all) >= outsiderShare {
		floor = wireFloor
	}
	r := v.judgeLedgers(fewRequests, func(l *ledger) judged {
		if l.called() {
			return judged{because: because, near: -1}
		}
		k, suffers := v.suffersFrom(l, &duty, floor)
		if !suffers {
			return judged{because: fmt.Sprintf("%s; the requests do not suffer: %s", because, l.whereTimeGoes()), near: k.slowNS}
		}
		return judged{finding: v.kernelThreadFinding(l, k, floor, top, used, &duty)}
	})
	if r.NotChecked != "" {
		return Result{RuledOut: because + ", and " + r.NotChecked}
	}
	return heaviest(r)
}

// suffersFrom says whether requests are slow for what a kernel thread takes
// from them, with what it costs them at most.
func (v *View) suffersFrom(l *ledger, duty *duty, least floor) (cost, bool) {
	k := l.cost(1, append([]observe.Part{observe.Network, observe.Retrans, observe.SendWait}, threadParts...)...)
	if !l.noticed(k, least) {
		return k, false
	}
	w := v.atWork(l)
	if duty.waits { // for memory or a disk: a thread of the service that is blocked shows it
		blocked, samples := v.uninterruptible(w.procs)
		return scaled(k, ratio(blocked, samples)), ratio(blocked, samples) >= 0.1
	}
	if len(w.threads) == 0 {
		return k, false
	}
	most := 0.0
	for i := range w.threads {
		most = max(most, w.threads[i].delay)
	}
	k = v.waitingForCPU(l, &w, most)
	return k, l.noticed(k, least)
}

func scaled(k cost, by float64) cost {
	return cost{share: k.share * by, slowShare: k.slowShare * by, ns: k.ns * by, slowNS: k.slowNS * by, usual: k.usual * by}
}

// uninterruptible counts the looks at threads of processes that had work in
// hand, and those that found them blocked on memory or a disk.
func (v *View) uninterruptible(procs []*observe.Process) (blocked, samples int) {
	for _, p := range procs {
		if p.States != nil {
			blocked += p.States.Disk
			samples += p.States.Busy()
		}
	}
	return blocked, samples
}

func (v *View) kernelThreadFinding(l *ledger, k cost, least floor, top *observe.Process, used float64, duty *duty) *Finding {
	f := v.found(l, k, least, "held up, while "+top.Comm+" keeps a CPU busy")
	f.Subject.Kind, f.Subject.PID, f.Subject.Comm = "process", top.PID, top.Comm
	f.Evidence = append(f.Evidence,
		Evidence{Fact: "CPU of " + top.Comm, Value: round(used), Limit: 1, Unit: "CPUs", Source: "/proc/PID/stat"},
		Evidence{Fact: "what it is for", Value: duty.what, Source: "its name"},
	)
	e := v.executedBy([]*observe.Process{top}, 0)
	if why := v.whyBusy(&e); e.enough() {
		if why != "" {
			f.Evidence = append(f.Evidence, Evidence{Fact: "why it is busy, by its stacks", Value: why, Source: "CPU samples, kernel stacks"})
		}
		f.Evidence = append(f.Evidence, Evidence{Fact: "it executes, most of all", Value: e.told(4), Unit: fmt.Sprintf("of %s CPU samples", count(e.samples)), Source: "CPU samples, kernel stacks"})
	}
	if strings.HasPrefix(top.Comm, "ksoftirqd/") {
		f.Evidence = append(f.Evidence, v.packetEvidence()...)
	}
	f.Fix.Text = duty.fix
	f.Fix.Commands = []shell.Command{shell.Line("slowray flame --pid %s -o flame.html   # its kernel stacks", top.PID)}
	return f
}

// duty is what a kind of kernel thread is for.
type duty struct {
	prefix, what, fix string
	waits             bool // who suffers is blocked, not short of a CPU
}

var duties = []duty{
	{prefix: "ksoftirqd/", what: "work that interrupts leave behind, mostly packets that come in",
		fix: "Find the packets (softirq-saturated names the flow), drop what is not wanted as early as can be, and spread the rest over the CPUs (more queues, RPS)."},
	{prefix: "kswapd", what: "frees memory in the background", waits: true,
		fix: "Memory is short: find the processes with most of it, or give the machine more."},
	{prefix: "kcompactd", what: "moves memory together for large pages", waits: true,
		fix: "Ask for large pages only where they help: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled."},
	{prefix: "khugepaged", what: "puts small pages together into large ones",
		fix: "Ask for large pages only where they help: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled."},
	{prefix: "jbd2/", what: "writes the journal of a file system", waits: true,
		fix: "Find who writes, and syncs, so much there, or give the file system a faster disk."},
	{prefix: "kworker/", what: "work that drivers and the kernel put off",
		fix: "Its stacks name the driver or the part of the kernel: see what is wrong with that."},
	{prefix: "migration/", what: "moves processes from one CPU to another",
		fix: "Bind threads that hop between CPUs to one, or run fewer of them."},
	{prefix: "rcu", what: "frees what the kernel no longer needs",
		fix: "Find what makes and drops so many objects of the kernel: its stacks tell."},
	{prefix: "irq/", what: "the interrupts of a device", fix: "See what the device is doing, and whether its interrupts can go to more CPUs."},
	{prefix: "napi/", what: "packets of a network interface", fix: "Find the packets, and spread them over the CPUs."},
	{prefix: "md", what: "a software RAID", waits: true, fix: "See /proc/mdstat: a check or rebuild can be slowed down (dev.raid.speed_limit_max)."},
	{prefix: "kcryptd", what: "encrypts and decrypts a disk", waits: true, fix: "Find who writes or reads so much there."},
	{prefix: "nfsd", what: "serves files over NFS", fix: "Find which client asks for so much."},
}

func dutyOf(comm string) duty {
	i := slices.IndexFunc(duties, func(d duty) bool { return strings.HasPrefix(comm, d.prefix) })
	if i < 0 {
		return duty{what: "a thread of the kernel", fix: "Its stacks name the part of the kernel that is busy: see what is wrong with that."}
	}
	return duties[i]
}

// kernelReasons are functions by which it can be known what kernel code is busy
// with; the first that has a good part of the samples counts.
var kernelReasons = []struct{ function, why string }{
	{"tcp_conn_request", "handshakes of TCP: SYNs"},
	{"tcp_v4_syn_recv_sock", "handshakes of TCP"},
	{"tcp_v4_send_reset", "segments to ports where nobody listens"},
	{"__icmp_send", "answers that something cannot be delivered"},
	{"nf_conntrack_in", "connection tracking"},
	{"nft_do_chain", "firewall rules"},
	{"ipt_do_table", "firewall rules"},
	{"__udp4_lib_rcv", "UDP"},
	{"tcp_v4_rcv", "TCP segments that come in"},
	{"tcp_v6_rcv", "TCP segments that come in"},
	{"br_handle_frame", "frames that a bridge passes on"},
	{"net_rx_action", "packets that come in"},
	{"net_tx_action", "packets that go out"},
	{"blk_done_softirq", "disk requests that are done"},
	{"rcu_core", "what the kernel frees"},
	{"run_timer_softirq", "timers"},
	{"tasklet_action_common", "a driver's tasklets"},
	{"shrink_folio_list", "memory reclaim"},
	{"shrink_page_list", "memory reclaim"},
	{"shrink_slab", "memory reclaim: caches of the kernel"},
	{"compact_zone", "memory compaction"},
	{"jbd2_journal_commit_transaction", "commits of the journal"},
	{"wb_workfn", "writes data back to disks"},
	{"loop_process_work", "a loop device"},
	{"process_one_work", "work that was put off"},
}

// whyBusy says what the samples of a kernel thread pass through.
func (v *View) whyBusy(e *executed) string {
	for _, r := range kernelReasons {
		for i := range e.functions {
			if f := &e.functions[i]; f.Name == r.function && e.share(f) >= reasonShare {
				return fmt.Sprintf("%s (%s, %s of its samples)", r.why, f.Name, percent(e.share(f)))
			}
		}
	}
	return ""
}
