package flame

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/slowray/slowray/internal/observe"
)

func page(s *stacks, o Options) func(io.Writer) error {
	return func(w io.Writer) error { return HTML(w, &s.Stacks, o) }
}

func diffPage(p Pair, o Options) func(io.Writer) error {
	return func(w io.Writer) error { return DiffHTML(w, p, o) }
}

func TestPageZooms(t *testing.T) {
	b := open(t, 1280, 800, page(shop(), Options{Roots: RootProcess}))
	before := b.state()
	if before.Zoomed != "all" || before.Value != "cpu" || before.Frames < 60 {
		t.Fatalf("at the start: %+v", before)
	}
	if want := sumOf(&shop().Stacks, 1); before.Total != want {
		t.Errorf("total %v, want the sum of all samples, %v", before.Total, want)
	}
	b.look("start")
	narrow := b.find(`App\Cart::total`)
	b.click(`App\Cart::total`)
	if s := b.state(); s.Zoomed != `App\Cart::total` || s.Frames >= before.Frames {
		t.Errorf("after a click: %+v", s)
	}
	if wide := b.find(`App\Cart::total`); wide.Width < 1200 || wide.Width < 2*narrow.Width {
		t.Errorf("the frame that was clicked is %v wide, before %v", wide.Width, narrow.Width)
	}
	if got := b.at(`App\Cart::total`); got == b.paper() {
		t.Errorf("where the frame is, the canvas is empty: %s", got)
	}
	b.look("zoomed")
	b.do(chromedp.Click("#reset", chromedp.ByQuery))
	if s := b.state(); s.Zoomed != "all" || s.Frames != before.Frames {
		t.Errorf("after reset: %+v, before %+v", s, before)
	}
	b.click("java (3100)")
	b.do(chromedp.KeyEvent(kb.Escape))
	if s := b.state(); s.Zoomed != "all" {
		t.Errorf("after Escape: %+v", s)
	}
}

func TestPageSearches(t *testing.T) {
	b := open(t, 1280, 800, page(shop(), Options{Roots: RootProcess}))
	plain := b.at(`App\Cart::total`)
	var focused bool
	b.do(chromedp.KeyEvent("/"), chromedp.Evaluate(`document.activeElement.id === "query"`, &focused))
	if !focused {
		t.Error("the key / does not lead to the search")
	}
	// The protocol types the character even though the page takes the key.
	b.do(chromedp.Evaluate(`document.getElementById("query").value = ""`, nil), chromedp.KeyEvent("cart::|search_leaf\\("), chromedp.Sleep(200*time.Millisecond))
	// 140+85+60 samples of Cart::total, in which Price::round is counted already, and 92.
	want := float64((140 + 85 + 60 + 92) * 10_101_010)
	if s := b.state(); s.Matched != want {
		t.Errorf("matched %v, want %v", s.Matched, want)
	}
	if text := b.text("#matched"); text != "45 % of all · 3.81 s" {
		t.Errorf("share that matched: %q", text)
	}
	b.look("search")
	if got := b.at(`App\Cart::total`); got == plain {
		t.Errorf("a frame that matches is not marked: %s", got)
	}
	b.click(`php-fpm (812)`)
	if text := b.text("#matched"); !strings.HasSuffix(text, "of what is shown · 2.27 s") {
		t.Errorf("share that matched in what is zoomed into: %q", text)
	}
	b.do(chromedp.Focus("#query", chromedp.ByQuery), chromedp.KeyEvent(kb.Escape))
	if s := b.state(); s.Matched != -1 || s.Zoomed != "php-fpm (812)" {
		t.Errorf("Escape in the search: %+v, want the search to end and the zoom to stay", s)
	}
	b.do(chromedp.SendKeys("#query", "*(", chromedp.ByQuery), chromedp.Sleep(200*time.Millisecond))
	if text := b.text("#matched"); text != "not a regular expression" {
		t.Errorf("of a wrong expression it says %q", text)
	}
}

func TestPageChooses(t *testing.T) {
	b := open(t, 1280, 800, page(shop(), Options{Roots: RootProcess}))
	b.do(chromedp.Click(`#values button[data-value="2"]`, chromedp.ByQuery))
	if s := b.state(); s.Value != "off-cpu" || s.Total != sumOf(&shop().Stacks, 2) {
		t.Errorf("off CPU: %+v", s)
	}
	b.look("off-cpu")
	if text := b.text("#legend"); !strings.Contains(text, "Python") && !strings.Contains(text, "PHP") {
		t.Errorf("the legend does not explain all colours: %q", text)
	}
	b.choose("slow", "1")
	if s := b.state(); s.Total != (4210+1800+3900)*1e6 {
		t.Errorf("off CPU in slow requests: %+v", s)
	}
	b.choose("slow", "")
	b.choose("process", b.option("process", "java (3100), 2 threads"))
	if s := b.state(); s.Total != 9200e6 {
		t.Errorf("off CPU of java: %+v", s)
	}
	b.do(chromedp.Click(`#values button[data-value="1"]`, chromedp.ByQuery))
	b.choose("thread", b.option("thread", "GC Thread#0 (3105)"))
	if s := b.state(); s.Total != 40*10_101_010 {
		t.Errorf("CPU of a thread: %+v", s)
	}
	b.choose("roots", "thread")
	if b.find("GC Thread#0 (3105)").Width < 1200 {
		t.Error("the thread is not a frame")
	}
	b.choose("process", "")
	top := b.find("all")
	b.do(chromedp.Click("#flip", chromedp.ByQuery))
	if s, below := b.state(), b.find("all"); !s.Flame || below.Y < top.Y+300 {
		t.Errorf("the root is at %v, and was at %v", below.Y, top.Y)
	}
	b.look("flame")
}

func TestPageTells(t *testing.T) {
	b := open(t, 1280, 800, page(shop(), Options{Roots: RootProcess}))
	at := b.find(`App\Price::round`)
	b.do(chromedp.MouseEvent("mouseMoved", at.X+20, at.Y+5))
	tip := b.text("#tip")
	for _, want := range []string{`App\Price::round`, "1.41 s · 17 % of all · 62 % of its caller", "itself: 1.41 s", "PHP · /srv/shop/src/Price.php:19"} {
		if !strings.Contains(tip, want) {
			t.Errorf("the tooltip does not say %q: %q", want, tip)
		}
	}
	b.look("tooltip")
	// By keys: to the process, its neighbour, and into it.
	b.do(chromedp.Focus("#graph", chromedp.ByQuery), chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.Enter))
	if s := b.state(); s.Zoomed != "java (3100)" {
		t.Errorf("by keys: %+v", s)
	}
	if text := b.text("#legend"); !strings.Contains(text, "kernel 11 %") || !strings.Contains(text, "Go 9.4 %") {
		t.Errorf("legend: %q", text)
	}
	if text := b.text("#incomplete ul"); !strings.Contains(text, "stacks without symbols in /opt/vendor/agent: 12") {
		t.Errorf("losses: %q", text)
	}
	b.do(chromedp.Click("#show-table", chromedp.ByQuery))
	b.look("functions")
	if row := b.text("#table tbody tr:first-child"); !strings.Contains(row, `App\Price::round`) || !strings.Contains(row, "24 %") {
		t.Errorf("first of the functions: %q", row)
	}
	b.do(chromedp.Click("#table tbody tr:first-child", chromedp.ByQuery))
	if s := b.state(); s.Matched <= 0 && s.Zoomed == "all" {
		t.Errorf("a function of the table is not found in the graph: %+v", s)
	}
	b.do(chromedp.Click("#show-table", chromedp.ByQuery), chromedp.Evaluate(`document.getElementById("query").value = ""`, nil), chromedp.Click(`#values button[data-value="2"]`, chromedp.ByQuery))
	if row := b.text("#table tbody tr:first-child"); !strings.Contains(row, "Unsafe_Park") {
		t.Errorf("first of what waits: %q, want what is not in the kernel", row)
	}
}

func TestPageCompares(t *testing.T) {
	b := open(t, 1280, 800, diffPage(Diff(&shop().Stacks, &later().Stacks), Options{}))
	b.look("diff")
	red, blue, same := b.rgb("runtime.scanobject"), b.rgb(`App\Price::round`), b.rgb("java")
	if red[0] < red[2]+60 {
		t.Errorf("what has grown is not red: %v", red)
	}
	if blue[2] < blue[0]+60 {
		t.Errorf("what has shrunk is not blue: %v", blue)
	}
	if math.Abs(same[0]-same[2]) > 20 {
		t.Errorf("what has hardly changed is not grey: %v", same)
	}
	at := b.find("runtime.procyield")
	b.do(chromedp.MouseEvent("mouseMoved", at.X+10, at.Y+5))
	if tip := b.text("#tip"); !strings.Contains(tip, "before: 0 %") || !strings.Contains(tip, ", new") {
		t.Errorf("tooltip: %q", tip)
	}
	b.choose("process", b.option("process", "orders"))
	if got := b.rgb("runtime.goexit"); math.Abs(got[0]-got[2]) > 120 {
		t.Errorf("of orders alone, before its restart and after, all looks new: %v", got)
	}
	b.choose("process", "")
	b.choose("side", "before")
	if b.find(`App\Price::round`).Width < 200 {
		t.Error("as wide as before, Price::round is not wide")
	}
	b.do(chromedp.Click("#show-table", chromedp.ByQuery))
	b.look("diff-functions")
	if row := b.text("#table tbody tr:first-child"); !strings.Contains(row, "−21.5 points") || !strings.Contains(row, `App\Price::round`) {
		t.Errorf("first of the changes: %q", row)
	}
}

func TestPageOfSlowRequests(t *testing.T) {
	b := open(t, 1280, 800, diffPage(SlowAgainstNormal(&shop().Stacks), Options{Value: "off-cpu"}))
	b.look("slow")
	if s := b.state(); s.Total != (4210+1800+3900)*1e6 {
		t.Errorf("time in slow requests: %+v", s)
	}
	if red := b.rgb("io_schedule"); red[0] < red[2]+60 {
		t.Errorf("what only slow requests do is not red: %v", red)
	}
}

// hostile are names that try to leave their place.
var hostile = []string{
	`</script><script>window.hacked=1</script>`, `"><img src=x onerror="window.hacked=1">`, `'+window.hacked+'`, `{{script}}`, `<!--<script>`,
	"\u2028\u2029line", "\x00\x1b[31mred\x07", "\u202Egnp.exe", "\xff\xfe", ";semi;colons 12", " ", "", `\`, `${window.hacked=1}`, "__proto__", "constructor",
	"std::__1::basic_string<" + strings.Repeat("std::pair<int, std::vector<", 5000) + strings.Repeat(">>", 5000) + ">::append(char const*)",
}

func hostileStacks() *stacks {
	s := newStacks()
	for i, name := range hostile {
		s.Frames = append(s.Frames, observe.Frame{Name: name, Kind: observe.FrameKind(name), Module: name, File: name, Line: i})
		s.Samples = append(s.Samples, observe.StackSample{PID: i, TID: i, Comm: name, Thread: name, State: name, Frames: []int32{int32(i)}, Values: []int64{1, 1, 1}})
	}
	s.Types[0].Unit = hostile[0]
	s.Losses = []observe.Loss{{What: hostile[1], Count: 1}}
	s.Notes = hostile
	return s
}

func TestPageOfHostileNames(t *testing.T) {
	b := open(t, 1280, 800, page(hostileStacks(), Options{Title: hostile[0], Subtitle: hostile[1], Value: "samples"}))
	b.look("hostile")
	if s := b.state(); s.Total != float64(len(hostile)) {
		t.Errorf("%+v", s)
	}
	b.do(chromedp.Click("#show-table", chromedp.ByQuery))
	for _, name := range []string{hostile[0], hostile[1]} {
		if table := b.text("#table"); !strings.Contains(table, name) {
			t.Errorf("%q is not in the table: %.300q", name, table)
		}
	}
	b.do(chromedp.Click("#show-graph", chromedp.ByQuery))
	at := b.find(hostile[0])
	b.do(chromedp.MouseEvent("mouseMoved", at.X+5, at.Y+5))
	if tip := b.text("#tip"); !strings.Contains(tip, hostile[0]) {
		t.Errorf("tooltip: %q", tip)
	}
	var hacked bool
	b.do(chromedp.Evaluate(`"hacked" in window`, &hacked))
	if hacked {
		t.Error("a name has run as a script")
	}
	if title := b.text("h1"); title != hostile[0] {
		t.Errorf("title: %q", title)
	}
}

func TestPageOfManyStacks(t *testing.T) {
	start := time.Now()
	b := open(t, 1280, 800, page(many(50_000), Options{}))
	s := b.state()
	t.Logf("%d nodes, %d frames drawn, %v from the stacks to the picture, Chromium's start included", s.Nodes, s.Frames, time.Since(start).Round(time.Millisecond))
	b.look("many")
	if want := 50_000 * 10_101_010.0; s.Total != want {
		t.Errorf("total %v, want %v", s.Total, want)
	}
	var grow, draw, search float64
	b.do(
		chromedp.Evaluate(`(() => { const t = performance.now(); document.querySelector('#values button[data-value="2"]').click(); return performance.now() - t })()`, &grow),
		chromedp.Evaluate(`(() => { const t = performance.now(); document.getElementById("flip").click(); return performance.now() - t })()`, &draw),
		chromedp.Evaluate(`(() => { const t = performance.now(); document.getElementById("query").value = "function_4.*2<"; document.getElementById("flip").click(); return performance.now() - t })()`, &search),
	)
	t.Logf("another value %.0f ms, drawn again %.0f ms, searched %.0f ms", grow, draw, search)
	if grow > 10_000 || draw > 5_000 || search > 10_000 {
		t.Errorf("too slow to be used: another value %.0f ms, drawn again %.0f ms, searched %.0f ms", grow, draw, search)
	}
}

func TestPageOnPhoneAndInTheDark(t *testing.T) {
	b := open(t, 390, 844, page(shop(), Options{Roots: RootProcess}))
	b.look("phone")
	var wide, high float64
	b.do(chromedp.Evaluate(`document.documentElement.scrollWidth`, &wide), chromedp.Evaluate(`document.getElementById("graph").clientHeight`, &high))
	if wide > 390 || high < 300 {
		t.Errorf("on a phone the page is %v wide and leaves %v for the graph", wide, high)
	}
	light := b.rgb(`App\Cart::total`)
	b.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}), chromedp.Sleep(100*time.Millisecond))
	b.look("phone-dark")
	if dark := b.rgb(`App\Cart::total`); dark[0]+dark[1]+dark[2] >= light[0]+light[1]+light[2] {
		t.Errorf("in the dark a frame is %v, in the light %v", dark, light)
	}
	b.do(chromedp.Click("#more", chromedp.ByQuery), chromedp.WaitVisible("#process", chromedp.ByQuery))
	b.look("phone-filter")
}

// On glass the first touch tells what a frame is, the second zooms.
func TestPageIsTouched(t *testing.T) {
	b := open(t, 390, 844, page(shop(), Options{Flame: true}))
	b.do(emulation.SetTouchEmulationEnabled(true), emulation.SetDeviceMetricsOverride(390, 840, 1, true), chromedp.Sleep(200*time.Millisecond))
	at := b.find(`App\Cart::total`)
	touch := chromedp.ActionFunc(func(ctx context.Context) error {
		point := []*input.TouchPoint{{X: at.X + 10, Y: at.Y + 5}}
		if err := input.DispatchTouchEvent(input.TouchStart, point).Do(ctx); err != nil {
			return err
		}
		return input.DispatchTouchEvent(input.TouchEnd, []*input.TouchPoint{}).Do(ctx)
	})
	b.do(touch, chromedp.Sleep(200*time.Millisecond))
	if text, s := b.text("#detail"), b.state(); !strings.HasPrefix(text, `App\Cart::total`) || s.Zoomed != "all" {
		t.Errorf("after the first touch %+v, and it says %q", s, text)
	}
	if now := b.find(`App\Cart::total`); now != at {
		t.Errorf("what was touched has moved from %+v to %+v", at, now)
	}
	b.do(touch, chromedp.Sleep(200*time.Millisecond))
	if s := b.state(); s.Zoomed != `App\Cart::total` {
		t.Errorf("after the second touch: %+v", s)
	}
}

// A stack of thousands of frames is drawn as far as the window is high, and the
// rest when it is scrolled to.
func TestPageOfDeepStack(t *testing.T) {
	s := newStacks()
	var frames []string
	for i := range 5000 {
		frames = append(frames, fmt.Sprintf("py:f%d", i))
	}
	s.on(1, "deep", 7, strings.Join(frames, " | "))
	b := open(t, 1280, 800, page(s, Options{}))
	if p := b.state(); p.Frames > 60 || p.Deep != 5001 {
		t.Errorf("%+v", p)
	}
	b.do(chromedp.Evaluate(`document.getElementById("graph").scrollTop = 1e9`, nil), chromedp.Sleep(200*time.Millisecond))
	b.look("deep")
	leaf := b.find("f4999")
	if leaf.Y < 0 || leaf.Y > 800 || b.at("f4999") == b.paper() {
		t.Errorf("the leaf is at %+v", leaf)
	}
	b.click("f4990")
	if p := b.state(); p.Zoomed != "f4990" {
		t.Errorf("%+v", p)
	}
	b.do(chromedp.Click("#flip", chromedp.ByQuery))
	if p := b.state(); p.Frames == 0 {
		t.Errorf("turned round: %+v", p)
	}
	b.do(chromedp.Evaluate(`document.getElementById("graph").scrollTop = 0`, nil), chromedp.Sleep(200*time.Millisecond))
	b.click("f4995")
	if at := b.find("f4995"); at.Y < 100 || at.Y > 750 {
		t.Errorf("what was zoomed into is out of sight: %+v", at)
	}
	for name, f := range outputs {
		if got := write(t, f, &s.Stacks, Options{}); got == "" {
			t.Errorf("%s is empty", name)
		}
	}
}

func TestPageOfNothing(t *testing.T) {
	for name, write := range map[string]func(io.Writer) error{
		"nil":                func(w io.Writer) error { return HTML(w, nil, Options{}) },
		"no samples":         page(newStacks(), Options{}),
		"nothing to compare": diffPage(Pair{}, Options{}),
	} {
		b := open(t, 1280, 800, write)
		if text := b.text("#nothing"); text != "No stack was seen." {
			t.Errorf("%s: %q", name, text)
		}
	}
}

func sumOf(s *observe.Stacks, value int) float64 {
	sum := 0.0
	for _, x := range s.Samples {
		sum += float64(x.Values[value])
	}
	return sum
}

func (b *browser) text(selector string) string {
	b.t.Helper()
	var text string
	b.do(chromedp.Evaluate(fmt.Sprintf(`document.querySelector(%q).textContent`, selector), &text))
	return text
}

func (b *browser) choose(id, value string) {
	b.t.Helper()
	b.do(chromedp.Evaluate(fmt.Sprintf(`(() => { const s = document.getElementById(%q); s.value = %q; s.dispatchEvent(new Event("change")); return s.value })()`, id, value), nil))
}

// option is the value of an option that reads so.
func (b *browser) option(id, text string) string {
	b.t.Helper()
	var value string
	b.do(chromedp.Evaluate(fmt.Sprintf(`[...document.getElementById(%q).options].find((o) => o.textContent === %q)?.value ?? "none"`, id, text), &value))
	if value == "none" {
		b.t.Fatalf("%s has no option %q", id, text)
	}
	return value
}
