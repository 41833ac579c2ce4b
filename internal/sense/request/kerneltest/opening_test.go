package kerneltest

import (
	"context"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/dns"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/sense/request"
)

const (
	typeA, typeCNAME, typeAAAA = 1, 5, 28

	nameserver = "127.53.53.40"
	// The address of a name comes first, and that it has none of the other family later: a
	// resolver of the C library waits for both.
	firstAnswer, lastAnswer = 15 * time.Millisecond, 45 * time.Millisecond
)

// inAnswer is a record whose owner is the name that was asked for, as a pointer or spelled out.
func inAnswer(owner []byte, kind byte, data []byte) []byte {
	b := append(slices.Clone(owner), 0, kind, 0, 1, 0, 0, 0, 60, 0, byte(len(data)))
	return append(b, data...)
}

var pointer = []byte{0xc0, 12}

// nameserverOf answers with these records to questions for addresses of their family, and with
// none to the others.
func nameserverOf(t *testing.T, addr netip.Addr, records ...[]byte) {
	t.Helper()
	conn, err := net.ListenPacket("udp", nameserver+":53")
	if err != nil {
		t.Skipf("SKIP: port 53 of %s: %v", nameserver, err)
	}
	t.Cleanup(func() { conn.Close() })
	kind := byte(typeA)
	if addr.Is6() {
		kind = typeAAAA
	}
	go func() {
		for {
			b := make([]byte, 512)
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			go func() {
				answer := b[:n]
				answer[2], answer[3] = 0x81, 0x80
				if answer[n-3] != kind {
					time.Sleep(lastAnswer)
				} else {
					time.Sleep(firstAnswer)
					answer[7] = byte(len(records))
					answer = append(answer, slices.Concat(records...)...)
				}
				conn.WriteTo(answer, from)
			}()
		}
	}()
}

// name is "db.test" as in a query.
var name = []byte("\x02db\x04test\x00")

// lookup asks for both families, from one thread, and says how long that took.
func lookup(t *testing.T) (took time.Duration) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	conn, err := net.Dial("udp", nameserver+":53")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	began := time.Now()
	for i, kind := range []byte{typeA, typeAAAA} {
		query := slices.Concat([]byte{7, byte(i), 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}, name, []byte{0, kind, 0, 1})
		if _, err := conn.Write(query); err != nil {
			t.Fatal(err)
		}
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	for range 2 {
		if _, err := conn.Read(make([]byte, 512)); err != nil {
			t.Fatal(err)
		}
	}
	return time.Since(began)
}

// watchNames has the answers of nameservers written down for a recorder.
func watchNames(t *testing.T, r *request.Recorder) {
	t.Helper()
	root, err := host.Default().CgroupV2Root()
	if err != nil {
		t.Skipf("SKIP: %v: lookups before connections are NOT tested", err)
	}
	w, err := dns.Start(root, nil, request.NewStream(r).Lookups())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
}

// TestLookupBeforeConnection: the first connection to an address that a name had, and only
// that, has the time of the lookup, from its first query to its last answer; the first
// request of any connection how long connect() took; no other has either.
func TestLookupBeforeConnection(t *testing.T) {
	v4, v6 := netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()
	for what, c := range map[string]struct {
		addr    netip.Addr
		records [][]byte
		known   bool
	}{
		"IPv4":          {v4, [][]byte{inAnswer(pointer, typeA, v4.AsSlice())}, true},
		"alias":         {v4, [][]byte{inAnswer(name, typeCNAME, []byte("\x01x\xc0\x0f")), inAnswer([]byte("\x01x\xc0\x0f"), typeA, v4.AsSlice())}, true},
		"IPv6":          {v6, [][]byte{inAnswer(pointer, typeAAAA, v6.AsSlice())}, true},
		"another":       {v4, [][]byte{inAnswer(pointer, typeA, []byte{127, 0, 0, 9})}, false},
		"no address":    {v4, [][]byte{inAnswer(pointer, typeCNAME, []byte("\x01x\xc0\x0f"))}, false},
		"cut":           {v4, [][]byte{inAnswer(pointer, typeA, v4.AsSlice())[:9]}, false},
		"second of two": {v4, [][]byte{inAnswer(pointer, typeA, []byte{127, 0, 0, 9}), inAnswer(pointer, typeA, v4.AsSlice())}, true},
	} {
		t.Run(what, func(t *testing.T) {
			probe, err := net.Listen("tcp", netip.AddrPortFrom(c.addr, 0).String())
			if err != nil {
				t.Skipf("SKIP: %v", err)
			}
			probe.Close()
			s := listen(t, nil, netip.AddrPortFrom(c.addr, 0).String())
			r := start(t, request.Options{Ports: []int{s.port}, Budget: -1})
			watchNames(t, r)
			nameserverOf(t, c.addr, c.records...)

			took := lookup(t)
			began := time.Now()
			first := dial(t, nil, s)
			connecting := time.Since(began)
			first.ask(t, asking)
			first.ask(t, asking)
			second := dial(t, nil, s) // by what the process knows
			second.ask(t, asking)
			_, called := collect(t, r, nil, s.port)
			_, ofFirst := of(first, nil, called)
			_, ofSecond := of(second, nil, called)
			if len(ofFirst) != 2 || len(ofSecond) != 1 {
				t.Fatalf("%d and %d requests, want 2 and 1", len(ofFirst), len(ofSecond))
			}
			got := ofFirst[0].Opening
			switch dns := time.Duration(got.DNS); {
			case c.known && (dns < lastAnswer || dns > took):
				t.Errorf("a lookup of %v to %v is reported as %v", lastAnswer, took, dns)
			case !c.known && dns != 0:
				t.Errorf("a lookup of %v, of another address", dns)
			}
			if connect := time.Duration(got.Connect); connect <= 0 || connect > connecting {
				t.Errorf("connect() took up to %v, reported as %v", connecting, connect)
			}
			if ofFirst[1].Opening != (observe.Opening{}) {
				t.Errorf("the second request of a connection: %+v", ofFirst[1].Opening)
			}
			if o := ofSecond[0].Opening; o.DNS != 0 || o.Connect == 0 {
				t.Errorf("a connection without a lookup: %+v", o)
			}
		})
	}
}

// TestLookupBeforeStream: the same of a connection of HTTP/2 whose streams are distinguished; who
// looks up is another thread than who connects.
func TestLookupBeforeStream(t *testing.T) {
	s := multiplexed(t, "127.0.0.1:0")
	watchNames(t, s.recorder)
	addr := netip.MustParseAddr("127.0.0.1")
	nameserverOf(t, addr, inAnswer(pointer, typeA, addr.AsSlice()))
	s.client.CloseIdleConnections()
	took := lookup(t)
	began := time.Now()
	s.get(context.Background(), "1", nil)
	connecting := time.Since(began)
	s.get(context.Background(), "1", nil)
	_, called := s.records()
	if len(called) != 2 {
		t.Fatalf("%d calls, want 2: %+v", len(called), called)
	}
	slices.SortFunc(called, func(a, b observe.Request) int { return int(a.Seq) - int(b.Seq) })
	o := called[0].Opening
	if dns := time.Duration(o.DNS); dns < lastAnswer || dns > took {
		t.Errorf("a lookup of %v to %v is reported as %v", lastAnswer, took, dns)
	}
	if most := time.Duration(o.Connect + o.Idle); o.Connect == 0 || most > connecting {
		t.Errorf("opened within %v, reported as %+v", connecting, o)
	}
	if called[1].Opening != (observe.Opening{}) {
		t.Errorf("the second stream of a connection: %+v", called[1].Opening)
	}
	for i := range called {
		if called[i].Flags&observe.FlagMultiplexed == 0 {
			t.Errorf("call %d was not told apart", i)
		}
	}
}
