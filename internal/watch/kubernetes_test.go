package watch

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// TestCalled: a service is asked for where nobody ever got a connection to it, and where it
// is asked by UDP.
func TestCalled(t *testing.T) {
	got := called(&observe.Observation{
		Endpoints: []observe.Endpoint{{Side: "called", Addr: "10.96.0.1"}, {Side: "served", Addr: "10.244.0.7"}},
		Connects:  []observe.Connect{{Family: "inet", Addr: "10.96.0.2", Refused: 9}, {Family: "inet6", Addr: "::ffff:10.96.0.3"}, {Family: "unix", Addr: "/run/x.sock"}},
		DNS:       []observe.DNS{{Servers: []observe.DNSServer{{Addr: "10.96.0.10"}, {Addr: "nonsense"}}}},
	})
	want := map[netip.Addr]bool{}
	for _, a := range []string{"10.96.0.1", "10.96.0.2", "10.96.0.3", "10.96.0.10"} {
		want[netip.MustParseAddr(a)] = true
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
