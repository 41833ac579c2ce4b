package function

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/slowray/slowray/internal/bpf"
	"github.com/slowray/slowray/internal/sense/probeprice"
)

const trials = 1000

// measurePrice sets a probe on a function of this process, and calls it. It
// also tells whether the kernel's links of many places see all threads of a
// process: until Linux 6.11 they saw only the first (46ba0e49b642).
func (t *Tracer) measurePrice() error {
	ex, offset, err := probeprice.Place()
	if err != nil {
		return err
	}
	site := len(t.plan.sites)
	if t.multi {
		seen, err := t.step(func() (link.Link, error) {
			return ex.UprobeMulti(nil, t.objects.Programs[progPass], &link.UprobeMultiOptions{
				Addresses: []uint64{offset}, Cookies: []uint64{uint64(site)}, PID: uint32(os.Getpid())})
		})
		if err == nil && seen > 0 {
			return nil
		}
		t.multi = false
	}
	prog, err := t.single(progPass, site)
	if err != nil {
		return err
	}
	opt := &link.UprobeOptions{Address: offset, PID: os.Getpid()}
	if t.kernel.cookies {
		opt.Cookie = uint64(site)
	}
	seen, err := t.step(func() (link.Link, error) { return ex.Uprobe("", prog, opt) })
	if err == nil && seen == 0 {
		return errors.New("no hit was seen")
	}
	return err
}

// step calls the function with a probe on it and without, and says how many
// hits were seen.
func (t *Tracer) step(attach func() (link.Link, error)) (uint64, error) {
	plain := probeprice.Calls(0) // the same without the calls
	l, err := attach()
	if err != nil {
		return 0, err
	}
	defer l.Close()
	// Not the first hundred: they bring the code into the caches. No bound, as
	// only this process is slowed, for some milliseconds.
	warm := 100
	var seen uint64
	defer t.resetHits()
	if err := t.set(bpf.FunctionVarWindowMost, uint64(1)<<62); err != nil {
		return 0, err
	}
	if err := t.set(bpf.FunctionVarActive, uint32(1)); err != nil {
		return 0, err
	}
	_ = probeprice.Calls(warm)
	took := probeprice.Calls(trials)
	if err := t.set(bpf.FunctionVarActive, uint32(0)); err != nil {
		return 0, err
	}
	var perCPU []uint64
	if err := t.objects.Maps[bpf.FunctionMapHits].Lookup(uint32(0), &perCPU); err != nil {
		return 0, fmt.Errorf("read hits: %w", err)
	}
	for _, n := range perCPU {
		seen += n
	}
	if seen > 0 {
		t.perHit = max(int64(took-plain)/trials, 1)
	}
	return seen, nil
}

// resetHits makes everything as it was before.
func (t *Tracer) resetHits() {
	_ = t.set(bpf.FunctionVarActive, uint32(0))
	_ = t.set(bpf.FunctionVarWindowHits, uint64(0))
	cpus, err := ebpf.PossibleCPU()
	if err == nil {
		_ = t.objects.Maps[bpf.FunctionMapHits].Put(uint32(0), make([]uint64, cpus))
	}
}
