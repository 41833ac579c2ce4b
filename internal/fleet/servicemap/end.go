package servicemap

import (
	"net/netip"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// End is one end of a request: what one host saw of it. Times are ns since 1970 by
// that host's clock.
type End struct {
	Host    string
	Service string // served: what answers; called: what calls
	Side    observe.Side

	Client, Server netip.AddrPort // as this end knows them
	Seq            uint32
	RequestBytes   uint64
	ResponseBytes  uint64
	Weight         uint32

	// First is when the first byte of the request was sent, or received; Answer when
	// the first byte of the answer was, 0 when it is not known.
	First, Answer int64
	TotalNS       int64
	Ledger        observe.Ledger
	Retrans       uint32
	Comm          string
	PID           int
	Label         string
}

// EndOf is what a host's request tells.
func EndOf(host string, r *store.Request) End {
	e := End{
		Host: host, Side: r.Side, Seq: r.Seq, Weight: max(r.Weight, 1), TotalNS: r.TotalNS(), Ledger: r.Ledger, Retrans: r.Retrans, Comm: r.Process.Comm, PID: r.PID, Label: r.Label,
	}
	local, peer := unmapped(r.Local), unmapped(r.Peer)
	if r.Side == observe.Called {
		e.Client, e.Server = local, peer
		e.RequestBytes, e.ResponseBytes = r.BytesOut, r.BytesIn
		e.First = r.StartNS
	} else {
		e.Client, e.Server = peer, local
		e.RequestBytes, e.ResponseBytes = r.BytesIn, r.BytesOut
		// A request that waited with its connection came at some time of that wait:
		// at the latest when it was over.
		e.First = r.StartNS + r.Ledger[observe.AcceptWait] + r.Ledger[observe.TLS]
	}
	e.Service = fleet.Service(r.Side, &r.Process, int(e.Server.Port()))
	if r.FirstByte > 0 && r.Flags&(observe.FlagOverlapped|observe.FlagEstimated) == 0 {
		e.Answer = r.StartNS + r.FirstByte
	}
	return e
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// tuple is a connection, the same at both ends unless addresses are translated.
type tuple struct{ client, server netip.AddrPort }

func (e *End) tuple() tuple { return tuple{e.Client, e.Server} }

// timed says that both moments are known, so that it can tell of clocks.
func (e *End) timed() bool { return e.Answer >= e.First && e.Answer > 0 }

// wait is how long this end waited, or worked, for the first byte of the answer, ns.
func (e *End) wait() int64 { return e.Answer - e.First }
