package web

import (
	"maps"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// fiveMinutes sums up as a store does of what is long ago, and counts statuses of records that stand for
// too many.
type fiveMinutes struct{ *memory }

func (m fiveMinutes) Endpoints(q store.Query) ([]store.EndpointSum, error) {
	list, err := m.memory.Endpoints(q)
	for i := range list {
		list[i].First = list[i].First.Truncate(coarse)
		list[i].Last = list[i].Last.Add(coarse).Truncate(coarse)
		list[i].Endpoint.Statuses = map[string]uint64{"2xx": list[i].Endpoint.Requests, "5xx": 7}
	}
	return list, err
}

// TestEndpointsTellTheSecond: "no request since 20:35:00" of what ended at 20:30:13 is wrong, and so is a
// rate over these five minutes.
func TestEndpointsTellTheSecond(t *testing.T) {
	m := &memory{}
	from, to := noon.Add(-20*time.Minute), noon.Add(20*time.Minute)
	begin, end := noon.Add(-94*time.Second), noon.Add(13*time.Second)
	m.from = from
	for at := begin; !at.After(end); at = at.Add(time.Second) {
		m.add(at, nil)
	}
	m.to = to
	for _, r := range []timeRange{{from, to}, {from.Add(-time.Hour), to.Add(time.Hour)}} {
		a := ask[struct{ Endpoints []endpointJSON }](t, serve(t, fiveMinutes{m}, Options{}), "/api/endpoints?from="+unixText(r.from)+"&to="+unixText(r.to)).Endpoints
		if len(a) != 1 || a[0].First != unix(begin) || a[0].Last != unix(end.Add(time.Second)) {
			t.Errorf("%+v, want %v to %v", a, unix(begin), unix(end.Add(time.Second)))
		}
		if s := a[0].Statuses; s["2xx"]+s["5xx"] != a[0].Requests {
			t.Errorf("%v of %d requests", s, a[0].Requests)
		}
	}
}

func TestStatusesAreNoMoreThanRequests(t *testing.T) {
	for _, c := range []struct {
		requests  uint64
		has, want map[string]uint64
	}{
		{44419, map[string]uint64{"2xx": 47200}, map[string]uint64{"2xx": 44419}},
		{10, map[string]uint64{"2xx": 10, "4xx": 5, "5xx": 5}, map[string]uint64{"2xx": 5, "4xx": 3, "5xx": 2}},
		{10, map[string]uint64{"2xx": 4}, map[string]uint64{"2xx": 4}}, // of the others none is known
		{0, map[string]uint64{"2xx": 4}, map[string]uint64{"2xx": 0}},
	} {
		if got := statusesOf(&observe.Endpoint{Requests: c.requests, Statuses: c.has}); !maps.Equal(got, c.want) {
			t.Errorf("%v of %d requests: %v, want %v", c.has, c.requests, got, c.want)
		}
	}
}
