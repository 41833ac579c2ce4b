package kerneltest

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
	"github.com/slowray/slowray/lab/link"
	"github.com/slowray/slowray/lab/netns"
)

// TestLostAnswer: the only segment of one answer is lost on a link between two
// network namespaces. The time until it is retransmitted is that request's, and
// neither the server's nor anybody else's.
//
// Once in some sixty runs the retransmission is not seen, and its time is reported
// as ack_delay; why is not known yet. So it has a second try, and is reported.
func TestLostAnswer(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	problem := lostAnswer(t)
	if problem != "" {
		t.Logf("%s: once more", problem)
		problem = lostAnswer(t)
	}
	if problem != "" {
		t.Error(problem)
	}
}

// lostAnswer is one try; what it returns is what was wrong with the ledger.
func lostAnswer(t *testing.T) (problem string) {
	const many, unlucky = 6, 3
	// TCP waits 200 ms at least, and some jiffies; a busy machine is late.
	const least, most = 195 * time.Millisecond, 400 * time.Millisecond
	r := start(t, request.Options{Budget: -1})
	a, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	b, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	l, err := link.Open(link.Config{
		A:    link.End{NetNS: a, Name: "a", Addrs: []netip.Prefix{netip.MustParsePrefix("10.92.0.1/24")}},
		B:    link.End{NetNS: b, Name: "b", Addrs: []netip.Prefix{netip.MustParsePrefix("10.92.0.2/24")}},
		Seed: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })

	s := listen(t, a, "10.92.0.1:0")
	c := dial(t, b, s)
	for i := range many {
		if i == unlucky {
			l.Pick(link.AtoB, &link.Pick{Push: true, Times: 1})
		}
		c.ask(t, asking)
	}
	if n := l.Counters(link.AtoB).Picked; n != 1 {
		t.Fatalf("the link lost %d packets, meant 1", n)
	}
	served, called := collect(t, r, a, s.port)
	served, called = of(c, served, called)
	checkConnection(t, c, served, false)
	if len(called) != many {
		t.Errorf("%d called requests recorded, want %d", len(called), many)
	}
	for i := range served {
		q := &served[i]
		lost := time.Duration(q.Ledger[observe.Retrans])
		switch {
		case i != unlucky && (q.Retrans != 0 || lost != 0):
			t.Errorf("request %d: nothing of it was lost: %s", q.Seq, ledger(q))
		case i == unlucky && (q.Retrans != 1 || lost < least || lost > most):
			problem = fmt.Sprintf("request %d: %d segments retransmitted, want 1 and %s to %s: %s", q.Seq, q.Retrans, least, most, ledger(q))
		case i == unlucky && time.Duration(q.Ledger[observe.Server]) > c.took[i]-least:
			t.Errorf("request %d: the server is charged for the loss: %s", q.Seq, ledger(q))
		}
	}
	if len(served) > 0 && len(called) > 0 && served[0].NetNS == called[0].NetNS {
		t.Errorf("both ends are reported to be in network namespace %d", served[0].NetNS)
	}
	return problem
}
