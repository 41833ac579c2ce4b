package request

import (
	"io"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/bpf"
)

// price measures what the BPF programs of this process cost the kernel. Their statistics
// (BPF_ENABLE_STATS of bpf(2), since Linux 5.8) are on from one Poll to the next, once a
// second: they take some time of each run themselves, and are of all programs of the
// host.
type price struct {
	stats    io.Closer // while a burst lasts
	began    time.Time
	programs map[ebpf.ProgramID]*priced
	listed   time.Time
	overhead time.Duration // that the statistics add to a run; negative = not measured yet
	failed   error
}

// priced is a program of this process.
type priced struct {
	group  priceGroup
	before ebpf.ProgramStats // when the burst began
	told   bool              // … it was there
}

// priceGroup is what makes a program cost less.
type priceGroup int

const (
	priceRest  priceGroup = iota // nothing that the governor does
	priceConns                   // fewer connections that are followed
	priceSplit                   // fewer requests that are followed from thread to thread
)

// priceGroups are the programs that are cheaper where less is followed.
var priceGroups = map[string]priceGroup{
	bpf.RequestProgSegment: priceConns, bpf.RequestProgReceived: priceConns, bpf.RequestProgRetransmitted: priceConns,
	bpf.RequestProgStateChanged: priceConns, bpf.RequestProgSending: priceConns, bpf.RequestProgSent: priceConns,
	bpf.RequestProgSwitched: priceSplit, bpf.RequestProgWaking: priceSplit,
}

// listEvery is how often the programs of this process are looked for: others than the
// recorder load some, too.
const listEvery = 10 * time.Second

// kernelCosts are what the programs took of one CPU, by group.
type kernelCosts [priceSplit + 1]float64

// start begins a burst, where this process may.
func (p *price) start(now time.Time) bool {
	if p.failed != nil || p.stats != nil {
		return p.failed == nil
	}
	if now.Sub(p.listed) >= listEvery {
		p.list()
		p.listed = now
	}
	if p.failed != nil {
		return false
	}
	if p.stats, p.failed = ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME)); p.failed != nil {
		p.stats = nil
		return false
	}
	if p.overhead < 0 {
		p.overhead = statsOverhead()
	}
	p.began = time.Now()
	for id, x := range p.programs {
		x.before, x.told = bpf.ProgramStats(id)
	}
	return true
}

// end ends the burst, and gives what the programs took of one CPU meanwhile, by group.
func (p *price) end() (of kernelCosts, ok bool) {
	if p.stats == nil {
		return of, false
	}
	elapsed := time.Since(p.began)
	for id, x := range p.programs {
		now, told := bpf.ProgramStats(id)
		if !told || !x.told {
			continue // it was unloaded
		}
		took := now.Runtime - x.before.Runtime - time.Duration(now.RunCount-x.before.RunCount)*p.overhead
		of[x.group] += max(took.Seconds(), 0) / elapsed.Seconds()
	}
	p.stats.Close()
	p.stats = nil
	return of, elapsed > 0
}

// What following a request costs the kernel where that cannot be measured: on an older
// server CPU, with both ends here.
const (
	guessedConns = 1500 * time.Nanosecond
	guessedSplit = 700 * time.Nanosecond
)

// guessed is what the programs take by the requests that they followed since the last look.
func (r *Recorder) guessed(now time.Time) (of kernelCosts) {
	seen := r.seen()
	n := float64(seen-r.guessedAt) / now.Sub(r.governor.at).Seconds()
	r.guessedAt = seen
	of[priceConns] = n * guessedConns.Seconds()
	if r.split {
		of[priceSplit] = n * guessedSplit.Seconds() / float64(uint(1)<<r.governor.less.split)
	}
	return of
}

// list finds the programs of this process. None is kept open: what others of it unload is to
// be gone.
func (p *price) list() {
	ids, err := bpf.OwnPrograms()
	if err != nil {
		p.failed = err
		return
	}
	known := p.programs
	p.programs = map[ebpf.ProgramID]*priced{}
	for _, id := range ids {
		x := known[id]
		if x == nil {
			x = &priced{group: priceGroups[bpf.ProgramName(id)]}
		}
		p.programs[id] = x
	}
}

func (p *price) close() {
	if p.stats != nil {
		p.stats.Close()
	}
	p.stats = nil
}

// statsOverhead is what a run of a program that does nothing takes by the statistics,
// which are on. Zero where it cannot be measured.
func statsOverhead() time.Duration {
	nothing, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SocketFilter, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return 0
	}
	defer nothing.Close()
	const times = 2000
	if _, err := nothing.Run(&ebpf.RunOptions{Data: make([]byte, 64), Repeat: times}); err != nil {
		return 0
	}
	s, err := nothing.Stats()
	if err != nil || s.RunCount == 0 {
		return 0
	}
	return s.Runtime / time.Duration(s.RunCount)
}
