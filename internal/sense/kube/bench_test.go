package kube

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/sense/kube/owner"
)

// BenchmarkNode is what a node with 110 pods costs in one second: 2,000 connections, each
// with a look for its container and one for its peer; five events of its pods; and a
// twentieth of asking the runtime, which answers in the same process here. It has to stay
// within mostOfCPU, by the time that the CPUs took: others may run meanwhile.
func BenchmarkNode(b *testing.B) {
	f := &fakeCRI{}
	for i := range 110 {
		f.add(fmt.Sprint("uid-", i), "shop", fmt.Sprintf("cart-7d9f8b6c5d-%05d", i), fmt.Sprintf("10.1.0.%d", i), fmt.Sprintf("%012d", i)+strings.Repeat("0", 52), false,
			map[string]string{owner.LabelTemplateHash: "7d9f8b6c5d"}, time.Now().Add(-time.Minute))
	}
	root := f.serve(b)
	mustBeNode(b, root)
	s := newState(newIndex(), "node-7")
	k := &Kube{Index: s.index, state: s, cri: findCRI(root, s), again: make(chan struct{}, 1)}
	defer k.cri.close()
	if _, err := k.cri.look(context.Background()); err != nil { // what is asked for once
		b.Fatal(err)
	}
	p := cartPod()
	b.ReportAllocs()
	before := cpuTime(b)
	for i := 0; b.Loop(); i++ {
		if i%lookEvery == 0 {
			if n, err := k.cri.look(context.Background()); n != 110 || err != nil {
				b.Fatal(n, err)
			}
		}
		now := time.Now()
		for range 5 {
			s.said(&p, now, false)
		}
		for j := range 2000 {
			if k.Container("000000000007", now.UnixNano()).Pod == "" || k.Peer(netip.AddrFrom4([4]byte{10, 1, 0, byte(j % 110)}), now.UnixNano()).Pod == "" {
				b.Fatal("nobody")
			}
		}
	}
	share := float64(cpuTime(b)-before) / float64(b.N) / float64(time.Second)
	b.ReportMetric(100*share, "%CPU")
	if b.N >= lookEvery && share > mostOfCPU {
		b.Errorf("%.3f %% of a CPU, more than %g %%", 100*share, 100*mostOfCPU)
	}
}

const (
	lookEvery = 20    // seconds
	mostOfCPU = 0.001 // docs/kubernetes-identity.md
)

// cpuTime is what this process has used of the CPUs.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
