package clickhouse

import (
	"cmp"
	"math/bits"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/schema"
	"github.com/slowray/slowray/internal/store"
)

// partKey is what a bucket of a part is known by in parts_histMap: the parts of the
// ledger come first, those of the server's time after them.
func partKey(part, bucket int) uint16 { return uint16(part<<11 | bucket) }

// The parts must have room above the buckets.
const _ = uint16((int(observe.NumParts)+int(observe.NumServerParts)-1)<<11 | (1<<11 - 1))
const _ = uint(1<<11 - observe.NumBuckets)

// secondRows collects what endpoints did in seconds.
type secondRows struct {
	*block
	hostPart
	words words
	c     map[string]*column
	sums  []*column // by sumDefs
	hists map[string]*bucketColumn
	value []uint64 // of sums, for one row
}

func newSecondRows(table string) *secondRows {
	b, c, hists := newBlock(table, secondDefs)
	w := &secondRows{block: b, hostPart: newHostPart(c), c: c, hists: hists, value: make([]uint64, len(sumDefs))}
	for _, d := range sumDefs {
		w.sums = append(w.sums, c[d.name])
	}
	return w
}

func putHist(c *bucketColumn, h *observe.Histogram, part int) {
	for bucket, n := range h.Numbered() {
		c.put(partKey(part, bucket), n)
	}
}

// add appends a second.
func (w *secondRows) add(b *fleet.Batch, p fleet.Position, s *store.Second) {
	e, row := &s.Endpoint, w.rows
	process := s.Process
	process.Comm = cmp.Or(e.Comm, process.Comm)
	side := observe.Served
	if e.Side == observe.Called.String() {
		side = observe.Called
	}
	w.hostPart.put(row, b, p, s.At*1e6, w.words.service(side, &process, e.Port))
	c := w.c
	c["seconds"].put32(row, 1)
	c["side"].put8(row, uint8(side))
	c["netns"].put64(row, e.NetNS)
	c["addr"].putText(row, e.Addr)
	c["port"].put16(row, uint16(e.Port))
	c["pid"].put32(row, uint32(e.PID))
	c["comm"].putText(row, process.Comm)
	c["cgroup"].putText(row, process.Cgroup)
	c["container"].putText(row, process.Container)
	c["container_name"].putText(row, process.ContainerName)
	c["unit"].putText(row, process.Unit)
	for _, f := range schema.WorkloadFields(&process.Workload) {
		c[f.Name].putText(row, *f.Value)
	}
	if e.Workload != nil {
		for _, f := range schema.WorkloadFields(e.Workload) {
			if peer := c["peer_"+f.Name]; peer != nil {
				peer.putText(row, *f.Value)
			}
		}
	}
	w.values(e)
	for i, column := range w.sums {
		column.put64(row, w.value[i])
	}
	w.histograms(e)
	w.rows++
}

// values are the sums, in the order of sumDefs.
func (w *secondRows) values(e *observe.Endpoint) {
	v := w.value[:0]
	for i := range schema.Counts {
		v = append(v, uint64(schema.Counts[i].Value(e)))
	}
	derived := len(v) - 4 // the last ones of schema.Counts
	var ledger observe.Ledger
	for p := range observe.NumParts {
		s := e.Parts[p.String()]
		if ledger[p] = schema.RoundMicros(s.SumNS); p == observe.Server {
			v[derived+2] = uint64(schema.RoundMicros(s.Hist.Max()))
		}
		v = append(v, uint64(ledger[p]))
	}
	v[derived], v[derived+1], v[derived+3] = uint64(ledger.Total()), uint64(schema.RoundMicros(e.Total.Max())), uint64(schema.RoundMicros(e.RTT.Max()))
	split := observe.SplitStats{}
	if e.Split != nil {
		split = *e.Split
	}
	v = append(v, split.Requests, uint64(schema.RoundMicros(split.ServerNS)))
	for p := range observe.NumServerParts {
		v = append(v, uint64(schema.RoundMicros(split.Parts[p.String()].SumNS)))
	}
	w.value = v
}

func (w *secondRows) histograms(e *observe.Endpoint) {
	total, server, rtt, parts, flags := w.hists["total_histMap"], w.hists["server_histMap"], w.hists["rtt_histMap"], w.hists["parts_histMap"], w.hists["flagsMap"]
	putHist(total, &e.Total, 0)
	putHist(rtt, &e.RTT, 0)
	for p := range observe.NumParts {
		s, ok := e.Parts[p.String()]
		switch {
		case ok && p == observe.Server:
			putHist(server, &s.Hist, 0)
		case ok:
			putHist(parts, &s.Hist, int(p))
		}
	}
	if e.Split != nil {
		for p := range observe.NumServerParts {
			if s, ok := e.Split.Parts[p.String()]; ok {
				putHist(parts, &s.Hist, int(observe.NumParts)+int(p))
			}
		}
	}
	for name, n := range e.Flags {
		if flag := schema.Flag(name); flag != 0 {
			flags.put(uint16(bits.TrailingZeros32(uint32(flag))), n)
		}
	}
	for _, c := range w.buckets {
		c.end()
	}
}
