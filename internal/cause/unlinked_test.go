package cause

import (
	"slices"
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// TestUnlinked asks for trouble that no finding is about, next to harm and without.
func TestUnlinked(t *testing.T) {
	v := harmed(func(e *observe.Endpoint) { e.Statuses = map[string]uint64{"2xx": 900, "5xx": 100} })
	v.Processes = []observe.Process{{PID: 70, Comm: "shop", State: "S"}, {PID: 80, Comm: "helper", State: "T"}}
	v.CallErrors = []observe.CallError{{PID: 70, Comm: "shop", Call: "write", Error: "ENOSPC", Calls: 9, Path: "/var/log/shop"}}
	v.onPath = map[int]bool{70: true}
	a := v.Account()
	texts := func(findings ...Finding) (out []string) {
		for _, s := range v.Unlinked(&a, findings) {
			out = append(out, s.Text)
		}
		return out
	}
	stopped, failed := "helper (pid 80) is stopped by a signal", "9 calls of write by shop (pid 70) failed with ENOSPC on /var/log/shop"
	if got := texts(); !slices.Equal(got, []string{stopped, failed}) {
		t.Errorf("%q", got)
	}
	// What a finding is about is no sight, also as the last hop of its chain.
	chained := Finding{Cause: ProcessStopped, Chain: []observe.WaitHop{{Process: observe.WaitProcess{PID: 80}}}}
	if got := texts(chained); !slices.Equal(got, []string{failed}) {
		t.Errorf("%q", got)
	}
	if got := texts(chained, Finding{Subject: Subject{PID: 70}}); len(got) != 0 {
		t.Errorf("%q", got)
	}
	// slowray is nobody's trouble, whether it looks or records.
	v.Self = 80
	v.CallErrors[0].Comm = "slowray"
	if got := texts(); len(got) != 0 {
		t.Errorf("of slowray itself: %q", got)
	}
	healthy := Account{}
	if got := v.Unlinked(&healthy, nil); len(got) != 0 {
		t.Errorf("where nobody was harmed: %v", got)
	}
}

// TestUnlinkedRefused: the SYNs to a port at which nobody listens are the connections that
// were refused; those to another port are not.
func TestUnlinkedRefused(t *testing.T) {
	v := harmed(func(e *observe.Endpoint) { e.Statuses = map[string]uint64{"2xx": 900, "5xx": 100} })
	site := &DropSite{Layer: DropNoSocket, NetNS: 9, Packets: 4000, flows: []observe.DropFlow{{DstPort: 9000, Segments: 60}, {DstPort: 80, Segments: 4}}}
	v.sites = []*DropSite{site}
	a := v.Account()
	for port, want := range map[int]int{9000: 0, 81: 1} {
		if got := v.Unlinked(&a, []Finding{{Cause: UpstreamRefused, Subject: Subject{Port: port}}}); len(got) != want {
			t.Errorf("port %d was refused: %+v", port, got)
		}
	}
}

// TestUnlinkedQueues: a listener counts more that is dropped than what its full queue
// drops.
func TestUnlinkedQueues(t *testing.T) {
	v := harmed(func(e *observe.Endpoint) { e.Statuses = map[string]uint64{"2xx": 900, "5xx": 100} })
	ns := &observe.NetNS{Inode: 9, Counters: map[string]uint64{}}
	v.Services = []*Service{{NS: ns, Listeners: []*observe.Listener{{Port: 81, PID: 90, Comm: "shop", Drops: 20, Limit: 128}}}}
	a := v.Account()
	for overflows, want := range map[uint64]SightKind{0: SightDrop, 20: SightQueue} {
		ns.Counters["TcpExt.ListenOverflows"] = overflows
		if got := v.Unlinked(&a, nil); len(got) != 1 || got[0].Kind != want || got[0].Count != 20 {
			t.Errorf("with %d overflows: %+v", overflows, got)
		}
	}
}
