package web

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	num "github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// Bounds of what is looked at request by request.
const (
	maxGroups   = 5000                   // values of one dimension of one endpoint
	groupTime   = 500 * time.Millisecond // of each side
	pieceCount  = 16                     // pieces that each side is read in, where it has
	leastPieces = 50_000                 // so many requests: each piece reads its files anew
	othersName  = "\x00others"
	leastShare  = 0.05 // a change of the share of requests that is reported
	leastExcess = 0.10 // of the added time beyond the share of the requests
	sure        = 3    // standard errors
)

// group is requests that have one thing in common, each counted by its weight.
type group struct {
	n          uint64  // records
	w, w2      float64 // sums of the weights and of their squares
	sum, sumSq float64 // of ns, and of its squares
}

func (g *group) add(weight, ns float64) {
	g.n++
	g.w += weight
	g.w2 += weight * weight
	g.sum += weight * ns
	g.sumSq += weight * ns * ns
}

func (g *group) mean() float64 {
	if g.w == 0 {
		return 0
	}
	return g.sum / g.w
}

// size is how many requests of equal weight would tell as much (Kish's effective
// sample size).
func (g *group) size() float64 {
	if g.w2 == 0 {
		return 0
	}
	return g.w * g.w / g.w2
}

// error2 is the square of the mean's standard error.
func (g *group) error2() float64 {
	if g.size() < 2 {
		return math.Inf(1)
	}
	m := g.mean()
	return max(g.sumSq/g.w-m*m, 0) / (g.size() - 1)
}

// grouped is the requests of one endpoint on one side, by what they have in common.
type grouped struct {
	all  group
	dims map[string]map[string]*group
}

func (g *grouped) add(dimension, name string, weight, ns float64) {
	if g.dims == nil {
		g.dims = map[string]map[string]*group{}
	}
	d := g.dims[dimension]
	if d == nil {
		d = map[string]*group{}
		g.dims[dimension] = d
	}
	x := d[name]
	if x == nil {
		if len(d) >= maxGroups {
			name = othersName
		}
		if x = d[name]; x == nil {
			x = &group{}
			d[name] = x
		}
	}
	x.add(weight, ns)
}

// ofRecorder are flags that tell of the recording, not of the request.
const ofRecorder = observe.FlagSlow | observe.FlagAmended | observe.FlagEstimated | observe.FlagPreexisting | observe.FlagUnfinished

func (g *grouped) request(r *store.Request) {
	weight := float64(max(r.Weight, 1)) * float64(max(r.Requests, 1))
	ns := float64(r.TotalNS())
	g.all.add(weight, ns)
	g.add(byPeer, r.Peer.Addr().Unmap().WithZone("").String(), weight, ns)
	if r.PID != 0 {
		g.add(byProcess, fmt.Sprintf("%s (%d)", r.Process.Comm, r.PID), weight, ns)
	}
	g.add(byStatus, statusName(r), weight, ns)
	if r.Label != "" {
		g.add(byLabel, clip(r.Label, 200), weight, ns)
	}
	for f := uint32(r.Flags &^ ofRecorder); f != 0; f &= f - 1 {
		for _, name := range observe.RequestFlags(f & -f).Names() {
			g.add(byFlag, name, weight, ns)
		}
	}
}

func statusName(r *store.Request) string {
	switch {
	case r.Flags&observe.FlagUnanswered != 0:
		return "no answer"
	case r.HTTP != 0:
		return fmt.Sprintf("HTTP %d", r.HTTP)
	}
	return r.Status.String()
}

// pieces cuts ranges into so many, in an order in which any first ones are spread
// over all: reading may have to stop early.
func pieces(ranges []timeRange, n int) []timeRange {
	var whole time.Duration
	for _, r := range ranges {
		whole += r.to.Sub(r.from)
	}
	each := max(whole/time.Duration(n), time.Second)
	var list []timeRange
	for _, r := range ranges {
		for from := r.from; from.Before(r.to); from = from.Add(each) {
			list = append(list, timeRange{from, earliest(from.Add(each), r.to)})
		}
	}
	// Bits reversed, as van der Corput's sequence has it.
	width := bits.Len(uint(len(list) - 1))
	type placed struct {
		at uint64
		r  timeRange
	}
	order := make([]placed, len(list))
	for i, r := range list {
		order[i] = placed{bits.Reverse64(uint64(i)) >> (64 - max(width, 1)), r}
	}
	slices.SortFunc(order, func(a, b placed) int { return cmp.Compare(a.at, b.at) })
	for i := range order {
		list[i] = order[i].r
	}
	return list
}

// gather reads stored requests of ranges for as long as there is time.
func (s *server) gather(ctx context.Context, q *query, ranges []timeRange, into map[endpointKey]*grouped) (read float64, err error) {
	deadline, n, over := time.Now().Add(groupTime), 0, false
	list := ranges
	if many, err := s.moreThan(q, ranges, leastPieces); err != nil {
		return 0, err
	} else if many {
		list = pieces(ranges, pieceCount)
	}
	for i, piece := range list {
		for _, ask := range q.queries(piece) {
			err := s.source.Requests(ask, func(r *store.Request) bool {
				if g := into[keyOfRequest(r)]; g != nil && r.Flags&observe.FlagUnfinished == 0 {
					g.request(r)
				}
				n++
				over = n%1024 == 0 && (ctx.Err() != nil || time.Now().After(deadline))
				return !over
			})
			if err != nil {
				return 0, err
			}
			if over {
				return float64(i) / float64(len(list)), ctx.Err()
			}
		}
	}
	return 1, ctx.Err()
}

// moreThan says whether the stored requests of ranges stand for more than so many.
func (s *server) moreThan(q *query, ranges []timeRange, most uint64) (bool, error) {
	var n uint64
	for _, r := range ranges {
		for _, ask := range q.queries(r) {
			h, err := s.source.Totals(ask)
			if err != nil {
				return false, err
			}
			n += h.Count()
		}
	}
	return n > most, nil
}

// compareGroups finds what requests have in common that explains the added time
// beyond their number, and what comes more or less often than outside.
func (s *server) compareGroups(ctx context.Context, q *query, outside []timeRange, compared []*comparedJSON, lost *losses) ([]*differenceRow, error) {
	if len(compared) == 0 {
		return nil, nil
	}
	in, out := map[endpointKey]*grouped{}, map[endpointKey]*grouped{}
	for _, c := range compared {
		in[c.key], out[c.key] = &grouped{}, &grouped{}
	}
	for _, side := range []struct {
		name   string
		ranges []timeRange
		into   map[endpointKey]*grouped
	}{{"the range", []timeRange{q.timeRange}, in}, {"what is outside", outside, out}} {
		read, err := s.gather(ctx, q, side.ranges, side.into)
		if err != nil {
			return nil, err
		}
		if read < 1 {
			lost.add(fmt.Sprintf("per cent of %s were not read, for peers, processes and statuses: a sample that is spread over all of it was", side.name), int64(math.Ceil(100-100*read)))
		}
	}
	var rows []*differenceRow
	for _, c := range compared {
		a, b := in[c.key], out[c.key]
		if a.all.n == 0 || b.all.n == 0 {
			continue
		}
		for dimension, groups := range a.dims {
			rows = append(rows, c.groups(dimension, groups, b.dims[dimension], &a.all, &b.all)...)
		}
		for dimension, groups := range b.dims {
			if a.dims[dimension] == nil {
				rows = append(rows, c.groups(dimension, nil, groups, &a.all, &b.all)...)
			}
		}
	}
	sortRows(rows)
	return rows, nil
}

// sortRows gives rows that come out of maps, which have no order, one.
func sortRows(rows []*differenceRow) {
	slices.SortFunc(rows, func(a, b *differenceRow) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.Dimension, b.Dimension), cmp.Compare(a.Name, b.Name))
	})
}

// groups compares the values of one dimension.
func (c *comparedJSON) groups(dimension string, in, out map[string]*group, allIn, allOut *group) []*differenceRow {
	var rows []*differenceRow
	for name, a := range in {
		b := out[name]
		if b == nil {
			b = &group{}
		}
		if r := c.group(dimension, name, a, b, allIn, allOut); r != nil {
			rows = append(rows, r)
		}
	}
	for name, b := range out {
		if in[name] == nil {
			if r := c.group(dimension, name, &group{}, b, allIn, allOut); r != nil {
				rows = append(rows, r)
			}
		}
	}
	return rows
}

// group compares one value of a dimension; nil when nothing is to be reported.
//
// The mean of all inside less that outside is the sum over the values of
// share·(mean - M) inside less the same outside, M being the mean of all outside:
// so much of the added time is that value's, be it that its requests became
// slower or that there are more of slow ones.
func (c *comparedJSON) group(dimension, name string, a, b, allIn, allOut *group) *differenceRow {
	shareIn, shareOut := a.w/allIn.w, b.w/allOut.w
	base := allOut.mean()
	added := allIn.mean() - base
	scale := max(allIn.mean(), base)
	mine := shareIn*(a.mean()-base) - shareOut*(b.mean()-base)
	shown := name
	if name == othersName {
		shown = "all others"
	}
	r := &differenceRow{Dimension: dimension, Name: shown, Key: &c.Key, Explains: figure(nothing), Ratio: figure(nothing), Of: sizeJSON{a.n, b.n}}
	in, out := figure(shareIn), figure(shareOut)
	r.ShareIn, r.ShareOut = &in, &out
	slower := a.n > 0 && math.Abs(a.mean()-b.mean()) > sure*math.Sqrt(a.error2()+b.error2()) ||
		a.n > 0 && b.n == 0 && math.Abs(a.mean()-base) > sure*math.Sqrt(a.error2()+allOut.error2())
	if math.Abs(added) >= leastChange*scale {
		r.Explains = figure(mine / added)
	}
	excess := 0.0
	if added >= leastChange*scale {
		excess = mine/added - shareIn
	}
	timeTells := excess >= leastExcess && (slower || a.size() < fewRequests) && a.n > 0 && shareIn < 1-1e-9 &&
		dimension != byStatus && dimension != byFlag
	d := shareIn - shareOut
	shareTells := math.Abs(d) >= leastShareOf(dimension) && math.Abs(d) > sure*shareError(shareIn, shareOut, allIn.size(), allOut.size())
	switch {
	case timeTells:
		r.Unit, r.Inside, r.Outside, r.Ratio = unitUS, figure(a.mean()/1e3), figure(nothing), quotient(a.mean(), b.mean())
		text := fmt.Sprintf("%s: %s a request", shown, span(a.mean()))
		if b.n > 0 {
			r.Outside = figure(b.mean() / 1e3)
			text += fmt.Sprintf(", %s outside%s", span(b.mean()), times(a.mean(), b.mean()))
		} else {
			text += ", none outside"
		}
		r.Text = fmt.Sprintf("%s; %s of the added time, %s of the requests%s.", text, portion(mine/added), num.Percent(shareIn), caveat(a.n, max(b.n, fewRequests)))
		r.score = c.weight * min(excess, 1)
		r.Few = min(a.size(), allOut.size()) < fewRequests
	case shareTells && !(d < 0 && wellStatus(dimension, name)): // that fewer are well is known by what more are
		r.Unit, r.Inside, r.Outside, r.Ratio = unitShare, in, out, quotient(shareIn, shareOut)
		r.Text = fmt.Sprintf("%s: %s of the requests, %s outside%s.", shown, num.Percent(shareIn), num.Percent(shareOut), caveat(allIn.n, allOut.n))
		r.score = shareScore(dimension, name, d) * max(c.weight, 0.2)
		r.Few = min(allIn.size(), allOut.size()) < fewRequests
	default:
		return nil
	}
	if r.Few {
		r.score /= 3
	}
	return r
}

// leastShareOf is the change of a share that is reported: of errors, a small one.
func leastShareOf(dimension string) float64 {
	if dimension == byStatus || dimension == byFlag {
		return 0.01
	}
	return leastShare
}

// wellStatus says that a status is that of a good answer.
func wellStatus(dimension, name string) bool {
	return dimension == byStatus && (name == "ok" || strings.HasPrefix(name, "HTTP 2") || strings.HasPrefix(name, "HTTP 3"))
}

func shareScore(dimension, name string, d float64) float64 {
	switch {
	case dimension == byStatus && d > 0 && !wellStatus(dimension, name):
		return 0.2 + 0.8*d
	case dimension == byFlag:
		return 0.5 * math.Abs(d)
	}
	return 0.3 * math.Abs(d)
}
