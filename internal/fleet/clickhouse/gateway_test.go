package clickhouse

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/fleet/clickhouse/clickhousetest"
	"github.com/slowray/slowray/internal/fleet/gateway"
)

// frontOf serves a gateway to the servers of a URL, and gives the URL with it. end
// cuts off all hosts at once, as when the gateway is killed; what it has sent to the
// servers by then is theirs.
func frontOf(tb testing.TB, url, address string, wait time.Duration) (front string, g *gateway.Gateway, end func()) {
	tb.Helper()
	cfg := mustParse(tb, url)
	var servers []string
	for _, replicas := range cfg.Shards {
		servers = append(servers, replicas...)
	}
	g = gateway.New(gateway.Options{Servers: servers, Wait: wait})
	l, err := net.Listen("tcp", address)
	if err != nil {
		tb.Fatal(err)
	}
	srv := &http.Server{Handler: g}
	go srv.Serve(l)
	tb.Cleanup(func() { srv.Close() })
	return url + "&gateway=" + l.Addr().String(), g, func() { srv.Close() }
}

func TestHostsOfAGatewayAreStoredOnceInFewInserts(t *testing.T) {
	const hosts, requests, seconds = 6, 600, 40
	c := clickhousetest.ForTest(t, clickhousetest.Layout{Shards: 2})
	url := c.URL("slowray")
	initAll(t, url, nil)
	front, g, _ := frontOf(t, url, "127.0.0.1:0", 20*time.Millisecond)
	if lost, _ := shipHosts(t, front, hosts, requests, seconds); lost > 0 {
		t.Errorf("%d sends failed", lost)
	}
	counted(t, url, hosts, requests, seconds)
	s := g.Stats()
	if s.Inserts >= s.Batches || s.Batches == 0 || s.Failed+s.Alone > 0 {
		t.Errorf("%+v", s)
	}
	t.Logf("%+v", s)
}

func TestNothingIsLostOrTwiceWhenAGatewayIsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: servers are killed: not with -short")
	}
	const hosts, requests, seconds = 4, 2400, 100
	c := clickhousetest.ForTest(t, clickhousetest.Layout{Shards: 2})
	url := c.URL("slowray")
	initAll(t, url, nil)
	front, _, end := frontOf(t, url, "127.0.0.1:0", 30*time.Millisecond)
	address := front[strings.LastIndexByte(front, '=')+1:]
	done := make(chan struct{})
	var lost, had int
	go func() {
		defer close(done)
		lost, had = shipHosts(t, front, hosts, requests, seconds)
	}()
	gateways, shards := 0, 0
	for running := true; running; {
		select {
		case <-done:
			running = false
		case <-time.After(200 * time.Millisecond):
			switch {
			case gateways < 4:
				gateways++
				end()
				_, _, end = frontOf(t, url, address, 30*time.Millisecond)
			case shards < 1:
				victim := c.Servers[shards%2][0]
				victim.Kill()
				shards++
				if err := victim.Restart(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	counted(t, url, hosts, requests, seconds)
	t.Logf("%d gateways and %d shards killed, %d sends unclear, of which %d had arrived", gateways, shards, lost, had)
}

func TestHostsGoToTheNextGatewayWhenOneIsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: gateways are killed: not with -short")
	}
	const hosts, requests, seconds = 4, 2400, 100
	was := goneTime
	goneTime = 400 * time.Millisecond // no batch waits longer here
	t.Cleanup(func() { goneTime = was })
	c := clickhousetest.ForTest(t, clickhousetest.Layout{Shards: 2})
	url := c.URL("slowray")
	initAll(t, url, nil)
	var gateways []*gateway.Gateway
	front := func(address string) (string, func()) {
		with, g, end := frontOf(t, url, address, 30*time.Millisecond)
		gateways = append(gateways, g)
		return with[strings.LastIndexByte(with, '=')+1:], end
	}
	first, endFirst := front("127.0.0.1:0")
	second, endSecond := front("127.0.0.1:0")
	done := make(chan struct{})
	var lost, had int
	go func() {
		defer close(done)
		lost, had = shipHosts(t, url+"&gateway="+first+","+second, hosts, requests, seconds)
	}()
	wait := func() {
		select {
		case <-done:
		case <-time.After(300 * time.Millisecond):
		}
	}
	// Each is away for a while, and never both.
	for range 2 {
		wait()
		endFirst()
		wait()
		_, endFirst = front(first)
		wait()
		endSecond()
		wait()
		_, endSecond = front(second)
	}
	<-done
	counted(t, url, hosts, requests, seconds)
	used := 0
	for _, g := range gateways {
		if g.Stats().Batches > 0 {
			used++
		}
	}
	if used < 2 {
		t.Errorf("%d gateways were used", used)
	}
	t.Logf("%d gateways used, %d sends unclear, of which %d had arrived", used, lost, had)
}

// A gateway that holds a batch and does not answer any more may still send it: the host
// waits until it cannot.
func TestAGatewayThatIsSilentIsWaitedFor(t *testing.T) {
	was := goneTime
	goneTime = 300 * time.Millisecond
	t.Cleanup(func() { goneTime = was })
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	refused, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused.Close()
	for _, l := range []net.Listener{silent, refused} {
		cfg := mustParse(t, "clickhouse://127.0.0.1:1/db?gateway="+l.Addr().String()+",127.0.0.1:2")
		at := time.Now()
		u := unsettled{l.Addr().String(): at}
		if err := u.settle(t.Context(), newClient(cfg), "127.0.0.1:1", "x"); err != nil || len(u) > 0 || time.Since(at) < goneTime {
			t.Errorf("%v, %v after %s", err, u, time.Since(at))
		}
		// Of a single one the answer is waited for.
		cfg.Gateways = cfg.Gateways[:1]
		u = unsettled{l.Addr().String(): at}
		ctx, cancel := context.WithTimeout(t.Context(), 2*goneTime)
		if err := u.settle(ctx, newClient(cfg), "127.0.0.1:1", "x"); err == nil || len(u) != 1 {
			t.Errorf("%v, %v", err, u)
		}
		cancel()
	}
}
