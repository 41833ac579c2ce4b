package page_test

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/memory"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
	"github.com/slowray/slowray/internal/web"
)

// fleetBegan is when the fleet's time begins, s since 1970; it lasts fleetSeconds, and
// the database is slow in the last of them, since fleetSlow.
const (
	fleetBegan   = int64(1_800_007_200)
	fleetSlow    = 900
	fleetSeconds = 1200
)

// aFleet is shipped to memory.
func aFleet(t *testing.T, evil string) http.Handler {
	t.Helper()
	a := new(memory.Archive)
	shipFleet(t, a, evil, fleetBegan)
	return fleetPage(t, a, fleetBegan)
}

func fleetPage(t *testing.T, a fleet.Archive, began int64) http.Handler {
	t.Helper()
	h, err := web.NewFleet(a, web.Options{Version: "test", Loopback: true, Now: func() time.Time { return time.Unix(began+fleetSeconds+3, 0) }})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// shipFleet ships a balancer before web hosts, which call a database, caches of their own
// and somebody of whom nothing is known.
func shipFleet(t *testing.T, a fleet.Target, evil string, began int64) {
	t.Helper()
	hosts, seconds := map[string]*fleet.Host{}, map[string][]store.Second{}
	second := func(host string, side observe.Side, comm, addr string, port int, s int64, n int, took time.Duration) {
		x := &store.Second{At: began + s, Process: observe.Identity{Comm: comm, Cgroup: "/system.slice/" + comm + ".service"}}
		e := &x.Endpoint
		e.Side, e.Addr, e.Port, e.Comm, e.Requests = side.String(), addr, port, comm, uint64(n)
		if comm == "app" && s%40 == 0 {
			e.Errors = 1
		}
		sum := int64(0)
		for i := range n {
			d := int64(took) * (80 + (s*7+int64(i)*13)%40) / 100
			e.Total.Add(d)
			sum += d
		}
		e.Parts = map[string]observe.PartStats{observe.Server.String(): {SumNS: sum}}
		e.Segments = uint64(2 * n)
		seconds[host] = append(seconds[host], *x)
	}
	hello := func(name, addr, rack string) {
		h := &fleet.Host{Name: name, ID: name, Addresses: []string{addr}, Labels: map[string]string{"rack": rack, "zone": "eu-1"}, Kernel: "6.12.1", CPUs: 8, Version: "1"}
		if err := a.Hello(context.Background(), h, time.Unix(began+fleetSeconds-20, 0)); err != nil {
			t.Fatal(err)
		}
		hosts[name] = h
	}
	const webs = 6
	hello("lb-1", "10.0.0.2", "r1")
	hello("db-7", "10.0.0.7", "r2")
	hello(evil, "10.0.0.9", evil)
	for i := range webs {
		hello(fmt.Sprintf("web-%d", i+1), fmt.Sprintf("10.0.1.%d", i+1), fmt.Sprintf("r%d", i%3+1))
	}
	for s := range int64(fleetSeconds) {
		db := 2 * time.Millisecond
		if s >= fleetSlow {
			db = 47 * time.Millisecond
		}
		second("db-7", observe.Served, "mariadbd", "10.0.0.7", 3306, s, 8*webs, db)
		second(evil, observe.Served, evil, "10.0.0.9", 25, s, 2, time.Millisecond)
		second("lb-1", observe.Served, "nginx", "10.0.0.2", 443, s, 6*webs, 6*time.Millisecond+db)
		for i := range webs {
			name, addr := fmt.Sprintf("web-%d", i+1), fmt.Sprintf("10.0.1.%d", i+1)
			second("lb-1", observe.Called, "nginx", addr, 8080, s, 6, 5*time.Millisecond+db)
			second(name, observe.Served, "app", addr, 8080, s, 6, 4*time.Millisecond+db)
			second(name, observe.Called, "app", "10.0.0.7", 3306, s, 8, db+200*time.Microsecond)
			second(name, observe.Called, "app", "127.0.0.1", 6379, s, 5, 200*time.Microsecond)
			second(name, observe.Served, "redis-server", "127.0.0.1", 6379, s, 5, 150*time.Microsecond)
			second(name, observe.Called, "app", "203.0.113.20", 443, s, 1, 30*time.Millisecond)
			second(name, observe.Called, "app", "10.0.0.9", 25, s, 1, 2*time.Millisecond)
		}
	}
	f := &store.Finding{Start: time.Unix(began+fleetSlow+60, 0), End: time.Unix(began+fleetSlow+120, 0)}
	f.Finding = cause.Finding{Cause: "fsync-bound", Title: "Requests wait for fsync", Verdict: cause.Supported, Role: cause.RoleCause,
		Subject: cause.Subject{Kind: "disk", Comm: "mariadbd", PID: 812, Path: "/dev/vdb"}, Impact: cause.Impact{Share: 0.95, Of: "slow time", Text: "95 % of the slow time"},
		Evidence: []cause.Evidence{{Fact: "time in fsync", Value: 44.8, Unit: "ms", Source: "fsync"}}, Fix: cause.Fix{Text: "a faster disk"}}
	for name, list := range seconds {
		position := fleet.Position(1)
		for part := range slices.Chunk(list, 5000) {
			b := batchOf(hosts[name], fleet.Seconds, position, part, part[0].At)
			b.Seconds = each(position, part)
			if err := a.Send(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			position = b.Last + 1
		}
	}
	b := batchOf(hosts["db-7"], fleet.Findings, 1, []store.Finding{*f}, began)
	b.Findings = each(1, []store.Finding{*f})
	if err := a.Send(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

// batchOf is a batch of records, without them.
func batchOf[T any](h *fleet.Host, s fleet.Stream, first fleet.Position, list []T, at int64) *fleet.Batch {
	return &fleet.Batch{Host: h, Stream: s, First: first, Last: first + fleet.Position(len(list)) - 1, Count: len(list), Day: int(at / 86400)}
}

// each are records, with positions from first on.
func each[T any](first fleet.Position, list []T) iter.Seq2[fleet.Position, *T] {
	return func(yield func(fleet.Position, *T) bool) {
		for i := range list {
			if !yield(first+fleet.Position(i), &list[i]) {
				return
			}
		}
	}
}

func TestFleetPage(t *testing.T) {
	evil := `<img src=x onerror="pwned=1">` + "\u202e\x1b[31m$(id)"
	b := openAt(t, 1360, 1240, aFleet(t, evil), "/#/?theme=light")
	b.settle("fleet")
	b.says("#why", "mariadbd:3306 on db-7", "fsync-bound", "Path", "by chance")
	b.says("#services", "mariadbd:3306", "redis-server:6379", "▲ 6 of 6")
	b.says("#hosts", "rack=r2", "db-7", "<img src=x")
	b.says("#map", "nginx", "203.0.113.20:443", "address, not recorded", "abnormal on 1 of 1")
	for expression, want := range map[string]int{
		`document.querySelectorAll("img, main script").length`:       0,
		`document.querySelectorAll(".wait-node").length`:             6,
		`document.querySelectorAll(".wait-node.abnormal").length`:    3,
		`document.querySelectorAll(".wait-edge.bad").length`:         2,
		`document.querySelectorAll("#services tbody tr").length`:     5,
		`document.querySelectorAll("#hosts tbody tr").length`:        9,
		`+/[\u202e\u001b]/.test(document.documentElement.outerHTML)`: 0,
		`+("pwned" in window)`:                                       0,
	} {
		if n := b.number(expression); n != want {
			t.Errorf("%s is %v, want %v", expression, n, want)
		}
	}
	// By keyboard: a program of the map, from the table, and none.
	b.do(chromedp.Focus(`.wait-node[data-key="s:mariadbd"]`), chromedp.KeyEvent(kb.Enter))
	b.until(`location.hash.includes("service=s%3Amariadbd") && document.activeElement.dataset.key === "s:mariadbd"`)
	b.says("#map .about", "Cause 1:", "Called by", "app", "abnormal on 6 hosts")
	b.do(chromedp.KeyEvent(kb.Escape))
	b.until(`!location.hash.includes("service")`)
	b.do(chromedp.KeyEvent("3"))
	b.until(`document.activeElement.closest("#services")`)
	b.do(chromedp.KeyEvent("/"))
	b.until(`document.activeElement.matches("[data-search]")`)
	b.do(chromedp.Evaluate(`document.activeElement.value = ""`, nil), chromedp.KeyEvent("rack=r2")) // chromedp types what the page has taken
	b.until(`document.querySelectorAll("#hosts tbody tr").length === 3 && document.querySelectorAll("#services tbody tr").length === 0`)
	// The address of a host's own page is text; a name that a shell would obey is not in it.
	if n := b.number(`[...document.querySelectorAll("#hosts pre")].filter((e) => e.textContent.includes("ssh -L 7788:127.0.0.1:7788 db-7\nhttp://localhost:7788/#/?from=")).length`); n != 1 {
		t.Errorf("%v hosts tell the address of db-7", n)
	}
	b.do(chromedp.Evaluate(`const f = document.querySelector("[data-search]"); f.value = "$("; f.dispatchEvent(new Event("input")); f.blur()`, nil))
	b.until(`document.querySelector("#hosts pre").textContent.startsWith("ssh -L 7788:127.0.0.1:7788 10.0.0.9\n")`)
	b.do(chromedp.Evaluate(`f.value = ""; f.dispatchEvent(new Event("input")); document.querySelector("#hosts details").open = true; scrollTo(0, 1e6)`, nil))
	b.look("fleet-tables")
	// Dark, on a phone, at a time when all was well, by the address.
	b.do(emulation.SetDeviceMetricsOverride(390, 844, 1, true))
	b.do(chromedp.Evaluate(fmt.Sprintf(`delete document.documentElement.dataset.ready; location.hash = "#/?theme=dark&from=%d&to=%d"`, fleetBegan+600, fleetBegan+880), nil))
	b.settle("fleet")
	b.says("#why", "Nothing is abnormal")
	b.fits("fleet")
	b.look("fleet-phone")
	if n := b.number(`document.querySelectorAll(".wait-node.abnormal, #services tr.abnormal").length`); n != 0 {
		t.Errorf("%v are marked when all was well", n)
	}
	// A range that cannot be is reported.
	b.do(chromedp.Evaluate(`location.hash = "#/?from=1&to=2"`, nil))
	b.until(`!document.getElementById("notice").hidden`)
	b.says("#notice", "at least 60 seconds")
}

// TestPictureOfFleetDocs makes the picture of docs/fleet.md, see script/screenshots.sh.
func TestPictureOfFleetDocs(t *testing.T) {
	if os.Getenv("SLOWRAY_PICTURES") == "" {
		t.Skip("makes a picture where SLOWRAY_PICTURES says")
	}
	b := openAt(t, 1360, 1240, aFleet(t, "mail-1"), "/#/?theme=light")
	b.settle("fleet")
	b.picture("fleet-page.png")
}

// TestFleetInChinese: each sentence of the fleet's page is the catalogue's.
func TestFleetInChinese(t *testing.T) {
	b := openAt(t, 1400, 900, aFleet(t, ""), "/?lang=zh")
	b.settle("fleet")
	for _, heading := range []string{"哪里有问题", "谁调用谁", "服务", "主机"} {
		if !eval[bool](b, `[...document.querySelectorAll("h2")].some((h) => h.textContent === "`+heading+`")`) {
			t.Errorf("no heading %s", heading)
		}
	}
	for _, wide := range []int64{400, 1000, 1400} {
		b.do(emulation.SetDeviceMetricsOverride(wide, 900, 1, wide < 600))
		for _, theme := range []string{"light", "dark"} {
			b.do(chromedp.Evaluate(`location.hash = "#/?theme=`+theme+`"`, nil)) // nothing is asked for anew
			b.until(`document.documentElement.dataset.theme === "` + theme + `"`)
			if faults := eval[string](b, faultsScript); faults != "" {
				t.Errorf("%d px, %s:\n%s", wide, theme, faults)
			}
			b.look(fmt.Sprintf("fleet-zh-%d-%s", wide, theme))
		}
	}
}
