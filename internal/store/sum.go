package store

import (
	"cmp"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/observe"
)

// endpointKey tells endpoints apart: a service that was started anew is the same.
type endpointKey struct {
	side, addr, comm string
	netns            uint64
	port             int32
}

func (row *secondRow) key() endpointKey {
	return endpointKey{row.Side, row.Addr, row.Comm, uint64(row.NetNS), row.Port}
}

// compare orders served ones first, then by namespace, address, port and comm.
func (k endpointKey) compare(o endpointKey) int {
	return cmp.Or(-strings.Compare(k.side, o.side), cmp.Compare(k.netns, o.netns), strings.Compare(k.addr, o.addr),
		cmp.Compare(k.port, o.port), strings.Compare(k.comm, o.comm))
}

// sum adds up rows of one endpoint.
type sum struct {
	key         endpointKey
	process     observe.Identity
	peer        *observe.Workload
	pid         int32
	any         bool  // a row was added
	first, last int64 // µs since 1970: the begin of the first row, the end of the last

	scalars    secondRow // counts, sums and maxima; its lists are not used
	total, rtt observe.Histogram
	server     observe.Histogram
	parts      map[string]*observe.Histogram
	flags      map[string]uint64
}

// add adds a row. Rows come in order of time, nearly: the process of the latest
// counts.
func (s *sum) add(row *secondRow) {
	end := row.At + int64(row.Seconds)*1e6
	if !s.any || end >= s.last {
		s.process, s.pid, s.peer = row.process(), row.PID, row.peer()
	}
	if !s.any {
		s.key, s.first, s.last = row.key(), row.At, end
		s.any = true
	}
	s.first, s.last = min(s.first, row.At), max(s.last, end)
	t := &s.scalars
	for i := range countFields {
		c := &countFields[i]
		*c.in(t) = c.Merge.Add(*c.in(t), *c.in(row))
	}
	t.SplitRequests += row.SplitRequests
	t.SplitServerUS += row.SplitServerUS
	ledger, more := t.ledger(), row.ledger()
	for p := range ledger {
		ledger[p] += more[p]
	}
	t.ledgerColumns.set(&ledger)
	split, moreSplit := t.split(), row.split()
	for p := range split {
		split[p] += moreSplit[p]
	}
	t.splitColumns.set(&split)

	addBuckets(&s.total, row.TotalHist, row.TotalMaxUS)
	addBuckets(&s.rtt, row.RTTHist, row.RTTMaxUS)
	addBuckets(&s.server, row.ServerHist, row.ServerMaxUS)
	var h *observe.Histogram
	for i := range row.PartsHist {
		b := &row.PartsHist[i]
		if h == nil || b.Part != row.PartsHist[i-1].Part {
			h = s.part(b.Part)
		}
		h.AddN(fromMicros(b.US), uint64(b.N))
	}
	for _, f := range row.Flags {
		if s.flags == nil {
			s.flags = map[string]uint64{}
		}
		s.flags[f.Flag] += uint64(f.N)
	}
}

// reset empties the sum and keeps its memory.
func (s *sum) reset() {
	s.any, s.scalars, s.peer = false, secondRow{}, nil
	for _, h := range []*observe.Histogram{&s.total, &s.rtt, &s.server} {
		h.Reset()
	}
	for _, h := range s.parts {
		h.Reset()
	}
	s.flags = nil
}

// second is the sum as a Second that begins at a time, s since 1970. It shares the
// sum's histograms.
func (s *sum) second(at int64) Second {
	var x Second
	s.secondInto(at, &x)
	return x
}

// secondInto is second into memory that is used again: that of the lists of x.
func (s *sum) secondInto(at int64, x *Second) {
	t := &s.scalars
	statuses, parts, split := x.Endpoint.Statuses, x.Endpoint.Parts, x.Endpoint.Split
	*x = Second{At: at, Process: s.process}
	e := &x.Endpoint
	*e = observe.Endpoint{
		Side: s.key.side, NetNS: s.key.netns, Addr: s.key.addr, Port: int(s.key.port), PID: int(s.pid), Comm: s.key.comm,
		Workload: s.peer, Total: s.total, RTT: s.rtt, Flags: s.flags,
	}
	clear(statuses)
	e.Statuses = statuses
	for i := range countFields {
		c := &countFields[i]
		c.SetValue(e, *c.in(t))
	}
	ledger := t.ledger()
	if parts == nil {
		parts = map[string]observe.PartStats{}
	}
	clear(parts)
	e.Parts = parts
	for part := range observe.NumParts {
		h := s.parts[part.String()]
		if part == observe.Server {
			h = &s.server
		}
		if p, ok := partOf(ledger[part], h); ok {
			parts[part.String()] = p
		}
	}
	if t.SplitRequests == 0 {
		return
	}
	if split == nil {
		split = &observe.SplitStats{Parts: map[string]observe.PartStats{}}
	}
	clear(split.Parts)
	split.Requests, split.ServerNS = uint64(t.SplitRequests), t.SplitServerUS*1000
	e.Split = split
	times := t.split()
	for part := range observe.NumServerParts {
		if p, ok := partOf(times[part], s.parts[part.String()]); ok {
			split.Parts[part.String()] = p
		}
	}
}

// partOf is false where there is nothing to tell of a part.
func partOf(us int64, h *observe.Histogram) (observe.PartStats, bool) {
	p := observe.PartStats{SumNS: us * 1000}
	if h != nil {
		p.Hist = *h
	}
	return p, us != 0 || p.Hist.Count() > 0
}

// endpointSum is the sum of a whole range.
func (s *sum) endpointSum() EndpointSum {
	sec := s.second(0)
	return EndpointSum{Endpoint: sec.Endpoint, Process: sec.Process, First: time.UnixMicro(s.first).UTC(), Last: time.UnixMicro(s.last).UTC()}
}

// part is the histogram of a part.
func (s *sum) part(name string) *observe.Histogram {
	h := s.parts[name]
	if h == nil {
		if s.parts == nil {
			s.parts = map[string]*observe.Histogram{}
		}
		h = new(observe.Histogram)
		s.parts[strings.Clone(name)] = h
	}
	return h
}

// merge adds what another sum of the same endpoint has.
func (s *sum) merge(o *sum) {
	row := o.scalars
	row.Side, row.Addr, row.Comm, row.NetNS, row.Port, row.PID = o.key.side, o.key.addr, o.key.comm, int64(o.key.netns), o.key.port, o.pid
	row.Cgroup, row.Container, row.ContainerName, row.Unit = o.process.Cgroup, o.process.Container, o.process.ContainerName, o.process.Unit
	row.workloadColumns.set(&o.process.Workload)
	row.peerColumns.set(o.peer)
	row.At, row.Seconds = o.first, int32((o.last-o.first)/1e6)
	s.add(&row)
	s.total.Merge(&o.total)
	s.rtt.Merge(&o.rtt)
	s.server.Merge(&o.server)
	for name, h := range o.parts {
		s.part(name).Merge(h)
	}
	for flag, n := range o.flags {
		if s.flags == nil {
			s.flags = map[string]uint64{}
		}
		s.flags[flag] += n
	}
}
