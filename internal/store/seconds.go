package store

import (
	"cmp"
	"math"
	"reflect"
	"slices"
	"strings"
	"unsafe"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/schema"
)

// secondRow is a row of seconds/…, seconds10/… and minutes5/…: what one endpoint
// did in some time. Rows of the same endpoint and time add up. docs/history-columns.md
// tells what each column holds.
type secondRow struct {
	At            int64  `parquet:"start,timestamp(microsecond),delta"` // the beginning
	Seconds       int32  `parquet:"seconds,delta"`                      // how long
	Side          string `parquet:"side,dict"`
	NetNS         int64  `parquet:"netns,dict"`
	Addr          string `parquet:"addr,dict"`
	Port          int32  `parquet:"port,delta"`
	PID           int32  `parquet:"pid,delta"`
	Comm          string `parquet:"comm,dict"`
	Cgroup        string `parquet:"cgroup,dict"`
	Container     string `parquet:"container,dict"`
	ContainerName string `parquet:"container_name,dict"`
	Unit          string `parquet:"unit,dict"`
	workloadColumns
	peerColumns

	Requests    int64 `parquet:"requests,delta"`
	OK          int64 `parquet:"ok,delta"`
	Errors      int64 `parquet:"errors,delta"`
	Unanswered  int64 `parquet:"unanswered,delta"`
	Unfinished  int64 `parquet:"unfinished,delta"`
	Overlapped  int64 `parquet:"overlapped,delta"`
	Recorded    int64 `parquet:"recorded,delta"`
	HTTP1xx     int64 `parquet:"http_1xx,delta"`
	HTTP2xx     int64 `parquet:"http_2xx,delta"`
	HTTP3xx     int64 `parquet:"http_3xx,delta"`
	HTTP4xx     int64 `parquet:"http_4xx,delta"`
	HTTP5xx     int64 `parquet:"http_5xx,delta"`
	BytesIn     int64 `parquet:"bytes_in,delta"`
	BytesOut    int64 `parquet:"bytes_out,delta"`
	Segments    int64 `parquet:"segments,delta"`
	RetransSegs int64 `parquet:"retrans,delta"`
	Connections int64 `parquet:"connections,delta"`
	SynRetrans  int64 `parquet:"syn_retrans,delta"`
	HandshakeUS int64 `parquet:"handshake_us,delta"`
	HandshakeMx int64 `parquet:"handshake_max_us,delta"`
	MinRTTUS    int64 `parquet:"min_rtt_us,delta"`

	TotalUS     int64 `parquet:"total_us,delta"`
	TotalMaxUS  int64 `parquet:"total_max_us,delta"`
	ServerMaxUS int64 `parquet:"server_max_us,delta"`
	RTTMaxUS    int64 `parquet:"rtt_max_us,delta"`
	ledgerColumns
	SplitRequests int64 `parquet:"split_requests,delta"`
	SplitServerUS int64 `parquet:"split_server_us,delta"`
	splitColumns

	TotalHist  []bucket     `parquet:"total_hist,list"`
	ServerHist []bucket     `parquet:"server_hist,list"`
	RTTHist    []bucket     `parquet:"rtt_hist,list"`
	PartsHist  []partBucket `parquet:"parts_hist,list"`
	Flags      []flagCount  `parquet:"flags,list"`
}

// bucket is how many values of a histogram lie near a value, within 1.6 %.
type bucket struct {
	US float64 `parquet:"us,dict"`
	N  int64   `parquet:"n,delta"`
}

// histograms is which histograms of a row are read.
type histograms uint8

const (
	noHists    histograms = iota // nor any other list: no flags
	wholeHists                   // of the total, the round trips and Server
	partHists                    // and of all parts
)

// hists is which histograms a query reads.
func (q *Query) hists() histograms {
	switch {
	case q.Counts:
		return noHists
	case q.PartHists:
		return partHists
	}
	return wholeHists
}

// reads says whether a column is read.
func (h histograms) reads(path string) bool {
	column, _, inList := strings.Cut(path, ".list.")
	switch {
	case !inList:
		return true
	case column == "parts_hist":
		return h == partHists
	}
	return h != noHists
}

// partBucket is a bucket of one part's histogram.
type partBucket struct {
	Part string  `parquet:"part,dict"`
	US   float64 `parquet:"us,dict"`
	N    int64   `parquet:"n,delta"`
}

// flagCount is how many requests had a flag.
type flagCount struct {
	Flag string `parquet:"flag,dict"`
	N    int64  `parquet:"n,delta"`
}

// toMicros is a value of a histogram as it stands in the columns "us"; fromMicros
// is its inverse, also where a file holds nonsense.
func toMicros(ns int64) float64 { return float64(ns) / 1000 }

func fromMicros(us float64) int64 {
	if !(us > 0) {
		return 0
	}
	return int64(math.Round(min(us, 1e15) * 1000))
}

func buckets(h *observe.Histogram) []bucket {
	var list []bucket
	for ns, n := range h.Buckets() {
		list = append(list, bucket{toMicros(ns), int64(n)})
	}
	return list
}

func addBuckets(h *observe.Histogram, list []bucket, maxUS int64) {
	for _, b := range list {
		h.AddBucket(fromMicros(b.US), uint64(b.N))
	}
	h.RaiseMax(fromMicros(float64(maxUS)))
}

// countField is a count of an endpoint's second, and where its column is in a row.
type countField struct {
	schema.Count
	offset uintptr
}

func (c *countField) in(row *secondRow) *int64 {
	return (*int64)(unsafe.Add(unsafe.Pointer(row), c.offset))
}

// countFields are all that a row has.
var countFields = func() (list []countField) {
	columns := columnsOf[secondRow]()
	for _, c := range schema.Counts {
		column, ok := columns[c.Name]
		if !ok || column.kind != reflect.Int64 {
			panic("store: seconds have no column " + c.Name)
		}
		list = append(list, countField{c, column.offset})
	}
	return list
}()

// set makes the row of an endpoint that was watched for this many seconds.
func (row *secondRow) set(sec *Second, seconds int) {
	e, p := &sec.Endpoint, &sec.Process
	*row = secondRow{
		At: sec.At * 1e6, Seconds: int32(seconds), Side: e.Side, NetNS: int64(e.NetNS), Addr: e.Addr, Port: int32(e.Port), PID: int32(e.PID),
		Comm: cmp.Or(e.Comm, p.Comm), Cgroup: p.Cgroup, Container: p.Container, ContainerName: p.ContainerName, Unit: p.Unit,
		TotalHist: buckets(&e.Total), RTTHist: buckets(&e.RTT),
	}
	row.workloadColumns.set(&p.Workload)
	row.peerColumns.set(e.Workload)
	for i := range countFields {
		c := &countFields[i]
		*c.in(row) = c.Value(e)
	}
	var ledger observe.Ledger
	for part := range observe.NumParts {
		s, ok := e.Parts[part.String()]
		if !ok {
			continue
		}
		ledger[part] = micros(s.SumNS)
		if part == observe.Server {
			row.ServerHist, row.ServerMaxUS = buckets(&s.Hist), micros(s.Hist.Max())
		} else {
			row.addPart(part.String(), &s.Hist)
		}
	}
	row.ledgerColumns.set(&ledger)
	row.TotalUS, row.TotalMaxUS, row.RTTMaxUS = ledger.Total(), micros(e.Total.Max()), micros(e.RTT.Max())
	if e.Split != nil {
		row.SplitRequests, row.SplitServerUS = int64(e.Split.Requests), micros(e.Split.ServerNS)
		var split observe.ServerSplit
		for part := range observe.NumServerParts {
			if s, ok := e.Split.Parts[part.String()]; ok {
				split[part] = micros(s.SumNS)
				row.addPart(part.String(), &s.Hist)
			}
		}
		row.splitColumns.set(&split)
	}
	for flag, n := range e.Flags {
		row.Flags = append(row.Flags, flagCount{flag, int64(n)})
	}
	slices.SortFunc(row.Flags, func(a, b flagCount) int { return strings.Compare(a.Flag, b.Flag) })
}

func (row *secondRow) addPart(name string, h *observe.Histogram) {
	for ns, n := range h.Buckets() {
		row.PartsHist = append(row.PartsHist, partBucket{name, toMicros(ns), int64(n)})
	}
}

// process is whose row it is.
func (row *secondRow) process() observe.Identity {
	return observe.Identity{Comm: row.Comm, Cgroup: row.Cgroup, Container: row.Container, ContainerName: row.ContainerName, Unit: row.Unit, Workload: row.workload()}
}
