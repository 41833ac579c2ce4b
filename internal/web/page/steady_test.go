package page_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// slowly is a server under load: each answer takes a time of its own, so that they
// come in any order, and some fail.
type slowly struct {
	next   http.Handler
	most   atomic.Int64 // ms
	failed atomic.Bool  // the status fails
}

func (s *slowly) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if most := s.most.Load(); most > 0 && len(r.URL.Path) > 1 {
		time.Sleep(time.Duration(rand.Int64N(most)) * time.Millisecond)
	}
	if s.failed.Load() && r.URL.Path == "/api/status" {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"error":"others are asking"}`)
		return
	}
	s.next.ServeHTTP(w, r)
}

// watchScript notes, whenever anything changes, what stands under a tab that is
// another one's.
const watchScript = `(() => {
	const own = { timeline: ".timeline", findings: ".page > .verdict", requests: "table.requests", waits: ".page.waits", flame: ".flame", drops: ".layers", proofs: ".proof-plot" };
	window.seen = new Set();
	const look = () => {
		const tab = document.querySelector("#views [aria-current]")?.dataset.view, main = document.getElementById("main");
		for (const [view, q] of Object.entries(own)) if (view !== tab && main.querySelector(q) && !(view === "requests" && main.querySelector(".timeline, .page.request"))) window.seen.add(view + " under " + tab);
	};
	new MutationObserver(look).observe(document.documentElement, { subtree: true, childList: true, attributes: true });
	look();
})()`

// Under a tab stands what is its own, whatever the order in which answers come.
func TestATabShowsItsOwn(t *testing.T) {
	server := &slowly{next: &mock{}}
	b := open(t, 1200, 800, server)
	b.do(chromedp.Evaluate(watchScript, nil))
	seen := func(when string) {
		t.Helper()
		if got := eval[string](b, `[...window.seen].join(", ")`); got != "" {
			t.Fatalf("%s: %s", when, got)
		}
	}
	server.most.Store(400)
	r := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		b.do(chromedp.KeyEvent(fmt.Sprint(1 + r.IntN(len(views)))))
		time.Sleep(time.Duration(r.IntN(250)) * time.Millisecond)
	}
	seen("while answers are slow")
	for i, view := range views { // each comes in the end
		b.do(chromedp.Evaluate(`delete document.documentElement.dataset.ready`, nil), chromedp.KeyEvent(fmt.Sprint(i+1)))
		b.settle(view)
	}
	seen("when they are there")

	// Where a tab cannot be shown, the one before it does not stay, nor come again.
	server.most.Store(0)
	server.failed.Store(true)
	b.do(chromedp.KeyEvent("1"))
	b.until(`!document.getElementById("notice").hidden && !document.querySelector("#main .proof-plot")`)
	server.failed.Store(false)
	b.do(chromedp.Click("#notice button"))
	b.settle("timeline")
	seen("after a failure")
	if !eval[bool](b, `document.getElementById("notice").hidden && !!document.querySelector("#main .timeline")`) {
		t.Error("it does not come back")
	}

	// What belongs to another address of the same view is pale until it is replaced.
	b.do(chromedp.Evaluate(`location.hash = "#/?last=3600"`, nil))
	b.settle("timeline")
	server.most.Store(1500)
	b.do(chromedp.Evaluate(`document.querySelector("a.endpoint:not([aria-current])").focus()`, nil), chromedp.KeyEvent(kb.Enter))
	b.until(`document.getElementById("main").classList.contains("stale")`)
	server.most.Store(0)
	b.until(`!document.getElementById("main").classList.contains("stale")`)
}

// No figure falls because the traffic has stopped.
func TestFiguresAfterTheTrafficHasStopped(t *testing.T) {
	m := &mock{}
	b := open(t, 1400, 900, m)
	facts := func() string {
		return eval[string](b, `[...document.querySelectorAll(".title .facts > div")].map((e) => e.innerText.replace(/\s+/g, " ")).filter((s) => /per second|p50|p99/.test(s)).join("; ")`)
	}
	b.goTo("#/?last=900&ep=served%7C4026531840%7C192.0.2.10%7C443%7Cnginx", "timeline")
	before := facts()
	// Ten minutes later, nothing has come since.
	m.stop(600)
	b.goTo("#/?last=900&ep=served%7C4026531840%7C192.0.2.10%7C443%7Cnginx&again=1", "timeline")
	var was, is int
	fmt.Sscanf(before, "per second %d", &was)
	fmt.Sscanf(facts(), "per second %d", &is)
	if was < 300 || is < was*8/10 {
		t.Errorf("before: %s\nafter:  %s", before, facts())
	}
	b.says(".title", "no request since 12:05:00")
	b.says("a.endpoint[aria-current]", "until 12:05:00")
	// The figures next to a chart's lines are of one moment, and say of which.
	b.says(".chart .legend", "the latest")
	if got := eval[string](b, `[...document.querySelectorAll(".center .chart")].slice(0, 4).map((c) => c.querySelector(".since-when").textContent).join("|")`); got == "|||" || got != eval[string](b, `Array(4).fill(document.querySelector(".since-when").textContent).join("|")`) {
		t.Errorf("of different moments: %s", got)
	}
}

// A finding marks all that a chart shows of it, and nothing else.
func TestFindingMarksWhatTheChartShows(t *testing.T) {
	b := open(t, 1200, 800, &mock{})
	for name, c := range map[string]struct{ values, from, to, want string }{
		"before and after its windows":        {"5 5 5 5 90 95 90 95 90 5 5 5 5 5", "50", "70", "40 90"},
		"as long as it was found":             {"5 5 5 5 5 90 90 5 5 5 5 5 5 5", "50", "70", "50 70"},
		"not shown on this chart":             {"5 5 5 6 5 5 6 5 5 5 5 5 5 5", "50", "70", "50 70"},
		"another rise, apart from it":         {"5 5 90 5 5 90 90 5 5 90 90 5 5 5", "50", "70", "50 70"},
		"nothing was measured next to it":     {"5 5 5 - - 90 90 - 5 5 5 5 5 5", "50", "70", "50 70"},
		"all of the time":                     {"90 90 90 90 90 90 90 90 90 90 90 90 90 90", "0", "140", "0 140"},
		"a little more than usual next to it": {"5 5 5 5 8 90 90 8 5 5 5 5 5 5", "50", "70", "50 70"},
	} {
		got := eval[string](b, fmt.Sprintf(`import("/assets/reach.js").then(({ reach }) => {
			const values = %q.split(" ").map((x) => x === "-" ? null : +x), band = { from: %s, to: %s };
			const r = reach(band, { t: values.map((_, i) => i * 10), step: 10, lists: [values.map((v) => v === null ? null : 7), values] }, [band]);
			return r.from + " " + r.to;
		})`, c.values, c.from, c.to))
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	b.goTo("#/?last=3600", "timeline")
	if got := eval[string](b, `(() => {
		const marks = [...document.querySelectorAll(".mark.grave")].map((m) => { const r = m.getBoundingClientRect(); return Math.round(r.width); });
		const bands = [...document.querySelector(".chart .plot").querySelectorAll(".band.grave")].map((m) => Math.round(m.getBoundingClientRect().width));
		return marks.sort().join() === bands.sort().join() ? "" : marks + " on the lane, " + bands + " on the chart";
	})()`); got != "" {
		t.Error(got)
	}
}

// A request is one line with all of its path, and leads to each step.
func TestPathOfARequest(t *testing.T) {
	b := open(t, 1400, 900, &mock{})
	b.goTo("#/?view=requests&last=3600", "requests")
	b.says("table.requests", "nginx", "→", "shop-php", "198.51.100.7:3306", "pipe 2.09 s")
	b.says(".hint", "slowray record --labels")
	if n := b.number(`document.querySelector("svg.mini.path").querySelectorAll("rect").length`); n < 6 {
		t.Errorf("%d bars of three steps", n)
	}
	b.goTo("#/?view=request&id="+shop[0].requests(lossFrom, lossTo)[0]["id"].(string), "request")
	b.says("p.summary", "is spent at 198.51.100.7:3306: retrans 210 ms")
	b.says(".waterfall.path", "nginx", "shop-php", ":9000", "The other end is not on this host")
	// Each step lies in the one that waited for it.
	if got := eval[string](b, `(() => {
		const box = (row) => { const r = [...row.querySelectorAll("rect")].map((x) => x.getBoundingClientRect()); return [Math.min(...r.map((x) => x.left)), Math.max(...r.map((x) => x.right))]; };
		const rows = [...document.querySelectorAll(".wf-row.hop")].map(box);
		return rows.length === 3 && rows.every(([a, z], i) => !i || a > rows[i - 1][0] && z < rows[i - 1][1]) ? "" : JSON.stringify(rows);
	})()`); got != "" {
		t.Errorf("steps are not within each other: %s", got)
	}
	b.do(chromedp.Focus(".wf-row.hop:nth-child(3) a"), chromedp.KeyEvent(kb.Enter))
	b.until(`location.hash.includes("id=") && location.hash.includes("php-fpm")`)
}
