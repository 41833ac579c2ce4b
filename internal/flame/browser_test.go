package flame

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser is a Chromium that can reach no network, with one page open.
type browser struct {
	t   *testing.T
	ctx context.Context
}

func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("SKIPPED: the page is not tried in a browser: no Chromium (apt-get install chromium)")
	return ""
}

// open starts Chromium with the page that write writes, from a file.
func open(t *testing.T, width, height int64, write func(io.Writer) error) *browser {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: a browser takes seconds (-short)")
	}
	path := chromium(t)
	file := filepath.Join(t.TempDir(), "flame.html")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := write(f); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	dir := profileDir(t)
	options := append([]chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.UserDataDir(dir), chromedp.Env("TMPDIR=" + dir), chromedp.WSURLReadTimeout(60 * time.Second),
	}, flags("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking",
		"disable-component-update", "disable-sync", "disable-default-apps", "disable-extensions", "disable-dev-shm-usage",
		"no-default-browser-check", "hide-scrollbars")...)
	// Every name and address but the file itself is out of reach.
	options = append(options, chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND"), chromedp.Flag("proxy-server", "127.0.0.1:9"))
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(stop)
	ctx, end := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(end)
	ctx, leave := chromedp.NewContext(ctx)
	t.Cleanup(leave)
	t.Cleanup(func() { _ = chromedp.Cancel(ctx) }) // waits until the browser has ended
	b := &browser{t: t, ctx: ctx}
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("page: %s", e.ExceptionDetails.Error())
		case *network.EventRequestWillBeSent:
			if e.Request.URL != "file://"+file {
				t.Errorf("page: asks for %s", e.Request.URL)
			}
		case *runtime.EventConsoleAPICalled:
			t.Errorf("page: console %s: %s", e.Type, e.Args[0].Value)
		}
	})
	b.do(network.Enable(), emulation.SetDeviceMetricsOverride(width, height, 1, false), chromedp.Navigate("file://"+file))
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

func flags(names ...string) []chromedp.ExecAllocatorOption {
	var list []chromedp.ExecAllocatorOption
	for _, n := range names {
		list = append(list, chromedp.Flag(n, true))
	}
	return list
}

func (b *browser) do(actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// pageState is what the page says of itself: slowrayFlame.state() in page/hands.js.
type pageState struct {
	Zoomed  string  `json:"zoomed"`
	Value   string  `json:"value"`
	Total   float64 `json:"total"`
	Frames  int     `json:"frames"` // that are drawn
	Nodes   int     `json:"nodes"`
	Deep    int     `json:"deep"`
	Matched float64 `json:"matched"` // -1 when nothing is searched for
	Flame   bool    `json:"flame"`
}

func (b *browser) state() pageState {
	b.t.Helper()
	var s pageState
	b.do(chromedp.Evaluate(`slowrayFlame.state()`, &s))
	return s
}

// place is where a frame is in the window, in pixels.
type place struct{ X, Y, Width, Height float64 }

func (b *browser) find(name string) place {
	b.t.Helper()
	var p *place
	b.do(chromedp.Evaluate(fmt.Sprintf(`slowrayFlame.find(%s)`, quote(name)), &p))
	if p == nil {
		b.t.Fatalf("no frame %q is drawn", name)
	}
	return *p
}

func quote(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func (b *browser) click(name string) {
	b.t.Helper()
	p := b.find(name)
	b.do(chromedp.MouseClickXY(p.X+p.Width/2, p.Y+p.Height/2))
}

// rgb is the colour of the canvas at the right end of a frame, where no name is.
func (b *browser) rgb(name string) [3]float64 {
	b.t.Helper()
	p := b.find(name)
	var c [3]float64
	b.do(chromedp.Evaluate(fmt.Sprintf(`(() => {
		const canvas = document.getElementById("canvas"), area = canvas.getBoundingClientRect();
		return [...canvas.getContext("2d").getImageData(%g - area.left, %g - area.top, 1, 1).data].slice(0, 3);
	})()`, p.X+p.Width-3, p.Y+2), &c))
	return c
}

func (b *browser) at(name string) string { return fmt.Sprint(b.rgb(name)) }

// paper is what the canvas has where nothing is drawn.
func (b *browser) paper() string { return fmt.Sprint([3]float64{}) }

// look saves what is to be seen, when SLOWRAY_PICTURES names a directory.
func (b *browser) look(name string) {
	b.t.Helper()
	dir := os.Getenv("SLOWRAY_PICTURES")
	if dir == "" {
		return
	}
	var png []byte
	b.do(chromedp.CaptureScreenshot(&png))
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}
