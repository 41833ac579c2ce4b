package servicemap

import "github.com/slowray/slowray/internal/observe"

// Joined is a request that both ends kept.
type Joined struct {
	Called, Served *End
	// Translated says that addresses were changed on the way, and that the two were
	// found to be one by the rest.
	Translated bool
}

// Shares says where the time of a caller went, in ns. The parts add up to Total.
type Shares struct {
	Requests uint64 // of the requests that were seen at both ends
	Total    int64  // as the caller saw it
	// Client is the caller's own host: until its last byte was sent, and until the answer
	// in its socket was read.
	Client int64
	// Server is the other host: until the connection was accepted and the request read,
	// until the answer began, and pauses in it.
	Server int64
	// Wire is what remains: the way there and back and the transfer of the answer,
	// with what both hosts' queues of packets add.
	Wire int64
	// Retrans is what of Wire was added by sending again, by either end's account.
	Retrans int64
}

// Add adds up.
func (s *Shares) Add(o *Shares) {
	s.Requests += o.Requests
	s.Total += o.Total
	s.Client += o.Client
	s.Server += o.Server
	s.Wire += o.Wire
	s.Retrans += o.Retrans
}

// WireShare is the network's share of the time, 0 to 1.
func (s *Shares) WireShare() float64 { return portion(s.Wire, s.Total) }

// ServerShare is that of the host that answers.
func (s *Shares) ServerShare() float64 { return portion(s.Server, s.Total) }

func portion(part, of int64) float64 {
	if of <= 0 {
		return 0
	}
	return float64(part) / float64(of)
}

// Shares splits one request, false where an end could not tell its parts apart. No
// clock is needed: each end's spans are by its own.
func (j *Joined) Shares() (s Shares, ok bool) {
	c, v := j.Called, j.Served
	if c.Ledger[observe.Unaccounted] > 0 || v.Ledger[observe.Unaccounted] > 0 || c.TotalNS <= 0 {
		return s, false
	}
	s.Requests, s.Total = 1, c.TotalNS
	left := s.Total
	take := func(want int64) int64 {
		got := min(max(want, 0), left)
		left -= got
		return got
	}
	s.Client = take(c.Ledger[observe.Upload] + c.Ledger[observe.RecvWait])
	server := v.Ledger[observe.RecvWait] + v.Ledger[observe.Server] + v.Ledger[observe.Stall]
	if c.Seq == v.Seq && c.Seq == 1 {
		// The caller may have waited before it sent anything; that was nobody's wait.
		server += min(v.Ledger[observe.AcceptWait], max(c.Ledger[observe.Server]-v.Ledger[observe.Server]-v.Ledger[observe.RecvWait], 0))
	}
	s.Server = take(server)
	s.Wire = left
	s.Retrans = min(c.Ledger[observe.Retrans]+v.Ledger[observe.Retrans], s.Wire)
	return s, true
}
