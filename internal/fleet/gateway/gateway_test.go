package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// upstream is a server that notes what it is asked.
type upstream struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []string
	ids    []string
	answer func(query url.Values, body string) (status int, text string)
}

func newUpstream(t *testing.T) *upstream {
	u := &upstream{}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		u.mu.Lock()
		u.bodies, u.ids = append(u.bodies, string(b)), append(u.ids, r.URL.Query().Get("query_id"))
		f := u.answer
		u.mu.Unlock()
		if f != nil {
			status, text := f(r.URL.Query(), string(b))
			w.WriteHeader(status)
			io.WriteString(w, text)
		}
	}))
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) name() string { return strings.TrimPrefix(u.URL, "http://") }

// asked are the bodies that came so far.
func (u *upstream) asked() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]string(nil), u.bodies...)
}

// hosts is a client of a gateway.
type hosts struct {
	g       *Gateway
	client  *http.Client
	server  string
	address string // of the gateway
}

func newHosts(t *testing.T, server string, wait time.Duration) *hosts {
	g := New(Options{Servers: []string{server}, Wait: wait})
	front := httptest.NewServer(g)
	t.Cleanup(front.Close)
	proxy, _ := url.Parse(front.URL)
	c := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy), MaxIdleConnsPerHost: 100}}
	t.Cleanup(c.CloseIdleConnections)
	return &hosts{g, c, server, proxy.Host}
}

const insertQuery = "INSERT INTO requests (`a`, `b`) FORMAT Native"

// insert sends a batch of a host; first is its first position.
func (h *hosts) insert(ctx context.Context, query, host string, first int, body string) (status int, text string, header http.Header, err error) {
	v := url.Values{"database": {"slowray"}, "query": {query}, "query_id": {fmt.Sprintf("slowray/%s/requests/%d", host, first)}}
	return h.post(ctx, "/", v, body)
}

func (h *hosts) post(ctx context.Context, path string, v url.Values, body string) (int, string, http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+h.server+path+"?"+v.Encode(), strings.NewReader(body))
	if err != nil {
		return 0, "", nil, err
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return 0, "", nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), resp.Header, err
}

// waiting waits until so many batches are in lanes.
func (h *hosts) waiting(t *testing.T, n uint64) {
	t.Helper()
	for range 1000 {
		if h.g.Stats().Batches >= n {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("%d batches came, want %d", h.g.Stats().Batches, n)
}

func TestBatchesOfManyHostsAreOneInsertInTheOrderOfHistories(t *testing.T) {
	u := newUpstream(t)
	h := newHosts(t, u.name(), 300*time.Millisecond)
	var wg sync.WaitGroup
	for _, name := range []string{"c", "a", "e", "b", "d"} {
		wg.Go(func() {
			if status, text, _, err := h.insert(t.Context(), insertQuery, name, 7, "<"+name+">"); status != 200 || err != nil {
				t.Errorf("%d %s %v", status, text, err)
			}
		})
	}
	// Other columns are another insert.
	wg.Go(func() { h.insert(t.Context(), strings.Replace(insertQuery, "b", "c", 1), "f", 7, "<f>") })
	wg.Wait()
	got := u.asked()
	if len(got) != 2 || !strings.Contains(strings.Join(got, " "), "<a><b><c><d><e>") {
		t.Errorf("inserts %q", got)
	}
	for _, id := range u.ids {
		if !strings.HasPrefix(id, QueryPrefix("requests")) {
			t.Errorf("query ID %q", id)
		}
	}
	if s := h.g.Stats(); s != (Stats{Batches: 6, Inserts: 2}) {
		t.Errorf("%+v", s)
	}
}

func TestAHostIsAnsweredWithWhatTheServerSaid(t *testing.T) {
	u := newUpstream(t)
	release := make(chan struct{})
	u.answer = func(url.Values, string) (int, string) {
		<-release
		return 500, "Code: 252. DB::Exception: too many parts"
	}
	h := newHosts(t, u.name(), 0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		status, text, header, err := h.insert(t.Context(), insertQuery, "a", 1, "a")
		if status != 500 || !strings.HasPrefix(text, "Code: 252.") || header.Get(NotBegunHeader) != "" || err != nil {
			t.Errorf("%d %q %v %v", status, text, header, err)
		}
	}()
	select {
	case <-done:
		t.Error("a host was answered before the server had answered")
	case <-time.After(100 * time.Millisecond):
	}
	close(release)
	<-done
	if h.g.goesAlone("slowray/a/requests/") {
		t.Error("a batch goes alone for what is wrong with the server")
	}
}

func TestWhoSettlesWaitsForWhatIsOnItsWay(t *testing.T) {
	u := newUpstream(t)
	release := make(chan struct{})
	u.answer = func(url.Values, string) (int, string) { <-release; return 200, "" }
	h := newHosts(t, u.name(), 0)
	ctx, gone := context.WithCancel(t.Context())
	go h.insert(ctx, insertQuery, "a", 1, "a")
	h.waiting(t, 1)
	for len(u.asked()) == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	gone() // the host is killed; its batch is with the server
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		if status, text, _, err := h.post(t.Context(), SettlePath, url.Values{"stream": {"slowray/a/requests/"}}, ""); status != 200 || err != nil {
			t.Errorf("%d %q %v", status, text, err)
		}
	}()
	// Other hosts and streams do not wait.
	if status, _, _, err := h.post(t.Context(), SettlePath, url.Values{"stream": {"slowray/b/requests/"}}, ""); status != 200 || err != nil {
		t.Errorf("%d %v", status, err)
	}
	select {
	case <-settled:
		t.Error("settled while the batch is on its way")
	case <-time.After(100 * time.Millisecond):
	}
	close(release)
	<-settled
}

func TestABatchWhoseHostHasGoneIsNotSent(t *testing.T) {
	u := newUpstream(t)
	h := newHosts(t, u.name(), 500*time.Millisecond)
	ctx, gone := context.WithCancel(t.Context())
	go h.insert(ctx, insertQuery, "a", 1, "a")
	h.waiting(t, 1)
	gone()
	if status, _, _, err := h.post(t.Context(), SettlePath, url.Values{"stream": {"slowray/a/requests/"}}, ""); status != 200 || err != nil {
		t.Errorf("%d %v", status, err)
	}
	if got := u.asked(); len(got) != 0 {
		t.Errorf("sent %q", got)
	}
}

// A host that does not reach the gateway any more relies on it.
func TestABatchThatWaitedTooLongIsGivenBack(t *testing.T) {
	g := New(Options{})
	l := &lane{full: make(chan struct{})}
	now := time.Now()
	for i, came := range []time.Duration{0, holdTime + time.Second, holdTime, holdTime - time.Second} {
		l.waiting = append(l.waiting, &piece{came: now.Add(-came), stream: fmt.Sprint(i), body: []byte("x")})
	}
	pieces, dropped, _ := g.take(l, now)
	names := func(list []*piece) (s string) {
		for _, p := range list {
			s += p.stream
		}
		return s
	}
	if names(pieces) != "03" || names(dropped) != "12" {
		t.Errorf("sent %s, given back %s", names(pieces), names(dropped))
	}
	if holdTime <= MaxWait || GoneTime <= holdTime+dialTimeout {
		t.Errorf("%s, %s, %s", MaxWait, holdTime, GoneTime)
	}
}

func TestHostsGoAloneAfterABatchThatTheServerCannotRead(t *testing.T) {
	u := newUpstream(t)
	u.answer = func(_ url.Values, body string) (int, string) {
		if strings.Contains(body, "bad") {
			return 500, "Code: 33, e.displayText() = DB::Exception: Cannot read all data"
		}
		return 200, ""
	}
	h := newHosts(t, u.name(), 300*time.Millisecond)
	both := func() (good, bad int) {
		var wg sync.WaitGroup
		wg.Go(func() { good, _, _, _ = h.insert(t.Context(), insertQuery, "good", 1, "good") })
		wg.Go(func() { bad, _, _, _ = h.insert(t.Context(), insertQuery, "evil", 1, "bad") })
		wg.Wait()
		return good, bad
	}
	if good, bad := both(); good != 500 || bad != 500 {
		t.Errorf("together %d, %d", good, bad)
	}
	if good, bad := both(); good != 200 || bad != 500 {
		t.Errorf("alone %d, %d", good, bad)
	}
	if s := h.g.Stats(); s != (Stats{Batches: 2, Inserts: 1, Failed: 1, Alone: 2}) {
		t.Errorf("%+v", s)
	}
}

func TestAServerThatIsAwayIsToldAsSuch(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	h := newHosts(t, l.Addr().String(), 0)
	for _, query := range []string{insertQuery, "SELECT 1"} {
		status, text, header, err := h.insert(t.Context(), query, "a", 1, "a")
		if status != http.StatusBadGateway || header.Get(NotBegunHeader) == "" || err != nil {
			t.Errorf("%s: %d %q %v %v", query, status, text, header, err)
		}
	}
}

func TestQuestionsPassAndOtherServersAreRefused(t *testing.T) {
	u := newUpstream(t)
	u.answer = func(q url.Values, body string) (int, string) { return 200, q.Get("query") + "/" + body }
	h := newHosts(t, u.name(), 0)
	large := strings.Repeat("x", joinedBytes+1)
	for query, body := range map[string]string{"SELECT 1": "", insertQuery: large} {
		if status, text, _, err := h.insert(t.Context(), query, "a", 1, body); status != 200 || text != query+"/"+body || err != nil {
			t.Errorf("%s: %d %.100q %v", query, status, text, err)
		}
	}
	other := newUpstream(t)
	h.server = other.name()
	if status, _, _, err := h.insert(t.Context(), insertQuery, "a", 1, "a"); status != http.StatusForbidden || err != nil || len(other.asked()) > 0 {
		t.Errorf("%d %v, the other server was asked %q", status, err, other.asked())
	}
	// As a page that somebody opens.
	rec := httptest.NewRecorder()
	h.g.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil))
	if rec.Code != http.StatusBadRequest || strings.Count(rec.Body.String(), "\n") != 1 {
		t.Errorf("%d %q", rec.Code, rec.Body)
	}
}

// early is a server that answers before the transport has looked for the end of what
// it sends: that happens now and then when a server is quick.
type early struct{}

func (early) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, err := io.ReadFull(r.Body, make([]byte, r.ContentLength)); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: 200, Body: io.NopCloser(&earlyAnswer{request: r.Body}), ContentLength: -1}, nil
}

type earlyAnswer struct {
	request io.Reader
	begun   bool
}

func (a *earlyAnswer) Read(p []byte) (int, error) {
	if !a.begun {
		a.begun = true
		return len(p), nil // enough that the header goes out
	}
	_, err := a.request.Read(make([]byte, 1))
	return 0, err
}

func TestAQuickAnswerPassesWhole(t *testing.T) {
	h := newHosts(t, "127.0.0.1:1", 0)
	h.g.proxy.Transport = early{}
	if status, text, _, err := h.post(t.Context(), "/", url.Values{}, "SELECT 1"); status != 200 || len(text) == 0 || err != nil {
		t.Errorf("%d, %d bytes, %v", status, len(text), err)
	}
}

func TestTooMuchIsRefused(t *testing.T) {
	h := newHosts(t, "127.0.0.1:1", time.Hour)
	h.g.room.held = heldBytes
	status, text, header, err := h.insert(t.Context(), insertQuery, "a", 1, "a")
	if status != http.StatusServiceUnavailable || header.Get(NotBegunHeader) == "" || err != nil {
		t.Errorf("%d %q %v", status, text, err)
	}
}

func TestServeAnswersThoseThatWaitWhenItEnds(t *testing.T) {
	u := newUpstream(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := New(Options{Servers: []string{u.name()}, Wait: 200 * time.Millisecond})
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(ctx, l) }()
	h := &hosts{g, &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: l.Addr().String()}), DisableKeepAlives: true}}, u.name(), l.Addr().String()}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if status, text, _, err := h.insert(t.Context(), insertQuery, "a", 1, "a"); status != 200 || err != nil {
			t.Errorf("%d %q %v", status, text, err)
		}
	}()
	h.waiting(t, 1)
	end()
	if err := <-ended; err != http.ErrServerClosed {
		t.Error(err)
	}
	<-answered
	if len(u.asked()) != 1 {
		t.Errorf("inserts %q", u.asked())
	}
}
