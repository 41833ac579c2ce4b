package page_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
	"github.com/slowray/slowray/internal/store"
	"github.com/slowray/slowray/internal/web"
)

// stored is the last quarter of an hour of the story as a recorder would have
// stored it, ending now, behind the real server.
func stored(t *testing.T) (handler http.Handler, shift int64) {
	t.Helper()
	dir := t.TempDir()
	s, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	shift = time.Now().Unix() - noon
	for _, i := range []int{0, 2, 3} {
		for at := noon - 900; at < noon; at++ {
			sec := &store.Second{At: at + shift}
			for n := range 4 {
				r := record(&shop[i], at, n, shift)
				addTo(sec, r)
				if n == 0 {
					s.AddRequest(r)
				}
			}
			s.AddSecond(sec)
		}
	}
	for at := noon - 900; at < noon; at += 60 {
		o := &observe.Observation{Schema: observe.SchemaObservation, Host: observe.Host{Name: "shop-01", CPUs: 8, Kernel: "6.12.9"}, Window: observe.Window{Start: time.Unix(at+shift, 0), Seconds: 60}, Waits: waiting, Profile: profile}
		var found []cause.Finding
		if at >= lossFrom && at < lossTo {
			found = append(found, cause.Finding{Cause: "firewall-drop", Title: "A firewall rule drops packets", Verdict: cause.Supported, Role: cause.RoleCause,
				Subject:  cause.Subject{Kind: "rule", NetNS: 4026531840, PID: shop[3].pid, Comm: shop[3].comm, Addr: shop[3].addr, Port: shop[3].port, Rule: "OUTPUT #3"},
				Impact:   cause.Impact{Share: 0.83, Of: "slow time", Text: "31 in a thousand segments are dropped."},
				Evidence: []cause.Evidence{{Fact: "packets dropped by the rule", Value: 9482, Source: "iptables"}}, Fix: cause.Fix{Text: "Delete the rule.", Commands: []shell.Command{shell.Line("iptables -D OUTPUT 3")}}})
		}
		if err := s.AddObservation(o, found); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	reader, err := store.OpenReader(dir)
	if err != nil {
		t.Fatal(err)
	}
	handler, err = web.New(reader, web.Options{Version: "test", Host: diagnose.ReportHost{Name: "shop-01", Kernel: "6.12.9", CPUs: 8}, Recording: true, Loopback: true,
		Stats: func() (store.Stats, float64) { return s.Stats(), 0.004 }})
	if err != nil {
		t.Fatal(err)
	}
	return handler, shift
}

// record is the nth of four requests that stand for a second of an endpoint.
func record(e *endpoint, at int64, n int, shift int64) *store.Request {
	m := e.at(at)
	r := &store.Request{Process: observe.Identity{Comm: e.comm, Cgroup: "/system.slice/x", ContainerName: e.container, Unit: e.unit}}
	r.Side, r.StartNS, r.NetNS, r.PID, r.TID = observe.Served, (at+shift)*1e9+int64(n)*2e8, 4026531840, e.pid, e.pid
	r.Local, r.Peer = netip.MustParseAddrPort(fmt.Sprintf("%s:%d", e.addr, e.port)), netip.MustParseAddrPort(fmt.Sprintf("203.0.113.%d:41000", 3+at%7))
	if e.side == "called" {
		r.Side, r.Local, r.Peer = observe.Called, netip.MustParseAddrPort("192.0.2.10:41000"), r.Local
	}
	r.Seq, r.Requests, r.Weight = uint32(at%1000)*4+uint32(n)+1, 1, uint32(max(m.rps/4, 1))
	r.RTTNS, r.MinRTTNS, r.MSS, r.Status, r.HTTP, r.BytesIn, r.BytesOut = int64(m.rtt*1e3), int64(m.rtt*8e2), 1448, observe.StatusOK, 200, 400, 9000
	for p := range observe.NumParts {
		ns := int64(m.parts[p.String()] * 1e3 * (0.6 + 0.8*chance(p, e.key(), at, n)))
		if p == observe.Retrans && ns > 0 {
			ns = 0
			if n == 0 {
				ns, r.Retrans, r.Flags = int64(m.parts["retrans"]*4e3), 1, observe.FlagTimeout
			}
		}
		r.Ledger[p] = ns
	}
	return r
}

func addTo(sec *store.Second, r *store.Request) {
	x := &sec.Endpoint
	if x.Parts == nil {
		end := r.Local
		if r.Side == observe.Called {
			end = r.Peer
		}
		*x = observe.Endpoint{Side: r.Side.String(), NetNS: r.NetNS, Addr: end.Addr().String(), Port: int(end.Port()), Comm: r.Process.Comm, PID: r.PID, Parts: map[string]observe.PartStats{}}
		sec.Process = r.Process
	}
	w := uint64(r.Weight)
	x.Requests, x.OK, x.Recorded, x.Segments, x.Retrans = x.Requests+w, x.OK+w, x.Recorded+w, x.Segments+7*w, x.Retrans+w*uint64(r.Retrans)
	x.Total.AddN(r.TotalNS(), w)
	x.RTT.AddN(r.RTTNS, w)
	for p := range observe.NumParts {
		part := x.Parts[p.String()]
		part.SumNS += int64(w) * r.Ledger[p]
		part.Hist.AddN(r.Ledger[p], w)
		x.Parts[p.String()] = part
	}
}

var waiting = &observe.WaitGraph{Looks: 100, Processes: 3, EveryNS: 5e8, SlowerNS: 1e8, Followed: 60, Shares: []observe.WaitShare{{PID: shop[2].pid, Samples: 40, Threads: 3, ThreadNS: 12e9, LongestNS: 2e8, LastNS: 59e9, SlowNS: 9e9, SlowRequests: 44,
	Chain: observe.WaitChain{Threads: []int{2231}, Count: 1, End: observe.EndRemote, Text: "198.51.100.7:3306 has not answered", BackTo: -1, Hops: []observe.WaitHop{
		{Process: observe.WaitProcess{PID: shop[0].pid, Comm: "nginx"}, TID: shop[0].pid, Comm: "nginx", State: "S", Kind: observe.WaitTCP, Wants: observe.WantsAnswer, Object: "fd 9 → 127.0.0.1:9000", ForNS: 2e8},
		{Process: observe.WaitProcess{PID: shop[2].pid, Comm: shop[2].comm}, TID: 2231, Comm: shop[2].comm, State: "S", Kind: observe.WaitTCP, Wants: observe.WantsAnswer, Object: "fd 4 → 198.51.100.7:3306", How: observe.HowPeer, Why: "answers there", Remote: "198.51.100.7:3306", ForNS: 2e8}}}}}}

var profile = &observe.Profile{Hz: 97, Samples: 900, Processes: []observe.ProfileProcess{{PID: shop[2].pid, Comm: shop[2].comm, Samples: 700, Kernel: 90,
	Functions: []observe.ProfileFunction{{Frame: observe.Frame{Name: "Shop\\Cart::total", Kind: observe.FramePHP, File: "/srv/shop/Cart.php", Line: 41}, Self: 400, Total: 500, Own: 400}}}}}

// TestWithTheServer looks at the page with the server that it is made for.
func TestWithTheServer(t *testing.T) {
	chromium(t)
	handler, shift := stored(t)
	b := open(t, 1440, 900, handler)
	b.until(`document.querySelectorAll(".endpoint").length === 3`)
	b.says(".title", "p99", "nginx")
	b.says(".strip-findings", "A firewall rule drops packets", "83 % of slow time")
	for i := range 5 {
		if n := b.number(fmt.Sprintf(`document.querySelectorAll(".center .chart")[%d].querySelectorAll("path.line, path.layer").length`, i)); n == 0 {
			t.Errorf("chart %d is empty", i)
		}
	}
	if n := b.number(`document.querySelectorAll(".slow tbody tr").length`); n != 8 {
		t.Errorf("%d slowest requests are listed", n)
	}
	b.look("real-timeline")
	b.goTo(fmt.Sprintf("#/?sel=%d,%d&ep=%s", lossFrom+shift, lossTo+shift, "called%7C4026531840%7C198.51.100.7%7C3306%7Cphp-fpm8.2"), "timeline")
	b.until(`document.querySelector(".difference .differs")`)
	b.says(".difference", "A firewall rule drops packets", "retrans", "here", "rest")
	b.look("real-difference")
	b.do(chromedp.Evaluate(`document.querySelector(".slow tbody tr a").click()`, nil))
	b.settle("request")
	b.says(".summary", "retrans")
	b.says(".chain", "nginx", "198.51.100.7:3306 has not answered")
	b.says(".waterfall", "retransmitted", "Total")
	b.look("real-request")
	for view, want := range map[string]string{"findings": "Delete the rule.", "requests": "the slowest 100 are shown", "waits": "198.51.100.7:3306", "flame": "PHP", "drops": "drops were not watched", "proofs": "No proof was made"} {
		b.goTo("#/?view="+view, view)
		b.says("#main", want)
		if eval[bool](b, `!document.getElementById("notice").hidden`) {
			t.Errorf("%s: %s", view, eval[string](b, `document.getElementById("notice").innerText`))
		}
		b.look("real-" + view)
	}
}
