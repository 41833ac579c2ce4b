package request_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
	"github.com/slowray/slowray/lab/capture"
	"github.com/slowray/slowray/lab/netns"
)

// The accuracy tests hold the recorder against truth that it has no part in:
// the packets next to it (lab/capture), the link's own counters (lab/link) and
// the times at which scripted peers did things. Everything happens in network
// namespaces that a test makes.
//
//	accuracy_test.go           one measurement: places, packets, records
//	accuracy_peer_test.go      scripted peers
//	accuracy_compare_test.go   records against packets
//	accuracy_present_test.go   every request exactly once
//	accuracy_remark_test.go    what nobody answers; what waited before
//	accuracy_ending_test.go    no answer, half an answer, turns that are none
//	accuracy_time_test.go      boundaries; known times before the response
//	accuracy_stall_test.go     known times within the response and after it
//	accuracy_link_test.go      loss and delay
//	accuracy_wire_test.go      loss, windows and pauses of single streams of HTTP/2
//	accuracy_tcprt_test.go     what TCPRT is known to get wrong

// Limits of issue 3, "Accuracy": differences from the time of the packet.
const (
	medianLimit = 20 * time.Microsecond
	p99Limit    = 200 * time.Microsecond
)

// settle is how long a last acknowledgement may take: a delayed one takes 40 ms.
const settle = 80 * time.Millisecond

// trial is one measurement.
type trial struct {
	t        *testing.T
	failures []string
	kinds    map[string]int // how often each kind of them came
	more     int            // not among failures
	saved    string         // where the packets of a failed attempt are
	cleanups []func()

	taps     []*tap
	places   map[uint64]*place
	stats    request.Stats
	recorder *request.Recorder
	records  []observe.Request  // of the places
	interim  []*observe.Request // told while the request lasted; see match
	counters []request.Counters // of the places, at the end
	streams  atomic.Int64       // records of streams so far
	stop     chan struct{}
	done     sync.WaitGroup
}

// tap is a capture of one interface.
type tap struct {
	capture *capture.Capture
	packets []capture.Packet
	name    string
}

// place is a network namespace of a trial.
type place struct {
	ns    *os.File
	inode uint64
}

// once runs a measurement that has to be right the first time: whether a
// request was seen is no matter of how busy the machine is. Where the kernel
// counts events that it did not give to the programs it has two more tries.
func once(t *testing.T, f func(*trial)) {
	t.Helper()
	attempts(t, 1, f)
}

// measure runs a measurement of times. Other programs may disturb it: when it
// disagrees, it is reported in full and has two more tries. Limits stay as they are.
func measure(t *testing.T, f func(*trial)) {
	t.Helper()
	attempts(t, 3, f)
}

func attempts(t *testing.T, n int, f func(*trial)) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIP: needs root, for BPF, network namespaces and packet sockets: the recorder's accuracy is NOT tested")
	}
	if testing.Short() {
		t.Skip("SKIP: -short: the recorder's accuracy is NOT tested")
	}
	for i := 1; ; i++ {
		tr := &trial{t: t, places: map[uint64]*place{}}
		func() {
			defer tr.clean()
			f(tr)
			tr.finish()
			if len(tr.failures) > 0 {
				tr.save()
			}
		}()
		if len(tr.failures) == 0 {
			return
		}
		if i >= n && (tr.stats.Missed == 0 || i >= 3) {
			t.Errorf("attempt %d of %d disagrees (%d events were kept from the programs):\n%s", i, n, tr.stats.Missed, tr.told())
			return
		}
		t.Logf("attempt %d of %d disagrees (%d events were kept from the programs), one more:\n%s", i, n, tr.stats.Missed, tr.told())
	}
}

// errorf notes a disagreement. One fault often shows in all requests: two of a
// kind are reported, and how many more there are.
func (tr *trial) errorf(format string, args ...any) {
	if tr.kinds == nil {
		tr.kinds = map[string]int{}
	}
	if tr.kinds[format]++; tr.kinds[format] <= 2 {
		tr.failures = append(tr.failures, fmt.Sprintf(format, args...))
	} else {
		tr.more++
	}
}

// told are the disagreements as a text.
func (tr *trial) told() string {
	text := strings.Join(tr.failures, "\n")
	if tr.more > 0 {
		text += fmt.Sprintf("\n… and %d more like these", tr.more)
	}
	return text + "\n" + tr.saved
}

// must ends the test on an error that is none of the recorder.
func (tr *trial) must(err error) {
	tr.t.Helper()
	if err != nil {
		tr.t.Fatal(err)
	}
}

func (tr *trial) cleanup(f func()) { tr.cleanups = append(tr.cleanups, f) }

func (tr *trial) clean() {
	tr.halt()
	for _, f := range slices.Backward(tr.cleanups) {
		f()
	}
}

// save writes the packets for a person to look at.
func (tr *trial) save() {
	dir, err := os.MkdirTemp("", "slowray-accuracy-")
	if err != nil {
		tr.t.Log(err)
		return
	}
	for i, p := range tr.taps {
		path := filepath.Join(dir, fmt.Sprintf("%d-%s.pcap", i, p.name))
		if err := p.capture.Save(path); err != nil {
			tr.t.Log(err)
		} else {
			tr.saved += "packets: " + path + "\n"
		}
	}
}

// place makes a network namespace with loopback up.
func (tr *trial) place() *place {
	tr.t.Helper()
	ns, err := netns.New()
	tr.must(err)
	tr.cleanup(func() { ns.Close() })
	var st unix.Stat_t
	tr.must(unix.Fstat(int(ns.Fd()), &st))
	p := &place{ns, st.Ino}
	tr.places[p.inode] = p
	return p
}

// inhabit has a process live in a place until the end of the trial, as in any
// namespace of a container. It does nothing.
func (tr *trial) inhabit(p *place) {
	tr.t.Helper()
	tr.must(netns.Do(p.ns, func() error {
		cmd := exec.Command("sleep", "60")
		if err := cmd.Start(); err != nil {
			return err
		}
		tr.cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		return nil
	}))
}

// tap captures an interface of a place from now to finish.
func (tr *trial) tap(p *place, name string) *tap {
	tr.t.Helper()
	c, err := capture.Start(capture.Options{NetNS: p.ns, Interface: name})
	tr.must(err)
	x := &tap{capture: c, name: name}
	tr.taps = append(tr.taps, x)
	return x
}

// record starts the recorder, which sees what happens from now to finish.
func (tr *trial) record(opt request.Options) {
	tr.t.Helper()
	opt.Budget = -1 // every request has a record
	opt.Split = true
	recorder, err := request.Start(opt)
	if errors.Is(err, ebpf.ErrNotSupported) {
		tr.t.Skipf("SKIP: %v: the recorder's accuracy is NOT tested", err)
	}
	tr.must(err)
	tr.recorder, tr.stop = recorder, make(chan struct{})
	tr.done.Go(tr.poll)
}

// poll takes the records as a user of the recorder does.
func (tr *trial) poll() {
	take := func(r *observe.Request) {
		if tr.places[r.NetNS] != nil {
			if r.Flags&observe.FlagMultiplexed != 0 {
				tr.streams.Add(1)
			}
			kept := *r
			kept.Label = strings.Clone(r.Label)
			tr.records = append(tr.records, kept)
		}
	}
	flush := func() {
		if err := tr.recorder.Flush(); err != nil {
			tr.t.Errorf("flush: %v", err)
		}
		tr.recorder.Poll(take)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-tick.C:
			tr.recorder.Poll(take)
			if n%50 == 0 {
				flush()
			}
		case <-tr.stop:
			time.Sleep(settle)
			flush()
			return
		}
	}
}

// halt ends the recorder's goroutine.
func (tr *trial) halt() {
	if tr.stop != nil {
		close(tr.stop)
		tr.done.Wait()
		tr.stop = nil
	}
	if tr.recorder != nil {
		tr.stats = tr.recorder.Stats()
		if s := tr.stats; s.Lost != 0 || s.Sampled != 0 || s.Connections != 0 {
			tr.errorf("%d records lost, %d requests and %d connections without a record", s.Lost, s.Sampled, s.Connections)
		}
		for _, c := range tr.recorder.Counters() {
			if tr.places[c.NetNS] != nil {
				tr.counters = append(tr.counters, c)
			}
		}
		tr.recorder.Close()
		tr.recorder = nil
	}
}

// finish ends the measurement: records and packets are complete.
func (tr *trial) finish() {
	tr.t.Helper()
	tr.halt()
	for _, p := range tr.taps {
		if p.packets == nil {
			packets, err := p.capture.Stop()
			tr.must(err)
			p.packets = packets
		}
	}
}

// of are the records of one side, in order of time.
func (tr *trial) of(side observe.Side) []*observe.Request {
	var list []*observe.Request
	for i := range tr.records {
		if tr.records[i].Side == side {
			list = append(list, &tr.records[i])
		}
	}
	slices.SortStableFunc(list, func(a, b *observe.Request) int { return int(a.StartNS - b.StartNS) })
	return list
}

// talk runs the ends of connections at the same time, each on its own, and
// returns when all are done.
func (tr *trial) talk(ends ...func() error) {
	tr.t.Helper()
	errs := make([]error, len(ends))
	var all sync.WaitGroup
	for i, end := range ends {
		all.Go(func() { errs[i] = end() })
	}
	all.Wait()
	for _, err := range errs {
		tr.must(err)
	}
}

var (
	loopback4 = netip.MustParseAddr("127.0.0.1")
	loopback6 = netip.MustParseAddr("::1")
)
