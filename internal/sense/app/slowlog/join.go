package slowlog

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// Entry is one statement that a server found slow.
type Entry struct {
	Statement string // normalised
	EndNS     int64  // when it was over, ns since 1970
	SlackNS   int64  // EndNS is right to this much, either way
	TookNS    int64  // as the server says
	LockNS    int64
	Examined  int64
	Sent      int64
	Peer      netip.Addr // who asked; the zero Addr where the log does not say
	PeerPort  int        // 0 where it does not say
	PID       int        // process that answered; 0 where it does not say
}

// Record is what is kept of a request to join it with.
type Record struct {
	Port      int // it was answered at
	NetNS     uint64
	PID       int
	Peer      netip.AddrPort
	Caller    int   // process at the other end, 0 when it is not on this host
	StartNS   int64 // ns since 1970
	TotalNS   int64
	ServerNS  int64 // server and stall
	NetworkNS int64
	QueueNS   int64
	Retrans   int64
}

// NewRecord takes what is needed of a request.
func NewRecord(r *observe.Request) Record {
	l := &r.Ledger
	return Record{
		Port: int(r.Local.Port()), NetNS: r.NetNS, PID: r.PID, Peer: netip.AddrPortFrom(r.Peer.Addr().Unmap(), r.Peer.Port()),
		StartNS: r.StartNS, TotalNS: r.TotalNS(),
		ServerNS:  l[observe.Server] + l[observe.Stall],
		NetworkNS: l[observe.Network] + l[observe.Retrans] + l[observe.SendWait] + l[observe.Upload],
		QueueNS:   l[observe.AcceptWait] + l[observe.RecvWait],
		Retrans:   int64(r.Retrans),
	}
}

// clockSlack is how far two clocks of the same host are apart, and how long a
// server takes from the last byte it sends to the time it writes down.
const clockSlack = 20e6

// fits says that an entry can be of the request, and how well: 0 where the
// time the server says lies between what passed until the first byte of the
// answer and all of the request, which it does where sending took long.
func fits(e *Entry, r *Record) (distance int64, ok bool) {
	switch {
	case e.Peer.IsValid() && e.Peer.Unmap() != r.Peer.Addr(),
		e.PeerPort != 0 && e.PeerPort != int(r.Peer.Port()),
		e.PID != 0 && r.PID != 0 && e.PID != r.PID:
		return 0, false
	}
	slack := e.SlackNS + clockSlack
	if end := r.StartNS + r.TotalNS; e.EndNS < r.StartNS-slack || e.EndNS > end+slack || e.TookNS > r.TotalNS+clockSlack {
		return 0, false
	}
	return max(r.ServerNS-e.TookNS, e.TookNS-r.TotalNS, 0), true
}

// join finds the request of each entry, or -1. A request is that of one entry:
// the longest entries choose first.
func join(entries []Entry, records []Record) []int {
	order := make([]int, len(entries))
	found := make([]int, len(entries))
	for i := range order {
		order[i], found[i] = i, -1
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(entries[b].TookNS, entries[a].TookNS) })
	byStart := make([]int, len(records))
	var longest int64
	for i := range byStart {
		byStart[i] = i
		longest = max(longest, records[i].TotalNS)
	}
	slices.SortStableFunc(byStart, func(a, b int) int { return cmp.Compare(records[a].StartNS, records[b].StartNS) })
	taken := make([]bool, len(records))
	looked := 0
	for _, i := range order {
		e := &entries[i]
		slack := e.SlackNS + clockSlack
		from, _ := slices.BinarySearchFunc(byStart, e.EndNS-longest-slack, func(r int, at int64) int { return cmp.Compare(records[r].StartNS, at) })
		best := int64(-1)
		for _, r := range byStart[from:] {
			if records[r].StartNS > e.EndNS+slack {
				break
			}
			if looked++; looked > maxLooks {
				return found
			}
			if taken[r] {
				continue
			}
			d, ok := fits(e, &records[r])
			if ok && (best < 0 || d < best || d == best && records[r].outside() < records[found[i]].outside()) {
				best, found[i] = d, r
			}
		}
		if found[i] >= 0 {
			taken[found[i]] = true
		}
	}
	return found
}

// outside is the time that a request was not in the server: the less of it, the
// more there is to an entry that fits.
func (r *Record) outside() int64 { return r.TotalNS - r.ServerNS }

// maxLooks bounds the comparisons of one join, to some hundredths of a second.
// The entries that took least come last.
const maxLooks = 5_000_000

// maxStatements is how many statements are distinguished in the sums.
const maxStatements = 32

// Sum adds the entries, joined with the requests that were recorded at the
// server, to its log.
func Sum(log *observe.SlowLog, entries []Entry, records []Record) {
	found := join(entries, records)
	by := map[string]*observe.SlowStatement{}
	for i := range entries {
		e := &entries[i]
		log.Entries++
		log.NS += e.TookNS
		s := by[e.Statement]
		if s == nil {
			s = &observe.SlowStatement{Statement: e.Statement}
			by[e.Statement] = s
		}
		s.Count++
		s.NS += e.TookNS
		s.LongestNS = max(s.LongestNS, e.TookNS)
		s.LockNS += e.LockNS
		s.Examined += e.Examined
		s.Sent += e.Sent
		if found[i] < 0 {
			log.Unjoined++
			continue
		}
		r := &records[found[i]]
		log.Joined++
		s.Joined++
		s.RequestNS += r.TotalNS
		s.ServerNS += r.ServerNS
		s.NetworkNS += r.NetworkNS
		s.QueueNS += r.QueueNS
		s.Retrans += r.Retrans
		if r.NetworkNS > r.ServerNS {
			s.OnWire++
		}
		addCaller(s, r)
	}
	for _, s := range by {
		slices.SortFunc(s.Callers, func(a, b observe.SlowCaller) int {
			return cmp.Or(cmp.Compare(b.ServerNS, a.ServerNS), cmp.Compare(a.PID, b.PID))
		})
		s.Callers = s.Callers[:min(len(s.Callers), maxCallers)]
		log.Statements = append(log.Statements, *s)
	}
	slices.SortFunc(log.Statements, func(a, b observe.SlowStatement) int {
		return cmp.Or(cmp.Compare(b.NS, a.NS), cmp.Compare(a.Statement, b.Statement))
	})
	log.Statements = log.Statements[:min(len(log.Statements), maxStatements)]
}

const (
	maxCallers = 4
	// maxSeenCallers bounds how many are distinguished while they are summed up.
	maxSeenCallers = 256
)

func addCaller(s *observe.SlowStatement, r *Record) {
	if r.Caller == 0 {
		return
	}
	i := slices.IndexFunc(s.Callers, func(c observe.SlowCaller) bool { return c.PID == r.Caller })
	if i < 0 {
		if len(s.Callers) == maxSeenCallers {
			return
		}
		i = len(s.Callers)
		s.Callers = append(s.Callers, observe.SlowCaller{PID: r.Caller})
	}
	c := &s.Callers[i]
	c.Joined++
	c.RequestNS += r.TotalNS
	c.ServerNS += r.ServerNS
}
