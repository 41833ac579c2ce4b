package doctor

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/bpf"
	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/sense/host"
)

// Running is a slowray process that has programs in the kernel.
type Running struct {
	PID      int       `json:"pid"`
	Command  string    `json:"command"`   // its first words: "slowray record"
	CPUShare float64   `json:"cpu_share"` // of one CPU: the process, without its programs in the kernel
	Programs []Program `json:"programs"`  // that ran meanwhile, the most expensive first
	// Probes are breakpoints that it has in the code of others (uprobes), by program, the
	// most expensive first.
	Probes []Probe `json:"probes"`
}

// Probe is the breakpoints by which one program runs.
type Probe struct {
	Program  string   `json:"program"`
	Files    []string `json:"files"`    // whose code they are in; empty where the kernel does not tell (before Linux 6.8)
	Attached int      `json:"attached"` // how many
	HitsPerS float64  `json:"hits_per_s"`
	EachNS   float64  `json:"each_ns"`   // of the program
	EntryNS  float64  `json:"entry_ns"`  // of the way in and out, as it was measured here; 0: it was not
	CPUShare float64  `json:"cpu_share"` // of one CPU, the way in and out included
}

// others are the slowray processes of a moment.
type others struct {
	at   time.Time
	list []*other
}

type other struct {
	Running
	looks    int
	cpu      [2]time.Duration // at the first look and the last
	held     []bpf.Held
	programs map[ebpf.ProgramID]*[2]ebpf.ProgramStats
}

// look reads what it has taken until now.
func (p *other) look() {
	at := min(p.looks, 1)
	p.looks++
	p.cpu[at] = cpuOf(p.PID)
	for _, h := range p.held {
		if p.programs[h.Program] == nil {
			p.programs[h.Program] = new([2]ebpf.ProgramStats)
		}
		p.programs[h.Program][at], _ = bpf.ProgramStats(h.Program)
	}
}

// lookRunning finds them, while the kernel counts what programs cost: by what their
// descriptors say, so that whatever reader attached a program, it is counted.
func lookRunning() *others {
	o := &others{at: time.Now()}
	own, _ := os.Stat("/proc/self/exe")
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, ok := host.ParseSmall([]byte(e.Name()))
		if !ok || pid == os.Getpid() {
			continue
		}
		dir := filepath.Join("/proc", e.Name())
		comm, _ := budget.Head(filepath.Join(dir, "comm"), 64)
		exe, err := os.Stat(filepath.Join(dir, "exe"))
		if strings.TrimSpace(string(comm)) != "slowray" && (err != nil || own == nil || !os.SameFile(own, exe)) {
			continue
		}
		held, err := bpf.HeldBy(dir)
		if err != nil || len(held) == 0 {
			continue
		}
		p := &other{Running: Running{PID: pid, Command: commandOf(dir), Programs: []Program{}, Probes: []Probe{}}, held: held, programs: map[ebpf.ProgramID]*[2]ebpf.ProgramStats{}}
		p.look()
		o.list = append(o.list, p)
	}
	return o
}

// commandOf is the first words of a command line, up to the first flag: what comes after
// may be secret.
func commandOf(dir string) string {
	const most, words = 4 << 10, 3
	line, _ := budget.Head(filepath.Join(dir, "cmdline"), most)
	var shown []string
	for word := range strings.SplitSeq(string(line), "\x00") {
		if word == "" || strings.HasPrefix(word, "-") || len(shown) == words {
			break
		}
		if len(shown) == 0 {
			word = filepath.Base(word)
		}
		shown = append(shown, printable.Name(word, 64))
	}
	return strings.Join(shown, " ")
}

// cpuOf is the CPU time of a process until now, by its clock (clock_getcpuclockid(3)); 0
// when it has ended.
func cpuOf(pid int) time.Duration {
	const sched = 2
	var t unix.Timespec
	if unix.ClockGettime(int32(^uint32(pid)<<3|sched), &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// since tells what they took since they were looked for. entry measures what the way into
// a probe and out of it takes; it is only called where there are probes.
func (o *others) since(entry func() time.Duration) (list []Running) {
	elapsed := time.Since(o.at).Seconds()
	for _, p := range o.list {
		p.look()
	}
	entry = sync.OnceValue(entry)
	for _, p := range o.list {
		if p.cpu[1] == 0 {
			continue // it has ended
		}
		r := p.Running
		r.CPUShare = max(p.cpu[1]-p.cpu[0], 0).Seconds() / elapsed
		probes := map[ebpf.ProgramID]*Probe{}
		for _, h := range p.held {
			file, n := placesOf(h.Link)
			if n == 0 {
				continue
			}
			q := probes[h.Program]
			if q == nil {
				q = &Probe{Program: bpf.ProgramName(h.Program), Files: []string{}, EntryNS: float64(entry().Nanoseconds())}
				probes[h.Program] = q
			}
			q.Attached += n
			if file = printable.Name(file, 256); file != "" && !slices.Contains(q.Files, file) {
				q.Files = append(q.Files, file)
			}
		}
		for id, stats := range p.programs {
			before, now := stats[0], stats[1]
			q := probes[id]
			if now.RunCount <= before.RunCount {
				continue
			}
			x := Program{Name: bpf.ProgramName(id), Calls: now.RunCount - before.RunCount, CPUShare: (now.Runtime - before.Runtime).Seconds() / elapsed}
			x.EachNS = float64((now.Runtime - before.Runtime).Nanoseconds()) / float64(x.Calls)
			if q == nil {
				r.Programs = append(r.Programs, x)
				continue
			}
			q.HitsPerS, q.EachNS = float64(x.Calls)/elapsed, x.EachNS
			q.CPUShare = x.CPUShare + q.HitsPerS*q.EntryNS/1e9
		}
		for _, q := range probes {
			slices.Sort(q.Files)
			r.Probes = append(r.Probes, *q)
		}
		slices.SortFunc(r.Programs, func(a, b Program) int {
			return cmp.Or(cmp.Compare(b.CPUShare, a.CPUShare), cmp.Compare(a.Name, b.Name))
		})
		slices.SortFunc(r.Probes, func(a, b Probe) int {
			return cmp.Or(cmp.Compare(b.CPUShare, a.CPUShare), cmp.Compare(a.Program, b.Program))
		})
		list = append(list, r)
	}
	return list
}

// placesOf is in how many places of which file a link has breakpoints; 0 where it has none.
func placesOf(id link.ID) (file string, n int) {
	if id == 0 {
		return "", 0
	}
	l, err := link.NewFromID(id)
	if err != nil {
		return "", 0
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return "", 0
	}
	if m := info.UprobeMulti(); m != nil {
		return m.File, int(m.Count)
	}
	if p := info.PerfEvent(); p != nil {
		if u := p.Uprobe(); u != nil {
			return u.File, 1
		}
	}
	return "", 0
}

// running tells what other slowrays take here now.
func (c *Checkup) running(b *strings.Builder) {
	for i := range c.Running {
		r := &c.Running[i]
		all := 0.0
		for _, p := range r.Programs {
			all += p.CPUShare
		}
		fmt.Fprintf(b, "\nRuns here now: %s (pid %d): itself %s of one CPU, its programs in the kernel %s\n", printable.Text(r.Command), r.PID, figure.Percent(r.CPUShare), figure.Percent(all))
		w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
		for _, p := range r.Programs[:min(len(r.Programs), shownReaders)] {
			fmt.Fprintf(w, "  %s\t%s calls\t%.0f ns each\t%s\t\n", printable.Text(p.Name), figure.Count(p.Calls), p.EachNS, figure.Percent(p.CPUShare))
		}
		w.Flush()
		for i := range r.Probes {
			p := &r.Probes[i]
			files := "files that this kernel does not name"
			if len(p.Files) > 0 {
				files = printable.Text(strings.Join(p.Files, ", "))
			}
			fmt.Fprintf(b, "  %s: %s in the code of %s\n", printable.Text(p.Program), figure.Counted(p.Attached, "breakpoint"), files)
			fmt.Fprintf(b, "    %s hits/s, %.0f ns each and %.0f ns for the way in and out: %s of one CPU\n", figure.Count(uint64(p.HitsPerS+0.5)), p.EachNS, p.EntryNS, figure.Percent(p.CPUShare))
		}
	}
}
