package page_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/slowray/slowray/internal/web/page"
)

var views = []string{"timeline", "findings", "requests", "waits", "flame", "drops", "proofs"}

func TestFilesAreSmallAndTheirOwn(t *testing.T) {
	bytes := 0
	elsewhere, inline := regexp.MustCompile(`(?i)\b(?:https?|wss?):\/\/[^"'\s]*|url\(\s*["']?//`), regexp.MustCompile(`(?i)<style|\sstyle\s*=|\son[a-z]+\s*=|<script(?:>|[^>]*[^"]>[^<])|javascript:`)
	err := fs.WalkDir(page.Files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(page.Files, name)
		bytes += len(b)
		for _, u := range elsewhere.FindAllString(string(b), -1) {
			if u != "http://www.w3.org/2000/svg" {
				t.Errorf("%s names %s", name, u)
			}
		}
		if strings.HasSuffix(name, ".html") {
			if found := inline.FindString(string(b)); found != "" {
				t.Errorf("%s: the policy forbids %q", name, found)
			}
		}
		for _, markup := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("} {
			if strings.Contains(string(b), markup) {
				t.Errorf("%s uses %s: names from the host are no markup", name, markup)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if bytes > 1e6 {
		t.Errorf("the page is %d bytes, more than 1 MB", bytes)
	}
}

// at is where a moment is in the chart of response times, in the window.
func (b *browser) at(moment int64) (x, y float64) {
	b.t.Helper()
	p := eval[[]float64](b, fmt.Sprintf(`(() => {
		const plot = document.querySelector(".chart .plot"), r = plot.getBoundingClientRect(), from = +plot.ariaValueMin, to = +plot.ariaValueMax;
		return [r.left + 56 + (%d - from) / (to - from) * (r.width - 68), r.top + 60];
	})()`, moment))
	return p[0], p[1]
}

func (b *browser) drag(from, to int64) {
	b.t.Helper()
	x1, y := b.at(from)
	x2, _ := b.at(to)
	b.do(chromedp.MouseEvent(input.MouseMoved, x1, y), chromedp.MouseEvent(input.MousePressed, x1, y, chromedp.ButtonLeft, chromedp.ClickCount(1)),
		chromedp.MouseEvent(input.MouseMoved, (x1+x2)/2, y, chromedp.ButtonLeft), chromedp.MouseEvent(input.MouseMoved, x2, y, chromedp.ButtonLeft),
		chromedp.MouseEvent(input.MouseReleased, x2, y, chromedp.ButtonLeft, chromedp.ClickCount(1)))
}

func (b *browser) says(selector string, texts ...string) {
	b.t.Helper()
	got := eval[string](b, `[...document.querySelectorAll(`+quote(selector)+`)].map((e) => e.innerText).join("\n")`)
	for _, want := range texts {
		if !strings.Contains(got, want) {
			b.t.Errorf("%s does not say %q, but:\n%.1500s", selector, want, got)
		}
	}
}

func (b *browser) number(expression string) int { return eval[int](b, expression) }

func quote(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func TestTimeLineAndSelection(t *testing.T) {
	asked := make(chan string, 1000)
	b := open(t, 1440, 900, &mock{asked: asked})
	b.look("timeline")
	if n := b.number(`document.querySelectorAll(".endpoint").length`); n != len(shop) {
		t.Errorf("%d endpoints are listed, of %d", n, len(shop))
	}
	b.says(".title", "nginx", "192.0.2.10:443", "p99", "errors")
	b.says(".strip-findings", "A firewall rule drops packets", "83 % of slow time")
	b.says(".lane", "A firewall rule drops packets")
	for i, title := range []string{"Response time", "Time breakdown", "Requests", "Network", "Loss", "Latencies"} {
		b.says(".center figcaption", title)
		if n := b.number(fmt.Sprintf(`document.querySelectorAll(".center .chart")[%d].querySelectorAll("path.line, path.layer, canvas.heat").length`, i)); n == 0 {
			t.Errorf("%s: nothing is drawn", title)
		}
	}
	if d := eval[string](b, `document.querySelector(".chart path.line").getAttribute("d")`); strings.Count(d, "L") < 250 {
		t.Errorf("the first line has %d points", strings.Count(d, "L"))
	}
	paint := eval[float64](b, `performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? -1`)
	t.Logf("first paint after %.0f ms, complete after %.0f ms, %d KB", paint, eval[float64](b, `performance.timing.loadEventEnd - performance.timing.navigationStart`),
		b.number(`Math.round(performance.getEntriesByType("resource").reduce((a, r) => a + r.decodedBodySize, 0) / 1000)`))
	if paint < 0 || paint > 5000 { // 500 on a machine that has nothing else to do
		t.Errorf("first paint after %.0f ms", paint)
	}

	// The cursor tells, on all charts, what was at a moment; a finding tells of itself.
	x, y := b.at((lossFrom + lossTo) / 2)
	b.do(chromedp.MouseEvent(input.MouseMoved, x, y))
	b.until(`document.querySelectorAll(".hair line").length >= 6`)
	b.says(".chart .legend", "p99", "server p50", " ms", " ‰")
	b.do(chromedp.Evaluate(`document.querySelector(".mark").dispatchEvent(new PointerEvent("pointermove", { clientX: 500, clientY: 300, pointerType: "mouse" }))`, nil))
	b.says("#tip", "A firewall rule drops packets", "11:54:00 to 11:59:00")
	b.do(chromedp.Evaluate(`document.querySelector(".mark").dispatchEvent(new PointerEvent("pointerleave"))`, nil))

	b.drag(lossFrom, lossTo)
	b.until(`document.querySelector(".difference .differs")`)
	b.says(".difference", "A firewall rule drops packets", "Retransmission takes 10.8 ms of a request", "504")
	if hash := eval[string](b, "location.hash"); !strings.Contains(hash, "sel=") {
		t.Errorf("the address does not keep the selection: %s", hash)
	}
	b.look("difference")
	var difference string
	for len(asked) > 0 {
		if q := <-asked; strings.HasPrefix(q, "/api/difference") {
			difference = q
		}
	}
	u, err := url.Parse(difference)
	if err != nil || u.Query().Get("ep") != shop[0].key() {
		t.Fatalf("asked for %q", difference)
	}
	for key, want := range map[string]int64{"from": lossFrom, "to": lossTo} {
		var got float64
		if fmt.Sscan(u.Query().Get(key), &got); got < float64(want)-6 || got > float64(want)+6 {
			t.Errorf("asked for a difference with %s=%g instead of %d", key, got, want)
		}
	}

	// With the keyboard: leave it, select anew, look closer.
	b.do(chromedp.Focus(".chart .plot"), chromedp.KeyEvent(kb.Escape))
	b.until(`document.querySelector(".difference").hidden && !location.hash.includes("sel=")`)
	for range 3 {
		b.do(chromedp.KeyEvent(kb.ArrowRight, chromedp.KeyModifiers(input.ModifierShift)))
	}
	b.until(`location.hash.includes("sel=") && !document.querySelector(".difference").hidden`)
	b.do(chromedp.Focus(".chart .plot"), chromedp.KeyEvent(kb.Enter))
	b.until(`location.hash.includes("from=") && !location.hash.includes("sel=") && document.querySelector("#live").innerText.includes("Held")`)
	b.do(chromedp.Click("#live"))
	b.until(`!location.hash.includes("from=") && document.querySelector("#live").innerText.includes("Live")`)
	b.do(chromedp.Click("#live"))
	b.until(`document.querySelector("#live").innerText.includes("Paused")`)
}

func TestSlowestRequestWithinThreeClicks(t *testing.T) {
	b := open(t, 1440, 900, &mock{})
	b.do(chromedp.Click(".slow tbody tr:first-child a")) // the first click
	b.settle("request")
	b.look("request")
	b.says("h1", "nginx")
	b.says(".summary", "% of it")
	b.says(".waterfall", "server", "call", "waits for another service", "Total")
	b.says(".chain", "php-fpm8.2", "containerd-shim", "fluent-bit", "203.0.113.44:24224 does not read what it is sent", "pipe:[48123]")
	// The bars follow each other: each begins where the one before it ended.
	if gap := eval[float64](b, `(() => {
		let end = 0, worst = 0;
		for (const row of document.querySelectorAll(".wf-row[data-part]:not(.inner):not(.aside)")) {
			const r = row.querySelector("rect");
			worst = Math.max(worst, Math.abs(+r.getAttribute("x") - end));
			end = +r.getAttribute("x") + +r.getAttribute("width");
			if (+r.getAttribute("width") <= 2.5) end = +r.getAttribute("x");
		}
		return worst;
	})()`); gap > 3 {
		t.Errorf("a bar begins %g thousandths off the end of the one before", gap)
	}
	if n := b.number(`document.querySelector(".flame").flame.tree.name.length`); n < 20 {
		t.Errorf("the stacks of the moment have %d frames", n)
	}
	b.do(chromedp.NavigateBack())
	b.settle("timeline")
	b.goTo("#/?view=requests&slow=100000", "requests")
	b.says("table.requests", "shop-php", "ms", "retransmitted")
	b.look("requests")
	// One end of each request only.
	b.do(chromedp.SetValue(`select[aria-label="Side"]`, "called"), chromedp.Evaluate(`document.querySelector('select[aria-label="Side"]').dispatchEvent(new Event("change")) && 0`, nil))
	b.until(`location.hash.includes("side=called") && document.querySelector("table.requests .way.called") && !document.querySelector("table.requests .way.served")`)
	b.goTo("#/?view=request&id=nobody", "request")
	b.says("#main", "not stored any more")
}

func TestWaitGraph(t *testing.T) {
	b := open(t, 1440, 900, &mock{})
	b.goTo("#/?view=waits", "waits")
	b.look("waits")
	if n := b.number(`document.querySelectorAll(".wait-node").length`); n != 12 {
		t.Errorf("%d nodes are drawn of 12", n)
	}
	if got := eval[string](b, `[...document.querySelectorAll(".wait-node.culprit")].map((n) => n.dataset.key).join()`); got != "r1" {
		t.Errorf("the culprits are %s", got)
	}
	if got := eval[string](b, `[...document.querySelectorAll(".wait-node.held")].map((n) => n.dataset.key).sort().join()`); got != "a1,a2" {
		t.Errorf("in the cycle are %s", got)
	}
	b.says(".alarm", "They wait for each other", "stock-sync", "stock-audit")
	b.says(".waits", "At the end of the chains: 203.0.113.44:24224", "413 s")
	// Who waits is left of what it waits for, but where they wait for each other.
	b.do(chromedp.Evaluate(`(() => { window.left = (id) => document.querySelector('[data-key="' + id + '"]').getBoundingClientRect().left; })()`, nil))
	for _, e := range waitGraph["edges"].([]object)[:9] {
		if !eval[bool](b, fmt.Sprintf(`left(%q) < left(%q)`, e["from"], e["to"])) {
			t.Errorf("%s is not left of %s", e["from"], e["to"])
		}
	}
	b.do(chromedp.Focus(`[data-key="p1500"]`), chromedp.KeyEvent(kb.Enter))
	b.says(".about", "containerd-shim", "waits for /run/fluent.sock", "pipe:[48123] waits for it")
}

func TestFlameGraph(t *testing.T) {
	b := open(t, 1440, 900, &mock{})
	b.goTo("#/?view=flame", "flame")
	b.look("flame")
	state := func() string {
		return eval[string](b, `(() => { const f = document.querySelector(".flame").flame; return f.tree.name[f.top]; })()`)
	}
	click := func(name string) {
		t.Helper()
		p := eval[*struct{ X, Y, Width, Height float64 }](b, `document.querySelector(".flame").flame.locate(`+quote(name)+`)`)
		if p == nil {
			t.Fatalf("no frame %s is drawn", name)
		}
		b.do(chromedp.MouseClickXY(p.X+p.Width/2, p.Y+p.Height/2))
	}
	click(`Shop\Cart::total`)
	if got := state(); got != `Shop\Cart::total` {
		t.Fatalf("zoomed into %s", got)
	}
	if w := eval[float64](b, `document.querySelector(".flame").flame.locate("Shop\\Cart::total").width / document.querySelector(".flame-box").clientWidth`); w < 0.99 {
		t.Errorf("what is zoomed into is %g wide", w)
	}
	b.do(chromedp.Focus(".flame-box"), chromedp.KeyEvent(kb.Escape))
	if got := state(); got != "all" {
		t.Errorf("Escape leaves %s", got)
	}
	b.do(chromedp.SendKeys(`.flame input`, "^poll$"))
	b.until(`document.querySelector(".flame output").innerText.includes("9.0 %")`)
	b.do(chromedp.KeyEvent("("))
	b.until(`document.querySelector(".flame output").innerText === "not a regular expression"`)
	b.goTo("#/?view=flame&kind=off&sel="+fmt.Sprintf("%d,%d", lossFrom, lossTo), "flame")
	b.until(`document.querySelector(".flame").flame.compares`)
	b.says(".flame-legend", "larger share", "the rest", "the selected range")
	b.look("flame-difference")
}

func TestDark(t *testing.T) {
	b := open(t, 1440, 900, &mock{})
	light := func() float64 {
		return eval[float64](b, `getComputedStyle(document.body).backgroundColor.match(/[\d.]+/g).slice(0, 3).reduce((a, c) => a + +c, 0) / 765`)
	}
	b.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}))
	if l := light(); l > 0.2 {
		t.Errorf("in the dark the ground is %.2f bright", l)
	}
	b.do(chromedp.KeyEvent("t"))
	b.until(`document.documentElement.dataset.theme === "light"`)
	if l := light(); l < 0.8 {
		t.Errorf("chosen light, the ground is %.2f bright", l)
	}
	b.goTo("#/?theme=dark&last=3600", "timeline")
	if l := light(); l > 0.2 {
		t.Errorf("an address that says dark gives a ground %.2f bright", l)
	}
	b.look("timeline-dark")

}

func TestKeys(t *testing.T) {
	b := open(t, 1440, 900, &mock{})
	b.goTo("#/?last=3600", "timeline")
	b.do(chromedp.KeyEvent("c"))
	b.until(`document.querySelector("#clock").innerText === "ago" && [...document.querySelectorAll(".chart .tick")].some((e) => e.textContent === "−20 min")`)
	b.do(chromedp.KeyEvent("c"))
	b.until(`[...document.querySelectorAll(".chart .tick")].some((e) => e.textContent === "11:40")`)
	b.do(chromedp.Click(`.strip-findings a:nth-child(3)`)) // opens the one that was chosen
	b.settle("findings")
	b.says(".finding[open]", "The CPU quota throttles the service", "docker update --cpus 2 booking")
	if n := b.number(`document.querySelectorAll(".finding[open]").length`); n != 1 {
		t.Errorf("%d findings are open", n)
	}

	// However many endpoints there are, the list of them is one stop of Tab, and so is a chart.
	b.goTo("#/?last=3600", "timeline")
	if got := eval[string](b, `[document.querySelectorAll("a.endpoint").length > 4, ...[".endpoints a.endpoint", ".pair .chart:first-child summary, .pair .chart:first-child button, .pair .chart:first-child [tabindex]"].map((q) => [...document.querySelectorAll(q)].filter((e) => e.tabIndex >= 0 && e.checkVisibility()).length)].join()`); got != "true,1,1" {
		t.Errorf("many endpoints, stops of Tab among them and at a chart: %s", got)
	}
	b.do(chromedp.Evaluate(`document.querySelector("a.endpoint[tabindex='0']").focus()`, nil), chromedp.KeyEvent(kb.End), chromedp.KeyEvent(kb.ArrowUp))
	b.until(`document.activeElement === [...document.querySelectorAll("a.endpoint")].at(-2) && document.activeElement.tabIndex === 0 && document.querySelectorAll("a.endpoint[tabindex='0']").length === 1`)
	b.do(chromedp.Evaluate(`document.querySelector(".pair .chart .plot").focus()`, nil), chromedp.KeyEvent("s"))
	b.until(`document.querySelector(".pair .chart details.menu").open && document.activeElement.textContent === "Picture (PNG)"`)
	b.do(chromedp.KeyEvent(kb.Escape))
	b.until(`!document.querySelector(".pair .chart details.menu").open`)

	b.do(chromedp.KeyEvent("?"))
	b.until(`document.querySelector("dialog[open]")`)
	b.do(chromedp.KeyEvent(kb.Escape))
	b.until(`!document.querySelector("dialog")`)
	for i, view := range views[1:] {
		b.do(chromedp.Evaluate(`delete document.documentElement.dataset.ready`, nil), chromedp.KeyEvent(fmt.Sprint(i+2)))
		b.settle(view)
		// What can be used has a name.
		if nameless := eval[string](b, `[...document.querySelectorAll("button, a[href], input, select, summary, [tabindex='0'], svg[role=img]")].filter((e) => !(e.getAttribute("aria-label") || e.textContent.trim() || e.title || e.closest("label"))).map((e) => e.outerHTML.slice(0, 120)).join("\n")`); nameless != "" {
			t.Errorf("%s: without a name: %s", view, nameless)
		}
	}

}

func TestPhone(t *testing.T) {
	b := open(t, 390, 844, &mock{})
	b.do(emulation.SetDeviceMetricsOverride(390, 844, 2, true))
	for _, view := range views {
		b.goTo("#/?view="+view, view)
		b.fits(view)
		b.look("phone-" + view)
	}
	b.says("#main", "proved", "before: 214 ms", "with: 27 ms", "Tuning of nginx :80", "9,700/s good")
	b.goTo("#/", "timeline")
	b.do(chromedp.Evaluate(`document.querySelector(".chart .plot").scrollIntoView({ block: "center" })`, nil))
	x1, y := b.at(lossFrom)
	x2, _ := b.at(lossTo)
	touch := func(kind input.TouchType, points ...*input.TouchPoint) chromedp.Action {
		return input.DispatchTouchEvent(kind, points)
	}
	b.do(touch(input.TouchStart, &input.TouchPoint{X: x1, Y: y}), touch(input.TouchMove, &input.TouchPoint{X: (x1 + x2) / 2, Y: y}), touch(input.TouchMove, &input.TouchPoint{X: x2, Y: y}), touch(input.TouchEnd))
	b.until(`document.querySelector(".difference .differs")`)
	b.fits("a selection")
	b.do(chromedp.Evaluate(`document.querySelector(".slow tbody tr a").click()`, nil))
	b.settle("request")
	b.fits("request")
	b.look("phone-request")
}

// TestEveryWordIsWhole opens all there is in each view, on screens of some widths.
func TestEveryWordIsWhole(t *testing.T) {
	b := open(t, 1440, 900, &mock{})
	for _, wide := range []int64{1440, 390} {
		b.do(emulation.SetDeviceMetricsOverride(wide, 900, 1, wide < 600))
		for _, view := range append(views, "request") {
			hash := "#/?last=3600&view=" + view
			if view == "request" {
				hash += "&id=" + shop[0].requests(lossFrom, lossTo)[0]["id"].(string)
			}
			b.goTo(hash, view)
			b.do(chromedp.Evaluate(`for (const e of document.querySelectorAll("#main details:not(.menu)")) e.open = true`, nil))
			b.fits(fmt.Sprintf("%s at %d px", view, wide))
			b.whole(fmt.Sprintf("%s at %d px", view, wide))
			b.look(fmt.Sprintf("%s-%d", view, wide))
		}
		b.goTo("#/?last=3600&view=drops", "drops")
		b.says(".layers", "to 192.0.2.10:8081")
		b.goTo("#/?last=3600&view=findings", "findings")
		b.do(chromedp.Evaluate(`for (const e of document.querySelectorAll("#main details:not(.menu)")) e.open = true`, nil))
		b.says(".finding", "15.45 of 16.72 s in which nginx was busy with requests", "55 %", "40 workers", "request records, and looks at the threads", "the slowest 1 % of 1,637 requests on :9000 take 287 ms: server 52 %, accept_wait 47 %")
	}
}

// whole fails when a word of usual length is broken, or a letter stands alone
// beneath another one: the place it stands in is too narrow.
func (b *browser) whole(what string) {
	b.t.Helper()
	if broken := eval[string](b, `(() => {
		const found = [], walk = document.createTreeWalker(document.getElementById("main"), NodeFilter.SHOW_TEXT);
		for (let n; n = walk.nextNode();) {
			if (n.parentElement.closest("pre, svg, .offstage") || !n.parentElement.checkVisibility()) continue;
			for (const m of n.data.matchAll(/[^\s\/.,:;_()\[\]|-]{2,22}/g)) { // a path may be broken, at its slashes or elsewhere
				if (/\S{23}/.test(n.data.slice(Math.max(0, m.index - 23), m.index + m[0].length + 23)) && n.data.match(/\S+/g).some((w) => w.includes(m[0]) && w.length > 22)) continue;
				const r = document.createRange();
				r.setStart(n, m.index);
				r.setEnd(n, m.index + m[0].length);
				if (new Set([...r.getClientRects()].map((x) => Math.round(x.top))).size > 1) found.push(m[0] + " in " + n.parentElement.tagName + "." + n.parentElement.className + " of " + Math.round(n.parentElement.getBoundingClientRect().width) + " px");
			}
		}
		return [...new Set(found)].slice(0, 6).join("\n");
	})()`); broken != "" {
		b.t.Errorf("%s: words are broken:\n%s", what, broken)
	}
}

// fits fails when the page is wider than the window.
func (b *browser) fits(what string) {
	b.t.Helper()
	if over := eval[string](b, `document.documentElement.scrollWidth <= innerWidth ? "" : document.documentElement.scrollWidth + " of " + innerWidth + ": " + [...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1).slice(0, 4).map((e) => e.tagName + "." + e.getAttribute("class")).join(" ")`); over != "" {
		b.t.Errorf("%s is wider than the window: %s", what, over)
	}
}

func TestFiguresAndExports(t *testing.T) {
	b := open(t, 1200, 800, &mock{})
	wants := map[string]string{
		`figure.micros(214000)`: "214 ms", `figure.micros(93.4)`: "93.4 µs", `figure.micros(1.3e6)`: "1.3 s", `figure.micros(999.9)`: "1 ms", `figure.micros(null)`: "–", `figure.micros(0)`: "0",
		`figure.percent(0.00001)`: "under 0.1 %", `figure.percent(0.9999)`: "over 99.9 %", `figure.percent(1)`: "100 %", `figure.count(290566)`: "290,566", `figure.permille(31.42)`: "31 ‰",
		`exporting.table(["a"], [["=1+1"], ["x,\"y"], [null], [-3]])`: "a\r\n'=1+1\r\n\"x,\"\"y\"\r\n\r\n-3\r\n",
		`dom.clean("a\u202eb\u0007c")`:                                "a\ufffdb\ufffdc",
		`String(dom.clean("x".repeat(70000)).length < 200)`:           "true",
		`JSON.stringify(layout.cycles([{id: 1}, {id: 2}, {id: 3}], [{from: 1, to: 2}, {from: 2, to: 1}, {from: 2, to: 3}]).map((g) => g.sort()))`:                                                      "[[1,2]]",
		`JSON.stringify(layout.layers([{id: "a"}, {id: "b"}, {id: "c"}], [{from: "a", to: "b"}, {from: "b", to: "c"}, {from: "a", to: "c"}]).rows.map((r) => r.filter((x) => typeof x === "string")))`: `[["a"],["b"],["c"]]`,
	}
	var list []string
	for expression := range wants {
		list = append(list, "["+quote(expression)+", "+expression+"]")
	}
	var rows []struct {
		Value, Limit any
		Unit, Want   string
	}
	table, err := os.ReadFile("../../figure/testdata/evidence.json")
	if err == nil {
		err = json.Unmarshal(table, &rows)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		call, _ := json.Marshal([]any{r.Value, r.Limit, r.Unit})
		expression := "figure.evidence(..." + string(call) + ")"
		wants[expression] = r.Want
		list = append(list, "["+quote(expression)+", "+expression+"]")
	}
	got := eval[[][2]string](b, `Promise.all(["figure", "export", "dom", "layout"].map((m) => import("/assets/" + m + ".js"))).then(([figure, exporting, dom, layout]) => [`+strings.Join(list, ",\n")+`])`)
	for _, x := range got {
		if x[1] != wants[x[0]] {
			t.Errorf("%s is %q, want %q", x[0], x[1], wants[x[0]])
		}
	}
	if len(got) != len(wants) {
		t.Errorf("%d answers to %d questions", len(got), len(wants))
	}
	svg := eval[string](b, `import("/assets/export.js").then((m) => m.picture(document.querySelector(".chart .plot svg"), "Response <time>", [{ name: "p<99>", color: "var(--line-total)", dash: "" }]).text)`)
	for _, want := range []string{"<svg xmlns=", "Response &lt;time&gt;", "p&lt;99&gt;", "<path", "stroke=\"rgb(63, 111, 209)\""} {
		if !strings.Contains(svg, want) {
			t.Errorf("the drawing lacks %s: %.300s", want, svg)
		}
	}
	if strings.Contains(svg, "class=") || strings.Contains(svg, "var(") {
		t.Error("the drawing needs a style sheet")
	}
	// A picture is drawn without leaving the page's policy.
	if kind := eval[string](b, `new Promise((done) => {
		HTMLAnchorElement.prototype.click = function () { done(this.download + " " + this.href.slice(0, 5)); };
		import("/assets/export.js").then((m) => m.savePNG(document.querySelector(".chart .plot svg"), "Response time"));
	})`); kind != "slowray-response-time.png blob:" {
		t.Errorf("saved %s", kind)
	}
}

// TestManyPointsStayFluid moves the cursor over charts of the most that is
// ever asked for, and times it.
func TestManyPointsStayFluid(t *testing.T) {
	b := open(t, 1440, 900, &mock{})
	begin := time.Now()
	perMove := eval[float64](b, `(() => { // the best of some rounds: others compute on this machine too
		const plot = document.querySelector(".chart .plot"), r = plot.getBoundingClientRect();
		let best = Infinity;
		for (let round = 0; round < 6; round++) {
			const t0 = performance.now();
			for (let i = 0; i < 10; i++) plot.dispatchEvent(new PointerEvent("pointermove", { clientX: r.left + 60 + i * 30 + round, clientY: r.top + 40, pointerType: "mouse", bubbles: true }));
			document.body.offsetWidth;
			best = Math.min(best, (performance.now() - t0) / 10);
		}
		return best;
	})()`)
	t.Logf("a move of the cursor takes %.2f ms over six charts (%.0f ms in all)", perMove, time.Since(begin).Seconds()*1000)
	if perMove > 40 { // 16 ms is a frame of 60 a second; a slow machine has several times that
		t.Errorf("a move of the cursor takes %.1f ms", perMove)
	}
}

// TestHeadlineIsOfOneFinding: its service, time and cause are those of the first finding, not of the endpoint
// that some other finding made the gravest.
func TestHeadlineIsOfOneFinding(t *testing.T) {
	b := open(t, 1200, 800, &mock{})
	got := eval[[]string](b, `import("/assets/findings.js").then(({ verdict }) => {
		const app = { range: { from: 0, to: 1 } }, end = 1795725000;
		const e = (key, side, comm, port, p99) => ({ key, side, port, addr: "10.0.0.1", netns: 1, requests: 100, errors: 0, process: { comm }, total_us: { p99 }, ledger_us: { server: { mean: p99 * 100 } } });
		const endpoints = [e("a", "served", "booking-app", 4675, 298000), e("b", "served", "mariadbd", 3726, 41000), e("c", "called", "shop", 3306, 2000)];
		const f = (key, title, onset, more) => ({ key, cause: title, title, role: "cause", share: 0.5, subject: { comm: "exe" }, onset, end: end, shares: [], ...more });
		const other = f("a", "A dependency answers slowly", end - 500, { share: 1 });
		return [f("b", "Queries wait for a row lock", end - 60), f("c", "A route is missing", end - 60), f(null, "A host refuses", end - 60)].map((x) => verdict({ findings: [x, other] }, endpoints, app).innerText.replace(/\s+/g, " ").replace(/(\d+-\d+-\d+ )?\d\d:\d\d(:\d\d)?/g, "T"));
	})`)
	want := []string{"mariadbd :3726 p99 41 ms: Queries wait for a row lock, T to T (60 s); 2 causes", "shop → :3306 p99 2 ms: A route is missing, T to T (60 s); 2 causes", "exe: A host refuses, T to T (60 s); 2 causes"}
	for i := range want {
		if got[i] != "PROBLEM"+want[i] && got[i] != "PROBLEM "+want[i] {
			t.Errorf("%q, want %q", got[i], want[i])
		}
	}
}

// TestSidesAndChainsAsElsewhere: a side has the words of requests and of top, and chains are in the order
// that their heading tells.
func TestSidesAndChainsAsElsewhere(t *testing.T) {
	m := &mock{}
	b := open(t, 1200, 800, m)
	b.goTo("#/?last=3600", "timeline")
	b.says(".title h1 .way", "served")
	if got := eval[string](b, `[...new Set([...document.querySelectorAll(".endpoints .way")].map((e) => e.textContent))].sort().join()`); got != "called,served" {
		t.Errorf("sides %s", got)
	}
	chains := []object{}
	for _, s := range []float64{82, 1020, 60, 9.56, 83} {
		chains = append(chains, object{"nodes": []string{"a1", "a2"}, "seconds": s, "text": "", "cycle": false})
	}
	m.tells(map[string]any{"/api/waits": object{"nodes": waitGraph["nodes"], "edges": waitGraph["edges"], "chains": chains, "losses": []object{}}})
	b.goTo("#/?view=waits", "waits")
	if got := eval[string](b, `[...document.querySelectorAll("ol.worded li > b")].map((e) => e.textContent).join()`); got != "17 min,83 s,82 s,60 s,9.56 s" {
		t.Errorf("chains of %s", got)
	}
}
