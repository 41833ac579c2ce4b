package flame

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
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
	options := append([]chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(60 * time.Second),
	}, flags("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking",
		"disable-component-update", "disable-sync", "disable-default-apps", "disable-extensions", "disable-dev-shm-usage",
		"no-default-browser-check", "hide-scrollbars")...)
	// Every name and address but the file itself is out of reach.
	options = append(options, chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND"), chromedp.Flag("proxy-server", "127.0.0.1:9"))
	ctx, stop := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(stop)
	ctx, end := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(end)
	ctx, leave := chromedp.NewContext(ctx)
	t.Cleanup(leave)
	b := &browser{t: t, ctx: ctx}
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("page: %s", e.ExceptionDetails.Error())
		case *runtime.EventConsoleAPICalled:
			t.Errorf("page: console %s: %s", e.Type, e.Args[0].Value)
		}
	})
	b.do(emulation.SetDeviceMetricsOverride(width, height, 1, false), chromedp.Navigate("file://"+file))
	return b
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
