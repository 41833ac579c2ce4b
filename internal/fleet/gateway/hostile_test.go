package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/budget/budgettest"
)

// served is a gateway as the command serves it.
func served(t *testing.T, g *Gateway) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.Serve(ctx, l)
	}()
	t.Cleanup(func() { end(); <-done })
	return l.Addr().String()
}

// from connects from one of the addresses of the loopback device.
func from(t *testing.T, host, to string) net.Conn {
	t.Helper()
	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}, Timeout: 5 * time.Second}).Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func head(server string, length int, v url.Values) string {
	return fmt.Sprintf("POST http://%s/?%s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n", server, v.Encode(), server, length)
}

func batch(host string) url.Values {
	return url.Values{"database": {"slowray"}, "query": {insertQuery}, "query_id": {"slowray/" + host + "/requests/1"}}
}

// A host that begins a thousand batches of a megabyte and ends none takes no more than
// its share of the memory, and others still get through.
func TestAHostThatFloodsLeavesRoomForOthers(t *testing.T) {
	u := newUpstream(t)
	g := New(Options{Servers: []string{u.name()}, Wait: time.Millisecond})
	address := served(t, g)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 300 {
		c := from(t, "127.0.0.66", address)
		io.WriteString(c, head(u.name(), joinedBytes, batch("evil"))+"few")
	}
	h := &hosts{g, &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: address})}}, u.name(), address}
	for range 3 {
		if status, text, _, err := h.insert(t.Context(), insertQuery, "good", 1, "<good>"); status != 200 || err != nil {
			t.Errorf("%d %q %v", status, text, err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if used := int64(after.HeapAlloc) - int64(before.HeapAlloc); used > 80<<20 {
		t.Errorf("%d MB are held for it", used>>20)
	}
}

// Batches without a byte are held to the same limits: they too wait, with an address of
// the request each.
func TestEmptyBatchesTakeRoom(t *testing.T) {
	u := newUpstream(t)
	g := New(Options{Servers: []string{u.name()}, Wait: MaxWait})
	g.room.most = hostShare * 10 * (requestBytes + 4096)
	address := served(t, g)
	refused := make(chan bool, 100)
	for range cap(refused) {
		c := from(t, "127.0.0.66", address)
		io.WriteString(c, head(u.name(), 0, batch("evil")))
		go func() {
			b := make([]byte, 100)
			n, _ := c.Read(b)
			refused <- strings.Contains(string(b[:n]), " 503 ")
		}()
	}
	for range cap(refused) - 30 {
		select {
		case is := <-refused:
			if !is {
				t.Fatal("an answer before the insert")
			}
		case <-time.After(3 * time.Second):
			t.Fatal("most are held")
		}
	}
}

// A host that calls itself something else each time, or nothing, spoils the batches of
// others once a minute, and not each time.
func TestWhoSpoilsInsertsGoesAloneWhateverItIsCalled(t *testing.T) {
	u := newUpstream(t)
	u.answer = func(_ url.Values, body string) (int, string) {
		if strings.Contains(body, "bad") {
			return 500, "Code: 33, e.displayText() = DB::Exception: Cannot read all data"
		}
		return 200, ""
	}
	g := New(Options{Servers: []string{u.name()}, Wait: 100 * time.Millisecond})
	address := served(t, g)
	client := func(host string) *hosts {
		return &hosts{g, &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: address}),
			DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}).DialContext}}, u.name(), address}
	}
	good, evil := client("127.0.0.2"), client("127.0.0.66")
	failed := 0
	for i := range 6 {
		id := batch(fmt.Sprint("evil-", i))
		if i%2 == 1 {
			id.Del("query_id")
		}
		var wg sync.WaitGroup
		wg.Go(func() { evil.post(t.Context(), "/", id, "bad") })
		wg.Go(func() {
			// A host that has no stream, as that of a Hello.
			if status, _, _, _ := good.post(t.Context(), "/", url.Values{"database": {"slowray"}, "query": {insertQuery}}, "<good>"); status != 200 {
				failed++
			}
		})
		wg.Wait()
	}
	if failed > 1 {
		t.Errorf("%d of 6 failed with another's", failed)
	}
}

// What hosts may be called, and how long, does not add up.
func TestNamesThatAreTooLongGoAlone(t *testing.T) {
	u := newUpstream(t)
	h := newHosts(t, u.name(), 50*time.Millisecond)
	long := strings.Repeat("x", 10<<10)
	if status, _, _, err := h.insert(t.Context(), insertQuery, long, 1, "<a>"); status != 200 || err != nil {
		t.Errorf("%d %v", status, err)
	}
	if s := h.g.Stats(); s.Batches != 0 || s.Inserts != 0 {
		t.Errorf("%+v", s)
	}
	now := time.Now()
	pieces := []*piece{{host: "a"}}
	for i := range 2 * maxAlone {
		pieces = append(pieces, &piece{stream: fmt.Sprint(i), host: "a"})
	}
	h.g.note("s", pieces, answer{status: 500, body: []byte("Code: 33, x")})
	h.g.mu.Lock()
	defer h.g.mu.Unlock()
	if n := len(h.g.alone); n == 0 || n > maxAlone {
		t.Errorf("%d go alone", n)
	}
	for _, until := range h.g.alone {
		if until.Sub(now) > 2*aloneFor {
			t.Error("for longer than a minute")
		}
	}
}

// FuzzGateway gives a gateway whatever a host may send. It asks no server but its own,
// holds nothing in the end, and what arrives is what was sent.
func FuzzGateway(f *testing.F) {
	f.Add("POST", "/", batch("a").Encode(), "slowray", []byte("<a>"), int64(3))
	f.Add("POST", "/", batch("a").Encode()+"&decompress=1", "", []byte("bad"), int64(3))
	f.Add("POST", "/", "query=SELECT+1", "", []byte{}, int64(0))
	f.Add("POST", SettlePath, "stream=a", "", []byte{}, int64(0))
	f.Add("GET", "/ping", "", "", []byte{}, int64(0))
	f.Add("POST", "/", batch("a").Encode()+"&query_id=b", "", []byte("x"), int64(-1))
	f.Add("POST", "/", batch("a").Encode(), "", []byte("cut off"), int64(1<<40))
	f.Fuzz(func(t *testing.T, method, path, query, user string, body []byte, length int64) {
		var mu sync.Mutex
		var came []string
		// One for each input: it may hear of a body that was cut off after its
		// gateway has given up.
		u := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			mu.Lock()
			came = append(came, string(b))
			mu.Unlock()
			if strings.Contains(string(b), "bad") {
				w.WriteHeader(500)
				io.WriteString(w, "Code: 33, x")
			}
		}))
		defer u.Close()
		server := strings.TrimPrefix(u.URL, "http://")
		g := New(Options{Servers: []string{server}})
		r, err := http.NewRequest(method, "http://"+server, strings.NewReader(string(body)))
		if err != nil || method == http.MethodConnect {
			return
		}
		r.URL.Path, r.URL.RawQuery, r.RequestURI, r.RemoteAddr = path, query, "http://"+server+path+"?"+query, "192.0.2.1:1"
		r.ContentLength, r.GetBody = length, nil // as a server has it
		if strings.Trim(user, "abcdefghijklmnopqrstuvwxyz") == "" {
			r.Header.Set("X-ClickHouse-User", user)
		}
		w := httptest.NewRecorder()
		// A gateway, its buffers and those of a connection to the server.
		budgettest.Within(t, len(query)+len(path)+len(body), budgettest.Cost{PerByte: 64, Fixed: 4 << 20, CPU: time.Second}, func() { g.ServeHTTP(w, r) })
		g.http.CloseIdleConnections()
		if g.room.held != 0 || len(g.room.byHost) != 0 || len(g.pending) != 0 {
			t.Fatalf("%d bytes and %d batches are held", g.room.held, len(g.pending))
		}
		u.Close() // once all that it was asked is over
		if len(came) > 1 {
			t.Fatalf("the server was asked %d times", len(came))
		}
		if len(came) == 1 && length == int64(len(body)) && came[0] != string(body) {
			t.Errorf("%q came as %q", body, came[0])
		}
		r.URL.Host = "192.0.2.7:8123"
		w = httptest.NewRecorder()
		if g.ServeHTTP(w, r); w.Code != http.StatusForbidden && w.Code != http.StatusBadRequest {
			t.Errorf("another server: %d", w.Code)
		}
	})
}
