package record

import (
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/sense/request"
	"github.com/slowray/slowray/internal/store"
)

// counted is a stream whose counters a test writes.
type counted struct{ now []request.Counters }

func (c *counted) Moment(do func(sums []request.Counters)) {
	do(append([]request.Counters(nil), c.now...))
}

func testSeconds(src *counted) *seconds {
	s := newSeconds(func() *host.Names { return host.Default().Names() }, start)
	s.stream = src
	return s
}

func at(port uint16, requests, connections uint64) request.Counters {
	return request.Counters{Side: observe.Served, Addr: netip.MustParseAddr("10.0.0.1"), Port: port, Requests: requests, Connections: connections}
}

func TestSecondsAddUpToWhatIsCounted(t *testing.T) {
	src := &counted{}
	s := testSeconds(src)
	var total uint64
	ends := start
	for n := range uint64(10) {
		for range n {
			s.filling.Add(took(80, 5*time.Millisecond))
		}
		total += n + 2 // two more have no record of their own
		src.now = []request.Counters{at(80, total, 1)}
		ends = ends.Add(time.Second)
		began, list := s.end(ends, func() {})
		if began != ends.Unix()-1 {
			t.Errorf("the second that ended at %d began at %d", ends.Unix(), began)
		}
		if len(list) != 1 || list[0].Endpoint.Requests != n+2 || list[0].Endpoint.Total.Count() != n || list[0].At != began {
			t.Fatalf("second %d: %+v", n, list)
		}
	}
	if _, list := s.end(ends.Add(time.Second), func() {}); len(list) != 0 {
		t.Errorf("a second without anything has %d endpoints", len(list))
	}
}

// TestConnectionsWaitForTheirRequest: who a connection is for, its first request
// tells.
func TestConnectionsWaitForTheirRequest(t *testing.T) {
	src := &counted{now: []request.Counters{at(80, 0, 1)}}
	s := testSeconds(src)
	if _, list := s.end(start.Add(time.Second), func() {}); len(list) != 0 {
		t.Fatalf("a connection is reported before anybody knows whose it is: %+v", list)
	}
	r := took(80, time.Millisecond)
	r.PID = os.Getpid()
	s.filling.Add(r)
	src.now = []request.Counters{at(80, 1, 1)}
	_, list := s.end(start.Add(2*time.Second), func() {})
	if len(list) != 1 || list[0].Endpoint.Connections != 1 || list[0].Endpoint.Requests != 1 || list[0].Endpoint.Comm == "" || list[0].Process.Comm == "" {
		t.Fatalf("%+v", list)
	}
	name := list[0].Endpoint.Comm
	// Now it is known.
	src.now = []request.Counters{at(80, 1, 3)}
	_, list = s.end(start.Add(3*time.Second), func() {})
	if len(list) != 1 || list[0].Endpoint.Connections != 2 || list[0].Endpoint.Comm != name {
		t.Fatalf("%+v, want two connections of %s", list, name)
	}
	// Where no request ever comes, they are counted all the same.
	var late []store.Second
	src.now = []request.Counters{at(80, 1, 3), at(90, 0, 7)}
	for n := range time.Duration(unnamedFor + 1) {
		_, late = s.end(start.Add((4+n)*time.Second), func() {})
	}
	if len(late) != 1 || late[0].Endpoint.Port != 90 || late[0].Endpoint.Connections != 7 {
		t.Errorf("%+v, want seven connections at port 90", late)
	}
}

func TestSecondsAreBounded(t *testing.T) {
	src := &counted{}
	s := testSeconds(src)
	for port := range uint16(3 * secondEndpoints) {
		s.filling.Add(took(port+1, time.Millisecond))
	}
	_, list := s.end(start.Add(time.Second), func() {})
	if len(list) > secondEndpoints+1 {
		t.Errorf("%d endpoints in a second, at most %d and one for the others may be", len(list), secondEndpoints)
	}
	var sum uint64
	for i := range list {
		sum += list[i].Endpoint.Requests
	}
	if sum != 3*secondEndpoints {
		t.Errorf("they have %d requests, there were %d", sum, 3*secondEndpoints)
	}
}
