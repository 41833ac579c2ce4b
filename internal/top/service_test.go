package top

import (
	"slices"
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// What a service calls belongs to it, and what those call that answer on this host.
func TestOfPorts(t *testing.T) {
	at := func(side observe.Side, netns uint64, addr string, port, pid int) observe.Endpoint {
		return observe.Endpoint{Side: side.String(), NetNS: netns, Addr: addr, Port: port, PID: pid}
	}
	all := []observe.Endpoint{
		at(observe.Served, 1, "10.0.0.1", 80, 100),     // 0 the service
		at(observe.Called, 1, "127.0.0.1", 9000, 100),  // 1 what it calls
		at(observe.Served, 1, "127.0.0.1", 9000, 200),  // 2 the same, as it answers
		at(observe.Served, 2, "127.0.0.1", 9000, 300),  // 3 another's loopback
		at(observe.Called, 1, "10.0.0.7", 3306, 200),   // 4 what that calls
		at(observe.Called, 1, "10.0.0.7", 3306, 400),   // 5 what somebody else calls
		at(observe.Served, 3, "10.0.0.7", 3306, 500),   // 6 in a container on this host
		at(observe.Called, 4, "10.9.9.9", 80, 600),     // 7 a client of such a port elsewhere
		at(observe.Called, 4, "10.9.9.9", 443, 600),    // 8 what that client calls besides
		at(observe.Called, 3, "192.0.2.1", 5000, 500),  // 9 what the container calls
		at(observe.Called, 3, "192.0.2.1", 5000, 0),    // 10 nobody knows who
		at(observe.Served, 1, "10.0.0.1", 8080, 100),   // 11 another port of the service
		at(observe.Called, 1, "10.0.0.1", 80, 200),     // 12 it is called back
		at(observe.Served, 1, "not an address", 1, 0),  // 13
		at(observe.Called, 1, "not an address", 1, 77), // 14
	}
	want := []int{0, 1, 2, 4, 6, 7, 9, 12}
	var got []int
	for _, e := range ofPorts(all, []int{80}) {
		got = append(got, slices.IndexFunc(all, func(o observe.Endpoint) bool {
			return o.Side == e.Side && o.NetNS == e.NetNS && o.Addr == e.Addr && o.Port == e.Port && o.PID == e.PID
		}))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, e := range ofSide(ofPorts(all, []int{80}), observe.Called) {
		if e.Side != "called" {
			t.Errorf("%+v", e)
		}
	}
	if n := len(ofPorts(all, []int{81})); n != 0 {
		t.Errorf("%d of a port that nobody uses", n)
	}
}
