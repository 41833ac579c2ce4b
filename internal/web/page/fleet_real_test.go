package page_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/clickhouse"
	"github.com/slowray/slowray/internal/fleet/clickhouse/clickhousetest"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// TestFleetPageOfClickHouse: what two shards of a real server answer is shown, and leads to
// a host's own page of the same time.
func TestFleetPageOfClickHouse(t *testing.T) {
	chromium(t)
	url := clickhousetest.ForTest(t, clickhousetest.Layout{Shards: 2}).URL("slowray")
	cfg, err := clickhouse.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	if err := clickhouse.Init(t.Context(), cfg, nil, func(string) {}); err != nil {
		t.Fatal(err)
	}
	db := clickhouse.New(cfg)
	defer db.Close()
	began := time.Now().Unix() - fleetSeconds - 60
	evil := `<img src=x onerror="pwned=1">` + "\u202e\x1b[31m$(id)'\\"
	shipFleet(t, db, evil, began)
	b := openAt(t, 1360, 1240, fleetPage(t, db, began), "/#/?theme=light")
	b.settle("fleet")
	b.says("#why", "mariadbd:3306 on db-7", "fsync-bound", "Path")
	b.says("#map", "nginx", "203.0.113.20:443", "abnormal on 1 of 1")
	b.says("#services", "mariadbd:3306", "▲ 6 of 6")
	b.says("#hosts", "rack=r2", "db-7", "<img src=x")
	if n := b.number(`document.querySelectorAll("img, main script").length + ("pwned" in window)`); n != 0 {
		t.Errorf("%v things that a host's name made", n)
	}
	// The edges' own figures.
	b.do(chromedp.Evaluate(`document.querySelector('.wait-node[data-key="s:mariadbd"]').dispatchEvent(new MouseEvent("click"))`, nil))
	b.until(`location.hash.includes("service=s%3Amariadbd")`)
	b.says("#map .about", "Called by", "app", "p50 ", "p99 ", "on web-", "0.15 errors/s")
	// A host, and from there its own page.
	own := eval[string](b, `[...document.querySelectorAll("#hosts pre")].find((e) => e.textContent.includes(" db-7\n")).textContent.split("/#/")[1]`)
	if !strings.HasPrefix(own, fmt.Sprintf("?from=%d&to=", began+fleetSeconds-900-(began+fleetSeconds)%5)) {
		t.Errorf("the address of db-7's own page: %q", own)
	}
	handler, _ := stored(t)
	host := openAt(t, 1360, 1240, handler, "/#/"+own)
	host.settle("timeline")
	if from := eval[string](host, `location.hash`); !strings.Contains(from, strings.Split(own, "&")[0][1:]) {
		t.Errorf("the host's page is at %s, asked for %s", from, own)
	}
}

// bigFleet is an archive of many hosts with 20 endpoints each, that makes up what it is
// asked for: half of them are served, half called.
type bigFleet struct {
	fleet.Archive
	hosts int
	began int64 // s since 1970
	last  int64
}

const bigServices = 40 // different ones

func (a *bigFleet) Hosts(context.Context) ([]fleet.HostSeen, error) {
	all := make([]fleet.HostSeen, a.hosts)
	for i := range all {
		all[i] = fleet.HostSeen{Last: time.Unix(a.last, 0), Host: fleet.Host{Name: a.host(i), Addresses: []string{a.addr(i)}, Kernel: "6.12.1", CPUs: 8, Labels: map[string]string{"rack": fmt.Sprintf("r%d", i/40)}}}
		if a.silent(i) {
			all[i].Last = time.Unix(a.last-3600, 0)
		}
	}
	return all, nil
}

func (a *bigFleet) silent(i int) bool { return i%333 == 7 }
func (a *bigFleet) host(i int) string { return fmt.Sprintf("machine-%04d.fra.example", i) }
func (a *bigFleet) addr(i int) string { return fmt.Sprintf("10.1.%d.%d", i/250, i%250+1) }

// each gives the endpoints.
func (a *bigFleet) each(f func(k fleet.Key) bool) {
	for i := range a.hosts {
		if a.silent(i) {
			continue
		}
		for n := range 10 {
			service := (i*7 + n*11) % bigServices
			to := (i*13 + n) % a.hosts
			called := (to*7 + n*11) % bigServices
			if !f(fleet.Key{Host: a.host(i), Service: fmt.Sprintf("service-of-many-%02d:%d", service, 8000+service), Side: observe.Served, Addr: a.addr(i), Port: 8000 + service}) ||
				!f(fleet.Key{Host: a.host(i), Service: fmt.Sprintf("service-of-many-%02d", service), Side: observe.Called, Addr: a.addr(to), Port: 8000 + called}) {
				return
			}
		}
	}
}

func (a *bigFleet) Points(ctx context.Context, q fleet.Question, step time.Duration, f func(*fleet.Point) bool) error {
	n := int64(step / time.Second)
	for at := max(a.began, q.From.Unix()) / n * n; at < min(a.last, q.To.Unix()); at += n {
		more := true
		a.each(func(k fleet.Key) bool {
			if q.Host == "" || q.Host == k.Host {
				more = f(&fleet.Point{Key: k, At: at, Seconds: int(n), Requests: uint64(20 * n), TotalUS: 40_000 * n, P50US: 2000, P99US: 4000, Segments: uint64(40 * n)})
			}
			return more
		})
		if !more {
			break
		}
	}
	return ctx.Err()
}

func (a *bigFleet) Totals(ctx context.Context, q fleet.Question, f func(*fleet.Total) bool) error {
	seconds := uint64(min(a.last, q.To.Unix()) - max(a.began, q.From.Unix()))
	a.each(func(k fleet.Key) bool {
		t := &fleet.Total{Key: k, Requests: 20 * seconds, TotalUS: int64(40_000 * seconds), Segments: 40 * seconds}
		t.Times.AddN(2e6, 19*seconds)
		t.Times.AddN(4e6, seconds)
		return f(t)
	})
	return ctx.Err()
}

func (a *bigFleet) Places(context.Context, fleet.Question) (map[fleet.Key]fleet.Place, error) {
	return nil, nil
}
func (a *bigFleet) Findings(context.Context, fleet.Question) ([]fleet.HostFinding, error) {
	return nil, nil
}
func (a *bigFleet) Requests(context.Context, fleet.Question, func(string, *store.Request) bool) error {
	return nil
}

// TestFleetPageOfManyHosts: 1,000 hosts with 20 endpoints each can be read, on a desk and on
// a phone.
func TestFleetPageOfManyHosts(t *testing.T) {
	last := fleetBegan + fleetSeconds
	a := &bigFleet{hosts: 1000, began: last - 60, last: last}
	b := openAt(t, 1360, 1240, fleetPage(t, a, fleetBegan), "/#/?theme=light&last=60")
	b.settle("fleet")
	b.says("#host", "1,000 hosts", "19,940 endpoints")
	b.says("#services", "service-of-many-00:8000")
	for expression, most := range map[string]int{
		`document.querySelectorAll("#map .wait-node").length`:       60,
		`document.querySelectorAll("#services tbody tr").length`:    200,
		`document.querySelectorAll("#hosts tbody tr").length`:       200,
		`document.querySelectorAll("*").length`:                     30_000,
		`document.querySelectorAll("#why li, #why details").length`: 100,
	} {
		if n := b.number(expression); n < 1 || n > most {
			t.Errorf("%s is %v, at most %v can be read", expression, n, most)
		}
	}
	b.says("#hosts", "800 rows more", "silent since")
	b.look("fleet-many")
	// Boxes do not lie on each other.
	if n := b.number(`(() => { const r = [...document.querySelectorAll(".wait-node rect")].map((e) => e.getBoundingClientRect()); return r.filter((a, i) => r.some((b, k) => k < i && a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1)).length; })()`); n != 0 {
		t.Errorf("%v boxes of the map lie on others", n)
	}
	b.do(emulation.SetDeviceMetricsOverride(390, 844, 1, true))
	b.do(chromedp.Evaluate(`delete document.documentElement.dataset.ready; location.hash = "#/?theme=dark&last=60&service=s%3Aservice-of-many-03"`, nil))
	b.settle("fleet")
	b.says("#map .about", "service-of-many-03", "Called by")
	b.fits("fleet of many hosts")
	b.look("fleet-many-phone")
}
