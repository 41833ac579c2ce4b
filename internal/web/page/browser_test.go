package page_test

import (
	"bytes"
	"context"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser is a Chromium with the page open; it can reach nothing but the server
// that the page is from.
type browser struct {
	t   *testing.T
	ctx context.Context
	url string
}

func chromium(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: a browser takes seconds (-short)")
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("SKIPPED: the page is not tried in a browser: no Chromium (apt-get install chromium)")
	return ""
}

// open starts Chromium of a size on the page of a handler.
func open(t *testing.T, width, height int64, handler http.Handler) *browser {
	t.Helper()
	b := openAt(t, width, height, handler, "/")
	b.settle("timeline")
	return b
}

// openAt is open with an address; it does not wait for what is there.
func openAt(t *testing.T, width, height int64, handler http.Handler, address string) *browser {
	t.Helper()
	path := chromium(t)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	dir := profileDir(t)
	options := []chromedp.ExecAllocatorOption{chromedp.ExecPath(path), chromedp.UserDataDir(dir), chromedp.Env("TMPDIR="+dir, "TZ=UTC"), chromedp.WSURLReadTimeout(60 * time.Second)}
	for _, n := range []string{"headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking", "disable-component-update", "disable-sync", "disable-default-apps", "disable-extensions", "disable-dev-shm-usage", "no-default-browser-check", "hide-scrollbars"} {
		options = append(options, chromedp.Flag(n, true))
	}
	options = append(options, chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(stop)
	ctx, end := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(end)
	ctx, leave := chromedp.NewContext(ctx, chromedp.WithErrorf(func(string, ...any) {})) // events that chromedp does not know
	t.Cleanup(leave)
	t.Cleanup(func() { _ = chromedp.Cancel(ctx) }) // waits until the browser has ended
	b := &browser{t: t, ctx: ctx, url: server.URL}
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("page: %s", e.ExceptionDetails.Error())
		case *network.EventRequestWillBeSent:
			if u := e.Request.URL; !strings.HasPrefix(u, server.URL+"/") && !strings.HasPrefix(u, "blob:"+server.URL) && !strings.HasPrefix(u, "data:") {
				t.Errorf("page: asks for %s", u)
			}
		case *runtime.EventConsoleAPICalled:
			t.Errorf("page: console %s: %s %s", e.Type, e.Args[0].Value, e.Args[0].Description)
		}
	})
	b.do(network.Enable(), emulation.SetDeviceMetricsOverride(width, height, 1, width < 600), emulation.SetTimezoneOverride("UTC"), chromedp.Navigate(server.URL+address))
	return b
}

// profileDir is a new directory for a browser, whose helpers may still write into
// it for a moment when it has ended.
func profileDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "slowray-chromium-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 50 {
			if err = os.RemoveAll(dir); err == nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Logf("left behind: %v", err)
	})
	return dir
}

func (b *browser) do(actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// eval runs an expression in the page.
func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	var v T
	b.do(chromedp.Evaluate(expression, &v, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	return v
}

// until waits until an expression is true.
func (b *browser) until(expression string) {
	b.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(30 * time.Millisecond) {
		if eval[bool](b, "!!("+expression+")") {
			return
		}
		if time.Now().After(end) {
			b.look("failed")
			b.t.Fatalf("never true: %s\n%s", expression, eval[string](b, "document.body.innerText.slice(0, 1500)"))
		}
	}
}

// settle waits until a view has drawn what it loaded, and nothing is under way.
func (b *browser) settle(view string) {
	b.t.Helper()
	b.until(`(() => { const { ready, busy } = document.documentElement.dataset; return ready && !busy && document.getElementById("main").dataset.view === "` + view + `"; })()`)
}

func (b *browser) goTo(hash, view string) {
	b.t.Helper()
	b.do(chromedp.Evaluate(`delete document.documentElement.dataset.ready; location.hash = "`+hash+`"`, nil))
	b.settle(view)
}

// look saves what is to be seen, when SLOWRAY_PICTURES names a directory.
func (b *browser) look(name string) { b.t.Helper(); b.picture("page-" + name + ".png") }

// picture is look with the name of the file.
func (b *browser) picture(name string) {
	b.t.Helper()
	dir := os.Getenv("SLOWRAY_PICTURES")
	if dir == "" {
		return
	}
	var picture []byte
	b.do(chromedp.CaptureScreenshot(&picture))
	if err := os.WriteFile(filepath.Join(dir, name), smaller(b.t, picture), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// smaller is a picture with 256 of its colours, the most frequent and the most
// different: a third of the size, and it looks the same.
func smaller(t *testing.T, picture []byte) []byte {
	t.Helper()
	from, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	box := from.Bounds()
	counts := map[color.RGBA]int{}
	at := func(x, y int) color.RGBA {
		r, g, b, _ := from.At(x, y).RGBA()
		return color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 255}
	}
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			counts[at(x, y)]++
		}
	}
	all := make([]color.RGBA, 0, len(counts))
	for c := range counts {
		all = append(all, c)
	}
	number := func(c color.RGBA) int { return int(c.R)<<16 | int(c.G)<<8 | int(c.B) }
	slices.SortFunc(all, func(a, b color.RGBA) int {
		if n := counts[b] - counts[a]; n != 0 {
			return n
		}
		return number(a) - number(b)
	})
	var kept color.Palette
	for _, c := range all[:min(len(all), 200)] {
		kept = append(kept, c)
	}
	far := make([]int, len(all)) // from the nearest that is kept
	for i, c := range all {
		far[i] = distance(c, kept[kept.Index(c)])
	}
	for len(kept) < 256 && len(kept) < len(all) {
		next := all[slices.Index(far, slices.Max(far))]
		kept = append(kept, next)
		for i, c := range all {
			far[i] = min(far[i], distance(c, next))
		}
	}
	nearest := map[color.RGBA]uint8{}
	to := image.NewPaletted(box, kept)
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			c := at(x, y)
			i, known := nearest[c]
			if !known {
				i = uint8(kept.Index(c))
				nearest[c] = i
			}
			to.SetColorIndex(x, y, i)
		}
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func distance(a, b color.Color) int {
	r, g, bl, _ := a.RGBA()
	r2, g2, b2, _ := b.RGBA()
	d := func(x, y uint32) int { return (int(x) - int(y)) >> 8 * ((int(x) - int(y)) >> 8) }
	return d(r, r2) + d(g, g2) + d(bl, b2)
}
