package request

import (
	"net/netip"
	"time"

	"github.com/slowray/slowray/internal/observe"
)

// sealed tells what nobody waits for on connections of HTTP/2 under TLS, of which only the
// lengths can be seen, because nothing of the process that encrypts can be watched (see
// clearSide): watches and streams of an API server, of gRPC, of a browser.
//
// A client that has read an answer says how much more it takes (WINDOW_UPDATE), gives a
// stream up (RST_STREAM), acknowledges (SETTINGS) or asks for a sign of life (PING). What
// comes afterwards, seconds later, is news and answers none of these. And on a connection
// where that is said, what follows an answer after a pause is news too, and no rest of it.
//
// Lengths alone would take a short query of another protocol (GET of Redis under TLS) for
// a frame: only a server whose connections carry several requests at a time is taken for
// one of HTTP/2.
type sealed struct {
	servers     map[netip.AddrPort]bool    // that were seen to have requests overlap
	multiplexed map[[2]netip.AddrPort]bool // connections, by their ends
	left        uint64                     // frames that were left out
}

const (
	// mostSealed bounds the connections that are known: all are forgotten at once, and are
	// known again by what is said next.
	mostSealed = 4096
	// sealing is what TLS 1.3 adds to one record: header, type and tag (RFC 8446, 5.2).
	sealing = 5 + 1 + 16
	// notAtOnce is after how long what comes is no answer to a PING: later than a delayed
	// acknowledgement, that keeps it back.
	notAtOnce = 50 * time.Millisecond
	// newsAfter is the pause in an answer after which more is something else, as
	// is_remark_of_server (internal/bpf/headers/boundary.h) has it.
	newsAfter = time.Second
)

// waited says whether somebody waited for a request under TLS.
func (r *Recorder) waited(q *observe.Request) bool {
	if _, opaque := r.clear.opaque(q.PID); !opaque {
		return true
	}
	return r.sealed.waited(q)
}

// isControl says whether so many bytes are one record with frames that ask for nothing
// (RFC 9113, 6): header 9; SETTINGS that acknowledges 0, WINDOW_UPDATE and RST_STREAM 4, PING 8.
// A client that reads says the window of the stream and that of the connection at once.
func isControl(bytes uint64) bool {
	switch bytes - sealing {
	case 9, 13, 17, 13 + 13:
		return true
	}
	return false
}

// waited says whether somebody waited for this, and takes out of it what nobody waited for.
func (s *sealed) waited(r *observe.Request) bool {
	asked, server := r.BytesIn, r.Local
	if r.Side == observe.Called {
		asked, server = r.BytesOut, r.Peer
	}
	if r.Flags&observe.FlagOverlapped != 0 {
		if len(s.servers) >= mostSealed {
			clear(s.servers)
		}
		if s.servers == nil {
			s.servers = map[netip.AddrPort]bool{}
		}
		s.servers[server] = true
	}
	if !s.servers[server] {
		return true
	}
	conn := [2]netip.AddrPort{r.Local, r.Peer}
	if isControl(asked) {
		if len(s.multiplexed) >= mostSealed {
			clear(s.multiplexed)
		}
		if s.multiplexed == nil {
			s.multiplexed = map[[2]netip.AddrPort]bool{}
		}
		s.multiplexed[conn] = true
		if r.Ledger[observe.Server]+r.Ledger[observe.Stall] < int64(notAtOnce) {
			return true
		}
		s.left++
		return false
	}
	if r.Ledger[observe.Stall] >= int64(newsAfter) && s.multiplexed[conn] {
		r.Ledger[observe.Stall] = 0
	}
	return true
}
