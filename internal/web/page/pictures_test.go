package page_test

import (
	"fmt"
	"net/http/httputil"
	"net/url"
	"os"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// TestPicturesOfDocs makes the pictures of docs/page.md:
//
//	SLOWRAY_PICTURES=$PWD/docs go test ./internal/web/page -run TestPicturesOfDocs
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
	b.goTo("#/?view=findings&last=3600", "findings")
	b.look("findings")
	b.goTo("#/?view=waits&last=3600&theme=dark", "waits")
	b.look("waits")
	b.goTo(fmt.Sprintf("#/?view=flame&theme=light&sel=%d,%d", lossFrom, lossTo), "flame")
	b.look("flame")
	b.do(emulation.SetDeviceMetricsOverride(390, 780, 1.5, true))
	b.goTo("#/?theme=dark&ep="+"served%7C4026531840%7C192.0.2.10%7C443%7Cnginx", "timeline")
	b.do(chromedp.Evaluate(`scrollTo(0, document.querySelector(".title").offsetTop - 60)`, nil))
	b.look("phone")
}

// TestPictureOfRecording makes the picture of a real recording, of which slowray page
// serves the page at SLOWRAY_PAGE (script/pictures.sh).
func TestPictureOfRecording(t *testing.T) {
	page, err := url.Parse(os.Getenv("SLOWRAY_PAGE"))
	if err != nil || page.Host == "" || os.Getenv("SLOWRAY_PICTURES") == "" {
		t.Skip("makes a picture of SLOWRAY_PAGE where SLOWRAY_PICTURES says")
	}
	b := open(t, 1360, 1230, &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(page) }})
	var key string
	b.do(chromedp.Evaluate(`fetch("/api/endpoints").then(r => r.json()).then(r => r.endpoints.find(e => e.side === "served" && e.process.comm === "booking-app").key)`, &key,
		func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	b.goTo("#/?theme=light&ep="+url.QueryEscape(key), "timeline")
	b.picture("page-six-phases.png")
}
