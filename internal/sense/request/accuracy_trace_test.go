package request_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
)

// hopKey is a request by its connection and its number there.
type hopKey struct {
	client netip.AddrPort
	server uint16
	seq    uint32
}

// tracedChain is three services that each call the next one and pass traceparent on with a
// span of their own, and the traceparent of each request.
type tracedChain struct {
	mu    sync.Mutex
	truth map[hopKey]string // traceparent; "" none
	long  int               // requests whose traceparent comes late
	ports []int
	first string // URL
}

func startChain(t *testing.T, client *http.Client) *tracedChain {
	chain := &tracedChain{truth: map[hopKey]string{}}
	next := ""
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port, url := l.Addr().(*net.TCPAddr).Port, next
		type seqKey struct{}
		server := &http.Server{
			ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
				return context.WithValue(ctx, seqKey{}, new(atomic.Uint32))
			},
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				seq := r.Context().Value(seqKey{}).(*atomic.Uint32).Add(1)
				parent := r.Header.Get("traceparent")
				chain.mu.Lock()
				chain.truth[hopKey{netip.MustParseAddrPort(r.RemoteAddr), uint16(port), seq}] = parent
				if parent != "" && r.Header.Get("A-Cookie") != "" {
					chain.long++
				}
				chain.mu.Unlock()
				if url == "" {
					time.Sleep(time.Duration(seq%3) * time.Millisecond)
				} else if err := ask(client, url+r.URL.Path, childOf(parent), r.Header.Get("A-Cookie")); err != nil {
					http.Error(w, err.Error(), http.StatusBadGateway)
				}
			}),
		}
		go server.Serve(l)
		t.Cleanup(func() { server.Close() })
		chain.ports, next = append(chain.ports, port), "http://"+l.Addr().String()
	}
	chain.first = next
	return chain
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// childOf is the traceparent that a service sends on: the same trace, a new span.
func childOf(parent string) string {
	if parent == "" {
		return ""
	}
	return parent[:36] + randomHex(8) + parent[52:]
}

func ask(client *http.Client, url, parent, cookie string) error {
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if parent != "" {
		r.Header.Set("traceparent", parent)
	}
	if cookie != "" {
		r.Header.Set("A-Cookie", cookie) // sorts before traceparent
	}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

// TestTracesOfServices: requests of three services, many at once, carry the trace that
// the services themselves saw, at both ends of each connection.
func TestTracesOfServices(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIP: needs root")
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Second}}
	chain := startChain(t, client)
	stream, err := request.StartStream(request.Options{Ports: chain.ports, Labels: true, Budget: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	got := map[observe.Side]map[hopKey]observe.Trace{observe.Served: {}, observe.Called: {}}
	sub := stream.Subscribe(func(r *observe.Request) {
		k := hopKey{r.Peer, r.Local.Port(), r.Seq}
		if r.Side == observe.Called {
			k = hopKey{r.Local, r.Peer.Port(), r.Seq}
		}
		got[r.Side][k] = r.Trace
	})
	const workers, each = 16, 150
	var work sync.WaitGroup
	for worker := range workers {
		work.Go(func() {
			for i := range each {
				parent, cookie := "00-"+randomHex(16)+"-"+randomHex(8)+"-01", ""
				switch i % 10 {
				case 3: // not instrumented
					parent = ""
				case 7: // instrumented, and beyond what slowray keeps
					cookie = strings.Repeat("c", 2000)
				}
				if err := ask(client, fmt.Sprintf("%s/r/%d", chain.first, worker), parent, cookie); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	work.Wait()
	client.CloseIdleConnections()
	if err := sub.End(); err != nil {
		t.Fatal(err)
	}
	for side, all := range got {
		joined, wrong, instrumented := 0, 0, -chain.long
		for k, parent := range chain.truth {
			want, _ := observe.ParseTraceparent(parent)
			if want.Known() {
				instrumented++
			}
			switch seen := all[k]; {
			case !seen.Known():
			case seen == want:
				joined++
			default:
				wrong++
				t.Logf("%s %v: %x, want %q", side, k, seen.ID, parent)
			}
		}
		for k, seen := range all {
			if _, known := chain.truth[k]; !known && seen.Known() {
				wrong++
			}
		}
		t.Logf("%s: %d of %d instrumented requests have their trace, %d wrong; %d more say it beyond what is kept", side, joined, instrumented, wrong, chain.long)
		if wrong > 0 || joined < instrumented*95/100 {
			t.Errorf("%s: %d of %d joined, %d wrong", side, joined, instrumented, wrong)
		}
	}
	if n := stream.Stats().Headers; n < uint64(chain.long) {
		t.Errorf("%d requests have headers beyond what is kept, at least %d do", n, chain.long)
	}
}
