package clickhouse

import (
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
