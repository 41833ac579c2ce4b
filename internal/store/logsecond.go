package store

import "github.com/slowray/slowray/internal/observe"

// A row of endpoints' sums as an entry of a log: first its time, then all
// columns in their order. One list of the columns serves for both directions.

// fields visits the columns of a row. texts and numbers are read or written by
// the visitor as it likes.
func (row *secondRow) fields(text func(*string), number func(*int64), small func(*int32)) {
	number(&row.At)
	// Below zero, workloads follow: slowray.log/1 has none.
	if p, w := row.peer(), row.workload(); p != nil || w != (observe.Workload{}) {
		row.Seconds = -row.Seconds
	}
	small(&row.Seconds)
	for _, s := range []*string{&row.Side, &row.Addr, &row.Comm, &row.Cgroup, &row.Container, &row.ContainerName, &row.Unit} {
		text(s)
	}
	if row.Seconds < 0 {
		row.Seconds = -row.Seconds
		w, p := &row.workloadColumns, &row.peerColumns
		for _, s := range []*string{
			&w.Namespace, &w.Pod, &w.PodContainer, &w.WorkloadKind, &w.Workload, &w.Node, &w.Zone,
			&p.PeerNamespace, &p.PeerPod, &p.PeerWorkloadKind, &p.PeerWorkload, &p.PeerNode, &p.PeerZone,
		} {
			text(s)
		}
	}
	// Below zero, the time of TLS follows: slowray.log/1 and /2 have none.
	if row.TLS != 0 {
		row.Port = -1 - row.Port
	}
	small(&row.Port)
	if row.Port < 0 {
		row.Port = -1 - row.Port
		number(&row.TLS)
	}
	small(&row.PID)
	for _, n := range []*int64{
		&row.NetNS, &row.Requests, &row.OK, &row.Errors, &row.Unanswered, &row.Unfinished, &row.Overlapped, &row.Recorded,
		&row.HTTP1xx, &row.HTTP2xx, &row.HTTP3xx, &row.HTTP4xx, &row.HTTP5xx, &row.BytesIn, &row.BytesOut, &row.Segments,
		&row.RetransSegs, &row.Connections, &row.SynRetrans, &row.HandshakeUS, &row.HandshakeMx, &row.MinRTTUS,
		&row.TotalUS, &row.TotalMaxUS, &row.ServerMaxUS, &row.RTTMaxUS, &row.SplitRequests, &row.SplitServerUS,
	} {
		number(n)
	}
	l, s := &row.ledgerColumns, &row.splitColumns
	for _, n := range []*int64{
		&l.AcceptWait, &l.Upload, &l.RecvWait, &l.Server, &l.Stall, &l.SendWait, &l.Network, &l.Retrans, &l.Unaccounted, &l.AckDelay,
		&s.CPU, &s.Runq, &s.Throttled, &s.Lock, &s.Disk, &s.Pipe, &s.Net, &s.Sleep, &s.Other, &s.Call, &s.Handoff,
	} {
		number(n)
	}
}

func appendSecond(b []byte, row *secondRow) []byte {
	e := encoder{b}
	row.fields(func(s *string) { e.text(*s) }, func(n *int64) { e.int(*n) }, func(n *int32) { e.int(int64(*n)) })
	for _, list := range [][]bucket{row.TotalHist, row.ServerHist, row.RTTHist} {
		e.uint(uint64(len(list)))
		for _, b := range list {
			e.int(fromMicros(b.US))
			e.int(b.N)
		}
	}
	e.uint(uint64(len(row.Flags)))
	for _, f := range row.Flags {
		e.text(f.Flag)
		e.int(f.N)
	}
	e.uint(uint64(len(row.PartsHist)))
	last := ""
	for _, b := range row.PartsHist {
		if b.Part == last {
			e.text("")
		} else {
			e.text(b.Part)
			last = b.Part
		}
		e.int(fromMicros(b.US))
		e.int(b.N)
	}
	return e.b
}

// decodeSecond is the inverse, into a row whose lists are used again, up to the
// histograms that are wanted; false when the entry is malformed up to there.
func decodeSecond(entry []byte, row *secondRow, hists histograms) bool {
	return decodeSecondWith(entry, row, hists, nil)
}

// decodeSecondWith takes texts from a vocabulary.
func decodeSecondWith(entry []byte, row *secondRow, hists histograms, words vocabulary) bool {
	d := decoder{b: entry, words: words}
	lists := *row
	*row = secondRow{}
	row.fields(func(s *string) { *s = d.text() }, func(n *int64) { *n = d.int() }, func(n *int32) { *n = int32(d.int()) })
	if hists == noHists {
		row.TotalHist, row.ServerHist, row.RTTHist = lists.TotalHist[:0], lists.ServerHist[:0], lists.RTTHist[:0]
		row.Flags, row.PartsHist = lists.Flags[:0], lists.PartsHist[:0]
		return !d.bad
	}
	row.TotalHist = d.buckets(lists.TotalHist)
	row.ServerHist = d.buckets(lists.ServerHist)
	row.RTTHist = d.buckets(lists.RTTHist)
	row.Flags = lists.Flags[:0]
	for range d.count() {
		row.Flags = append(row.Flags, flagCount{d.text(), d.int()})
	}
	row.PartsHist = lists.PartsHist[:0]
	if hists != partHists {
		return !d.bad
	}
	last := ""
	for range d.count() {
		if name := d.bytes(); len(name) > 0 {
			last = partName(name)
		}
		row.PartsHist = append(row.PartsHist, partBucket{last, toMicros(d.int()), d.int()})
	}
	return d.ended()
}

func (d *decoder) buckets(list []bucket) []bucket {
	list = list[:0]
	for range d.count() {
		list = append(list, bucket{toMicros(d.int()), d.int()})
	}
	return list
}

// partName is the text of a name that is mostly one of few.
func partName(name []byte) string {
	if known, ok := partNames[string(name)]; ok {
		return known
	}
	return string(name)
}

var partNames = func() map[string]string {
	m := map[string]string{}
	for p := range observe.NumParts {
		m[p.String()] = p.String()
	}
	for p := range observe.NumServerParts {
		m[p.String()] = p.String()
	}
	return m
}()

// count is how many elements follow, each of two bytes at least.
func (d *decoder) count() int {
	n := d.uint()
	if n > uint64(len(d.b))/2 {
		d.bad, d.b = true, nil
		return 0
	}
	return int(n)
}
