package top

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

// row is an endpoint with its figures, as they are shown and sorted.
type row struct {
	id   endpointID
	e    *observe.Endpoint
	addr string // cleaned, like all texts here
	proc string

	rps, errors        float64 // per second
	p50, p99           float64 // of the total, ns
	server50, server99 float64
	network50, rtt     float64
	loss               float64 // per mille
	retrans            float64 // per second
	largest            largestPart
	search             string
}

// endpointID finds an endpoint again in the next picture.
type endpointID struct {
	side, addr string
	netns      uint64
	port, pid  int
}

func rowOf(e *observe.Endpoint, seconds float64) row {
	r := row{
		id: endpointID{e.Side, e.Addr, e.NetNS, e.Port, e.PID}, e: e,
		addr: printable.Text(e.Addr), proc: processName(e.Comm, e.PID),
		p50: float64(e.Total.Quantile(0.5)), p99: float64(e.Total.Quantile(0.99)),
		server50: quantile(e, observe.Server, 0.5), server99: quantile(e, observe.Server, 0.99),
		network50: quantile(e, observe.Network, 0.5), rtt: float64(e.RTT.Quantile(0.5)),
		loss: e.LossPermille(),
	}
	if e.Port != 0 {
		r.addr = net.JoinHostPort(r.addr, strconv.Itoa(e.Port))
	}
	if seconds > 0 {
		r.rps = float64(e.Requests) / seconds
		r.errors = float64(e.Errors+e.Unanswered) / seconds
		r.retrans = float64(e.Retrans) / seconds
	}
	r.largest = greatest(e.Share, func(p observe.ServerPart) float64 { return e.Split.ShareNS(p, e.Share(observe.Server)) })
	r.search = strings.ToLower(r.id.side + " " + r.addr + " " + r.proc + " " + strconv.Itoa(e.PID) + " " + r.largest.name)
	return r
}

func processName(comm string, pid int) string {
	switch {
	case comm != "":
		return printable.Text(comm)
	case pid != 0:
		return "[" + strconv.Itoa(pid) + "]"
	}
	return "?"
}

func quantile(e *observe.Endpoint, p observe.Part, q float64) float64 {
	s := e.Parts[p.String()]
	return float64(s.Hist.Quantile(q))
}

// largestPart is the part that most time goes into: of the server's time, where it is
// split, a part of it.
type largestPart struct {
	of    observe.Part // for its colour
	name  string       // "-" when no time was measured
	share float64      // of the total, 0 to 1
}

// greatest is the largest part, by the shares of parts and of those of Server.
func greatest(share func(observe.Part) float64, split func(observe.ServerPart) float64) largestPart {
	most := largestPart{name: "-"}
	known := false // how Server is split
	for p := range observe.NumServerParts {
		if s := split(p); s > 0 {
			known = true
			if s > most.share {
				most = largestPart{observe.Server, observe.PartName(p.String()), s}
			}
		}
	}
	for _, p := range observe.Parts() {
		if s := share(p); s > most.share && !(known && p == observe.Server) {
			most = largestPart{p, p.String(), s}
		}
	}
	return most
}

// measured writes a time of the records, "-" when there is none.
func (r *row) measured(ns float64) string {
	if r.e.Total.Count() == 0 {
		return "-"
	}
	return duration(ns)
}

// column is one column of the table.
type column struct {
	name  string // in the header
	long  string // in the sentence that tells the order, and in the help
	width int
	max   int  // it may grow to this on a wide terminal
	text  bool // aligned to the left, sorted from A to Z
	rank  int  // when the terminal is narrow, the columns of highest rank are left out; 0 never
	cell  func(*row) string
	// compare orders rows, that of most interest last.
	compare func(a, b *row) int
}

func byNumber(of func(*row) float64) func(a, b *row) int {
	return func(a, b *row) int { return cmp.Compare(of(a), of(b)) }
}

func number(name, long string, rank int, write func(*row) string, of func(*row) float64) column {
	return column{name: name, long: long, width: 5, max: 8, rank: rank, cell: write, compare: byNumber(of)}
}

const mostIn = "most in"

// columns are all columns, in order.
var columns = []column{
	{name: "side", long: "side", width: 6, max: 6, text: true, cell: func(r *row) string { return r.e.Side },
		compare: func(a, b *row) int { return cmp.Compare(b.e.Side, a.e.Side) }},
	{name: "address", long: "address", width: 15, max: 47, text: true, cell: func(r *row) string { return r.addr },
		compare: func(a, b *row) int { return cmp.Compare(b.addr, a.addr) }},
	{name: "process", long: "process", width: 8, max: 16, text: true, cell: func(r *row) string { return r.proc },
		compare: func(a, b *row) int { return cmp.Compare(b.proc, a.proc) }},
	number("req/s", "requests per second", 0, func(r *row) string { return amount(r.rps) }, func(r *row) float64 { return r.rps }),
	number("err/s", "errors per second", 0, func(r *row) string { return amount(r.errors) }, func(r *row) float64 { return r.errors }),
	number("p50", "total, median", 0, func(r *row) string { return r.measured(r.p50) }, func(r *row) float64 { return r.p50 }),
	number("p99", "total, 99th percentile", 0, func(r *row) string { return r.measured(r.p99) }, func(r *row) float64 { return r.p99 }),
	number("srv50", "server time, median", 2, func(r *row) string { return r.measured(r.server50) }, func(r *row) float64 { return r.server50 }),
	number("srv99", "server time, 99th percentile", 0, func(r *row) string { return r.measured(r.server99) }, func(r *row) float64 { return r.server99 }),
	number("net50", "network time, median", 1, func(r *row) string { return r.measured(r.network50) }, func(r *row) float64 { return r.network50 }),
	number("loss‰", "segments retransmitted per thousand", 0, func(r *row) string { return amount(r.loss) }, func(r *row) float64 { return r.loss }),
	number("rtt", "round trip, median", 1, func(r *row) string { return r.measured(r.rtt) }, func(r *row) float64 { return r.rtt }),
	number("rtx/s", "segments retransmitted per second", 3, func(r *row) string { return amount(r.retrans) }, func(r *row) float64 { return r.retrans }),
	{name: mostIn, long: "share of the largest part", width: 8, max: 20, text: true, cell: func(r *row) string { return r.largest.text() },
		compare: byNumber(func(r *row) float64 { return r.largest.share })},
}

// text is a part with its share.
func (l *largestPart) text() string {
	if l.share == 0 {
		return l.name
	}
	return l.name + " " + percent(l.share)
}

// defaultSort is the column by which the table is sorted at first.
var defaultSort = slices.IndexFunc(columns, func(c column) bool { return c.name == "req/s" })

// placed is a column with its place on the screen.
type placed struct {
	index int
	width int
}

// place chooses the columns that fit and gives them the room there is. With no
// width (0) every column gets all the room its cells need.
func place(width int, rows []row) []placed {
	shown := make([]placed, 0, len(columns))
	for i := range columns {
		shown = append(shown, placed{i, columns[i].width})
	}
	need := func() int {
		sum := 0
		for _, p := range shown {
			sum += p.width + 1 // a blank, or the mark of the selected row
		}
		return sum
	}
	for width > 0 && need() > width {
		out := slices.MaxFunc(shown, func(a, b placed) int { return cmp.Compare(columns[a.index].rank, columns[b.index].rank) })
		if columns[out.index].rank == 0 {
			break
		}
		shown = slices.DeleteFunc(shown, func(p placed) bool { return p == out })
	}
	for i := range shown {
		p := &shown[i]
		wish := columnWidth(len([]rune(columns[p.index].name)), &columns[p.index], rows)
		p.width += min(max(wish-p.width, 0), roomLeft(width, need()))
	}
	return shown
}

func roomLeft(width, need int) int {
	if width <= 0 {
		return 1 << 10
	}
	return max(width-need, 0)
}

// columnWidth is what the cells of a column would like.
func columnWidth(wish int, c *column, rows []row) int {
	for i := range rows {
		wish = max(wish, len([]rune(c.cell(&rows[i]))))
	}
	return min(wish, c.max)
}

// cell is a column's text of a row, as wide as its place.
func (p placed) cell(r *row) string {
	c := &columns[p.index]
	text := c.cell(r)
	switch {
	case c.name == "address":
		return tail(text, p.width)
	case c.name == mostIn && p.width < len(text):
		return left(partShort(r, p.width), p.width)
	case c.text:
		return left(text, p.width)
	}
	return right(text, p.width)
}

// partShort names the greatest part without the word that it shares with others, and
// without its share where that is still too long.
func partShort(r *row, width int) string {
	short := r.largest
	short.name = strings.TrimPrefix(short.name, observe.Server.String()+" ")
	if text := short.text(); len(text) <= width {
		return text
	}
	if len(short.name) > width {
		return strings.TrimSuffix(short.name, "_wait")
	}
	return short.name
}

// header is a column's name behind the blank that parts it from the column
// before, in which an arrow says that the table is sorted by it.
func (p placed) header(sorted, reversed bool) string {
	c := &columns[p.index]
	mark := " "
	switch {
	case sorted && reversed:
		mark = "▲"
	case sorted:
		mark = "▼"
	}
	if c.text {
		return mark + left(ansi.Truncate(c.name, p.width, ""), p.width)
	}
	if sorted { // the arrow stands right before the name
		return right(mark+c.name, p.width+1)
	}
	return mark + right(c.name, p.width)
}

// sortRows orders rows by a column, ties by address.
func sortRows(rows []row, by int, reversed bool) {
	sign := -1
	if reversed {
		sign = 1
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(sign*columns[by].compare(&a, &b), cmp.Compare(a.addr, b.addr), cmp.Compare(a.id.side, b.id.side), cmp.Compare(a.id.netns, b.id.netns), cmp.Compare(a.id.pid, b.id.pid))
	})
}
