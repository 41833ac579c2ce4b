package request

import (
	"net/netip"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
)

// TestSealed: the lengths are those that a kubelet and an API server were seen to send.
func TestSealed(t *testing.T) {
	server, kubelet, shop := netip.MustParseAddrPort("127.0.0.1:6443"), netip.MustParseAddrPort("127.0.0.1:55546"), netip.MustParseAddrPort("127.0.0.1:40000")
	var s sealed
	redis := netip.MustParseAddrPort("127.0.0.1:6380")
	if !s.waited(&observe.Request{Side: observe.Served, Local: redis, Peer: shop, BytesIn: 48, Ledger: observe.Ledger{observe.Server: int64(5 * time.Second)}}) {
		t.Error("GET of a key of seven letters, of a server that answers one by one, is no frame of HTTP/2")
	}
	s.waited(&observe.Request{Side: observe.Served, Local: server, Peer: kubelet, BytesIn: 300, Flags: observe.FlagOverlapped})
	for _, c := range []struct {
		what          string
		side          observe.Side
		from          netip.AddrPort
		asked         uint64
		server, stall time.Duration
		waited        bool
		stays         time.Duration
	}{
		{"an answer that stalls, where nothing tells of HTTP/2", observe.Served, shop, 482, 2 * time.Millisecond, 5 * time.Second, true, 5 * time.Second},
		{"PING and its answer", observe.Served, kubelet, 39, 100 * time.Microsecond, 0, true, 0},
		{"WINDOW_UPDATE, then an event", observe.Served, kubelet, 35, 5 * time.Second, 0, false, 0},
		{"two of them, and an event at once, then the next", observe.Served, kubelet, 48, 0, 5 * time.Second, false, 5 * time.Second},
		{"a PUT of 482 bytes, then an event after its answer", observe.Served, kubelet, 482, 2 * time.Millisecond, 5 * time.Second, true, 0},
		{"a pause within an answer", observe.Served, kubelet, 482, 2 * time.Millisecond, 600 * time.Millisecond, true, 600 * time.Millisecond},
		{"a request that takes long", observe.Served, kubelet, 482, 9 * time.Second, 0, true, 0},
		{"the calling end", observe.Called, kubelet, 35, 5 * time.Second, 0, false, 0},
		{"no length of such a frame", observe.Served, kubelet, 36, 5 * time.Second, 0, true, 0},
	} {
		r := observe.Request{Side: c.side, Local: server, Peer: c.from, BytesIn: c.asked, BytesOut: 2363}
		if c.side == observe.Called {
			r.BytesIn, r.BytesOut = r.BytesOut, r.BytesIn
			r.Local, r.Peer = r.Peer, r.Local
		}
		r.Ledger[observe.Server], r.Ledger[observe.Stall] = int64(c.server), int64(c.stall)
		if got := s.waited(&r); got != c.waited {
			t.Errorf("%s: waited %t", c.what, got)
		}
		if got := time.Duration(r.Ledger[observe.Stall]); got != c.stays {
			t.Errorf("%s: stalls %s", c.what, got)
		}
	}
	for port := range 2 * mostSealed {
		s.waited(&observe.Request{Side: observe.Served, Local: server, Peer: netip.AddrPortFrom(kubelet.Addr(), uint16(port)), BytesIn: 35})
	}
	if len(s.multiplexed) > mostSealed {
		t.Errorf("%d connections are known", len(s.multiplexed))
	}
}
