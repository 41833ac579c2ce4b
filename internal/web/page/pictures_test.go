package page_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
	"github.com/slowray/slowray/internal/web"
)

// TestPicturesOfDocs makes the pictures of docs/page.md, see script/screenshots.sh.
func TestPicturesOfDocs(t *testing.T) {
	if os.Getenv("SLOWRAY_PICTURES") == "" {
		t.Skip("makes pictures where SLOWRAY_PICTURES says")
	}
	b := open(t, 1360, 850, &mock{})
	b.goTo("#/?last=3600&ep="+"served%7C4026531840%7C192.0.2.10%7C443%7Cnginx", "timeline")
	b.look("timeline")
	b.goTo(fmt.Sprintf("#/?theme=dark&sel=%d,%d&ep=%s", lossFrom, lossTo, "called%7C4026531840%7C198.51.100.7%7C3306%7Cphp-fpm8.2"), "timeline")
	b.until(`document.querySelector(".difference .differs")`)
	b.look("difference")
	b.goTo("#/?theme=light", "timeline")
	b.do(chromedp.Click(".slow tbody tr:first-child a"))
	b.settle("request")
	b.look("request")
	b.goTo("#/?view=requests&last=3600", "requests")
	b.look("requests")
	b.goTo("#/?view=findings&last=3600", "findings")
	b.look("findings")
	b.goTo("#/?view=waits&last=3600&theme=dark", "waits")
	b.look("waits")
	b.goTo(fmt.Sprintf("#/?view=flame&theme=light&sel=%d,%d", lossFrom, lossTo), "flame")
	b.look("flame")
	b.do(emulation.SetDeviceMetricsOverride(390, 780, 1.5, true))
	b.goTo("#/?theme=dark&ep="+"served%7C4026531840%7C192.0.2.10%7C443%7Cnginx", "timeline")
	b.look("phone")
	b.do(emulation.SetDeviceMetricsOverride(1360, 850, 1, false), chromedp.Navigate(b.url+"/?lang=zh#/?theme=light&last=3600&ep="+"served%7C4026531840%7C192.0.2.10%7C443%7Cnginx"))
	b.settle("timeline")
	b.picture("page-timeline.zh-CN.png")
}

// TestPictureOfRecording makes the picture of a history that was recorded of
// tcprt-six-phases: SLOWRAY_HISTORY is its directory.
func TestPictureOfRecording(t *testing.T) {
	dir := os.Getenv("SLOWRAY_HISTORY")
	if dir == "" || os.Getenv("SLOWRAY_PICTURES") == "" {
		t.Skip("makes a picture of SLOWRAY_HISTORY where SLOWRAY_PICTURES says")
	}
	r, err := store.OpenReader(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	// The application is who answers and asks others; the time is that of its requests.
	sums, err := r.Endpoints(store.Query{})
	if err != nil {
		t.Fatal(err)
	}
	asks := map[string]bool{}
	for i := range sums {
		asks[sums[i].Endpoint.Comm] = asks[sums[i].Endpoint.Comm] || sums[i].Endpoint.Side == "called"
	}
	var shown *store.EndpointSum
	for i := range sums {
		if e := &sums[i].Endpoint; e.Side == "served" && asks[e.Comm] && (shown == nil || e.Requests > shown.Endpoint.Requests) {
			shown = &sums[i]
		}
	}
	if shown == nil {
		t.Fatalf("no application asks others in %s", dir)
	}
	e := &shown.Endpoint
	var first, last int64 // sums may be of minutes, seconds are exact
	if err := r.Points(store.Query{Side: observe.Served, Comm: e.Comm, Port: e.Port}, time.Second, func(s *store.Second) bool {
		if first == 0 {
			first = s.At
		}
		last = s.At
		return true
	}); err != nil {
		t.Fatal(err)
	}
	from, to := time.Unix(first-3, 0), time.Unix(last+5, 0)
	windows, err := r.Observations(from, to)
	if err != nil || len(windows) == 0 {
		t.Fatalf("%d windows, %v", len(windows), err)
	}
	o, err := observe.Load(windows[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	handler, err := web.New(r, web.Options{Version: "slowray", Host: diagnose.ReportHost{Name: "vm", Kernel: o.Host.Kernel, CPUs: o.Host.CPUs}, Loopback: true, Now: func() time.Time { return to }})
	if err != nil {
		t.Fatal(err)
	}
	b := openAt(t, 1360, 1230, handler, fmt.Sprintf("/#/?theme=light&from=%d&to=%d&ep=%s", from.Unix(), to.Unix(), fmt.Sprintf("served%%7C%d%%7C%s%%7C%d%%7C%s", e.NetNS, e.Addr, e.Port, e.Comm)))
	b.settle("timeline")
	b.until(`document.querySelector(".chart path.line")`)
	b.look("six-phases")
}
