package request

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
)

// blind keeps segments from the recorder while f runs, as a kernel does that runs
// no program inside of itself, or on top of certain tasks.
func (r *Recorder) blind(t *testing.T, f func()) {
	t.Helper()
	info, err := r.objects.Segment.Info()
	if err != nil {
		t.Fatal(err)
	}
	want, _ := info.ID()
	i := slices.IndexFunc(r.links, func(c io.Closer) bool {
		l, ok := c.(link.Link)
		if !ok {
			return false
		}
		info, err := l.Info()
		return err == nil && info.Program == want
	})
	if i < 0 {
		t.Fatal("the program of segments is not attached")
	}
	if err := r.links[i].Close(); err != nil {
		t.Fatal(err)
	}
	f()
	if r.links[i], err = link.AttachTracing(link.TracingOptions{Program: r.objects.Segment}); err != nil {
		t.Fatal(err)
	}
}

// needSight skips where what is not seen cannot be tested.
func needSight(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	if os.Getuid() != 0 {
		t.Skip("SKIP: needs root, to load BPF programs: what is not seen of connections is NOT tested")
	}
}

// exchange is a connection whose two ends take turns as a test says; it knows
// what it carried.
type exchange struct {
	client, server net.Conn
	in, out        []int // bytes of each request and its answer
}

func newExchange(t *testing.T) *exchange {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	e := &exchange{}
	if e.client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if e.server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{e.client, e.server} {
		_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
		t.Cleanup(func() { c.Close() })
	}
	return e
}

// record records it without a budget.
func (e *exchange) record(t *testing.T, opt Options) *Recorder {
	t.Helper()
	opt.Ports, opt.Budget = []int{int(netip.MustParseAddrPort(e.server.LocalAddr().String()).Port())}, -1
	r, err := Start(opt)
	if errors.Is(err, ebpf.ErrNotSupported) {
		t.Skipf("SKIP: %v: what is not seen of connections is NOT tested", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func carry(t *testing.T, from, to net.Conn, bytes int) {
	t.Helper()
	if _, err := from.Write(make([]byte, bytes)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(to, make([]byte, bytes)); err != nil {
		t.Fatal(err)
	}
}

// ask sends a request and has it read; answer likewise.
func (e *exchange) ask(t *testing.T) {
	t.Helper()
	e.in = append(e.in, 100+len(e.in))
	carry(t, e.client, e.server, e.in[len(e.in)-1])
}

func (e *exchange) answer(t *testing.T) {
	t.Helper()
	e.out = append(e.out, 200+len(e.out))
	carry(t, e.server, e.client, e.out[len(e.out)-1])
}

// settle waits for the acknowledgements, which are delayed as long as the machine likes, and
// for the 5 ms after which FlushAll holds an answer to be complete.
func (e *exchange) settle(t *testing.T) {
	t.Helper()
	for _, c := range []net.Conn{e.client, e.server} {
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			var unacked int
			var failed error
			err := raw.Control(func(fd uintptr) { unacked, failed = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
			if err = errors.Join(err, failed); err != nil || unacked > 0 && time.Now().After(end) {
				t.Fatalf("%d bytes are not acknowledged: %v", unacked, err)
			}
			if unacked == 0 {
				break
			}
		}
	}
	time.Sleep(10 * time.Millisecond)
}

// TestUnseen: whatever segment is kept from the programs, each request is reported
// once, with its own bytes, and ends before the next one begins.
func TestUnseen(t *testing.T) {
	needSight(t)
	for name, script := range map[string]func(*testing.T, *Recorder, *exchange){
		"nothing": func(t *testing.T, _ *Recorder, e *exchange) {
			e.ask(t)
			e.answer(t)
		},
		"the answer and its acknowledgement": func(t *testing.T, r *Recorder, e *exchange) {
			e.ask(t)
			r.blind(t, func() {
				e.answer(t)
				e.settle(t)
			})
		},
		"the request": func(t *testing.T, r *Recorder, e *exchange) {
			e.settle(t)
			r.blind(t, func() { e.ask(t) })
			e.answer(t)
		},
		"an answer and the request after it": func(t *testing.T, r *Recorder, e *exchange) {
			e.ask(t)
			r.blind(t, func() {
				e.answer(t)
				e.ask(t)
			})
			e.answer(t)
		},
		"a request with all that belongs to it": func(t *testing.T, r *Recorder, e *exchange) {
			e.settle(t)
			r.blind(t, func() {
				e.ask(t)
				e.answer(t)
				e.settle(t)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newExchange(t)
			r := e.record(t, Options{})
			for range 2 {
				e.ask(t)
				e.answer(t)
				script(t, r, e)
				e.settle(t)
			}
			e.ask(t)
			e.answer(t)
			e.settle(t)
			if err := r.FlushAll(); err != nil {
				t.Fatal(err)
			}
			var sides [3][]observe.Request
			r.Poll(func(q *observe.Request) { sides[q.Side] = append(sides[q.Side], *q) })
			e.check(t, sides[observe.Served], e.in, e.out)
			e.check(t, sides[observe.Called], e.out, e.in)
		})
	}
}

// TestUnseenLast: an answer of which no segment was seen, before a client that says nothing more,
// is reported when the window ends, and once.
func TestUnseenLast(t *testing.T) {
	needSight(t)
	e := newExchange(t)
	r := e.record(t, Options{Side: observe.Served})
	var served []observe.Request
	windowEnds := func() {
		t.Helper()
		if err := r.FlushAll(); err != nil {
			t.Fatal(err)
		}
		r.Poll(func(q *observe.Request) { served = append(served, *q) })
		e.check(t, served, e.in[:len(e.out)], e.out)
	}
	for range 3 {
		e.ask(t)
		r.blind(t, func() {
			e.answer(t)
			e.settle(t)
		})
		windowEnds()
		e.ask(t) // and is none while the server has it in hand
		time.Sleep(10 * time.Millisecond)
		windowEnds()
		e.answer(t)
		e.settle(t)
		windowEnds()
	}
}

func (e *exchange) check(t *testing.T, got []observe.Request, in, out []int) {
	t.Helper()
	slices.SortFunc(got, func(a, b observe.Request) int { return int(a.Seq) - int(b.Seq) })
	if len(got) != len(in) {
		t.Errorf("%d requests, want %d", len(got), len(in))
	}
	for i := range got {
		q := &got[i]
		if q.Requests != 1 || q.Ledger[observe.Unaccounted] != 0 || q.Flags&^observe.FlagPreexisting != 0 {
			t.Errorf("%s request %d: stands for %d, flags %v: %v", q.Side, q.Seq, q.Requests, q.Flags.Names(), q.Ledger)
		}
		if i < len(in) && (q.BytesIn != uint64(in[i]) || q.BytesOut != uint64(out[i])) {
			t.Errorf("%s request %d: %d bytes in, %d out, want %d and %d", q.Side, q.Seq, q.BytesIn, q.BytesOut, in[i], out[i])
		}
		if i+1 < len(got) && q.StartNS+q.TotalNS() > got[i+1].StartNS {
			t.Errorf("%s request %d ends %d ns after the next begins: %v", q.Side, q.Seq, q.StartNS+q.TotalNS()-got[i+1].StartNS, q.Ledger)
		}
	}
}
