package gateway

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"
)

// What hosts and gateways say to each other.
const (
	// DefaultPort is where a gateway is found whose port is not given.
	DefaultPort = "8124"
	// SettlePath is where a host asks, with its stream as the parameter "stream", to be
	// answered when the gateway holds no batch of that stream any more.
	SettlePath = "/slowray/settle"
	// NotBegunHeader is set in an answer when the server cannot have seen the request.
	NotBegunHeader = "X-Slowray-Not-Begun"
	// NotMine is how the answer ends for a server that the gateway does not forward to.
	NotMine = "is no server of this gateway"
	// batchID is what the query IDs of batches begin with; the host's history, the
	// stream and the first position follow, with slashes.
	batchID = "slowray/"
	// gatewayID is the same for inserts of gateways; the stream, the gateway and a
	// number follow.
	gatewayID = "slowray-gateway/"
)

// QueryPrefix is what the query IDs begin with of all gateways' inserts of a stream.
func QueryPrefix(stream string) string { return gatewayID + stream + "/" }

// Limits of what is held.
const (
	joinedBytes = 1 << 20  // a body that is larger goes alone
	insertBytes = 32 << 20 // of one insert
	// aloneFor is how long hosts go alone that were in an insert that failed for what
	// was in it: the others of them are not to fail again and again with the one.
	aloneFor = time.Minute
	// maxAlone bounds how many go alone: more are forgotten, and fail once more.
	maxAlone = 8192
	// bodyTime is how long a body may take to come.
	bodyTime = 20 * time.Second
	// maxQueryID bounds the query ID of a batch that is put together with others, bytes.
	maxQueryID = 256
)

const (
	// MaxWait is the longest Options.Wait.
	MaxWait = 5 * time.Second
	// holdTime is after how long a batch that came and was not sent to its server yet is
	// given back to its host.
	holdTime    = MaxWait + 3*time.Second
	dialTimeout = 2 * time.Second
	// GoneTime is how long after a host has sent a batch no insert with it can begin any
	// more: so a host that does not reach a gateway knows when to go by way of another.
	GoneTime = holdTime + dialTimeout + time.Second
)

// Options say what a gateway does.
type Options struct {
	Servers []string      // host:port, as they stand in the hosts' URL
	Wait    time.Duration // how long a batch waits for those of other hosts
	Say     func(string)  // what a person should know; may be nil
}

// Gateway is an http.Handler for an HTTP proxy of hosts.
type Gateway struct {
	opt      Options
	id       string
	servers  map[string]bool
	room     room
	bodyTime time.Duration // as the constant, or less in tests
	http     *http.Transport
	proxy    *httputil.ReverseProxy

	mu      sync.Mutex
	lanes   map[laneKey]*lane
	pending map[string]int       // batches that wait or are on their way, by stream
	changed chan struct{}        // closed when there are fewer
	alone   map[string]time.Time // streams and addresses that go alone, and until when
	numbers int                  // of inserts
	stats   Stats
	failing map[string]bool // servers that the last insert failed at
}

// Stats are counts since the start.
type Stats struct {
	Batches uint64 // taken from hosts, to be put together
	Inserts uint64 // made of them
	Failed  uint64 // of these inserts
	Alone   uint64 // batches that passed by themselves
}

// New makes a gateway.
func New(opt Options) *Gateway {
	if opt.Say == nil {
		opt.Say = func(string) {}
	}
	g := &Gateway{
		opt: opt, id: rand.Text(), servers: map[string]bool{}, room: room{most: heldBytes}, bodyTime: bodyTime,
		lanes: map[laneKey]*lane{}, pending: map[string]int{}, changed: make(chan struct{}), alone: map[string]time.Time{}, failing: map[string]bool{},
		http: &http.Transport{
			DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext, MaxIdleConnsPerHost: 64,
			IdleConnTimeout: 20 * time.Second, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10,
		},
	}
	for _, s := range opt.Servers {
		g.servers[s] = true
	}
	g.proxy = &httputil.ReverseProxy{
		Transport: g.http,
		ErrorLog:  log.New(io.Discard, "", 0),                                     // the host gets the error
		Rewrite:   func(r *httputil.ProxyRequest) { r.Out.Host = r.Out.URL.Host }, // the request names its server
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			unreached(err).write(w)
		},
	}
	return g
}

// Stats tells what was done.
func (g *Gateway) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stats
}

// answer is what a host gets back.
type answer struct {
	status   int
	body     []byte
	notBegun bool
}

func (a answer) write(w http.ResponseWriter) {
	if a.notBegun {
		w.Header().Set(NotBegunHeader, "1")
	}
	w.WriteHeader(a.status)
	w.Write(a.body)
}

// unreached is the answer when a server has given none.
func unreached(err error) answer {
	var op *net.OpError
	return answer{http.StatusBadGateway, []byte("gateway: " + err.Error()), errors.As(err, &op) && op.Op == "dial"}
}

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	server := r.URL.Host
	ping := r.Method == http.MethodGet && r.URL.Path == "/ping"
	switch {
	case r.URL.Scheme != "http" || !ping && (r.Method != http.MethodPost || r.URL.Path != "/" && r.URL.Path != SettlePath):
		http.Error(w, "this is a gateway of slowray: hosts name it in their URL of ClickHouse, as gateway=HOST:PORT", http.StatusBadRequest)
		return
	case !g.servers[server]:
		http.Error(w, fmt.Sprintf("%q "+NotMine, server), http.StatusForbidden)
		return
	}
	// Room is taken before anything is read: who says that much comes, and sends it by
	// drops, may not have more than others.
	came, host := time.Now(), hostOf(r.RemoteAddr)
	cost := requestBytes + addressCopies*int64(len(r.RequestURI))
	q := r.URL.Query()
	key, joined := insertOf(r, q)
	stream := streamOf(q.Get("query_id"))
	if joined && (r.ContentLength < 0 || r.ContentLength > joinedBytes || g.goesAlone(stream, host)) {
		joined = false
		g.mu.Lock()
		g.stats.Alone++
		g.mu.Unlock()
	}
	if joined {
		cost += r.ContentLength
	} else {
		cost += passBytes
	}
	if !g.room.take(host, cost) {
		answer{http.StatusServiceUnavailable, []byte("gateway: too much waits for " + server), true}.write(w)
		return
	}
	if !joined {
		defer g.room.give(host, cost)
		if r.URL.Path == SettlePath {
			g.settle(w, r)
		} else {
			g.pass(w, r)
		}
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(g.bodyTime)) // a recorder of answers has none
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		g.room.give(host, cost)
		return // the host has gone
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // it may wait as long as the insert takes
	p := &piece{came: came, host: host, cost: cost, stream: stream, body: body, gone: r.Context().Done(), done: make(chan answer, 1)}
	g.add(key, p)
	select {
	case a := <-p.done:
		a.write(w)
	case <-p.gone: // what is on its way goes on; the host asks what became of it
	}
}

// pass lets a request through as it is.
func (g *Gateway) pass(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength >= 0 {
		// When a server answers at once, the body may be closed here before the
		// transport has looked for its end, and that error would end the answer. A
		// reader that knows where the end is does not look again.
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(r.Body, r.ContentLength), r.Body}
	}
	g.proxy.ServeHTTP(w, r)
}

// settle answers when no batch of a stream is here any more.
func (g *Gateway) settle(w http.ResponseWriter, r *http.Request) {
	stream := r.URL.Query().Get("stream")
	for {
		g.mu.Lock()
		n, changed := g.pending[stream], g.changed
		g.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// goesAlone says whether a stream, or the address that it comes from, was in an insert
// that failed for what was in it.
func (g *Gateway) goesAlone(names ...string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range names {
		until, ok := g.alone[name]
		if ok && time.Now().Before(until) {
			return true
		}
		delete(g.alone, name)
	}
	return false
}

// insertOf is the lane of an insert of rows in FORMAT Native; false for all else, and
// for inserts with parameters or a coding of the body that are not slowray's.
func insertOf(r *http.Request, q url.Values) (laneKey, bool) {
	for name, values := range q {
		switch name {
		case "database", "query", "query_id", "decompress", "async_insert":
			if len(values) > 1 {
				return laneKey{}, false
			}
		default:
			return laneKey{}, false
		}
	}
	if r.URL.Path != "/" || len(q.Get("query_id")) > maxQueryID || r.Header.Get("Content-Encoding") != "" {
		return laneKey{}, false
	}
	query := q.Get("query")
	if !strings.HasPrefix(query, "INSERT INTO ") || !strings.HasSuffix(query, ") FORMAT Native") {
		return laneKey{}, false
	}
	id := q["query_id"]
	q.Del("query_id")
	params := q.Encode()
	q["query_id"] = id
	return laneKey{
		server: r.URL.Host, params: params,
		user: r.Header.Get("X-ClickHouse-User"), password: r.Header.Get("X-ClickHouse-Key"), authorization: r.Header.Get("Authorization"),
	}, true
}

// streamOf is what a batch's query ID begins with, without its position; "" of other
// inserts.
func streamOf(queryID string) string {
	if !strings.HasPrefix(queryID, batchID) {
		return ""
	}
	return queryID[:strings.LastIndexByte(queryID, '/')+1]
}
