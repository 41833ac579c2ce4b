package web

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/slowray/slowray/internal/budget/budgettest"
	fleetmemory "github.com/slowray/slowray/internal/fleet/memory"
)

// One host among others that reach the page, and never says what it wants, leaves room
// for them.
func TestOneHostDoesNotTakeAllConnections(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	l, err := Listen("0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	token := NewToken()
	stop := start(t, l, serve(t, incident(), Options{Token: token}))
	defer stop()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	dial := func(from string) net.Conn {
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 5 * time.Second}).Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	for range maxConnections + 10 {
		io.WriteString(dial("127.0.0.66"), "GET / HTTP/1.1\r\nHost: ")
	}
	c := dial("127.0.0.2")
	c.SetDeadline(time.Now().Add(headerTime - 2*time.Second))
	fmt.Fprintf(c, "GET /api/status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n", token)
	if answer, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200") {
		t.Errorf("another host: %.60q %v", answer, err)
	}
}

// paths are all that can be asked for.
var paths = []string{
	"/api/status", "/api/endpoints", "/api/series", "/api/findings", "/api/report", "/api/requests", "/api/request", "/api/difference", "/api/histogram",
	"/api/waits", "/api/stacks", "/api/drops", "/api/proofs", "/flame", "/flame.svg", "/", "/nothing",
}

// FuzzServe asks a page for whatever a client may. Nothing is asked of it but what may
// be read; nothing crashes, each answer is whole, of bounded cost, and drives no browser.
func FuzzServe(f *testing.F) {
	history := incident()
	h := serve(f, history, Options{Loopback: true})
	now := noon.Add(time.Hour)
	fleetPage, err := NewFleet(new(fleetmemory.Archive), Options{Loopback: true, Now: func() time.Time { return now }})
	if err != nil {
		f.Fatal(err)
	}
	all := "from=" + unixText(noon) + "&to=" + unixText(noon.Add(12*time.Minute))
	for i := range paths {
		f.Add(uint8(i), "GET", all, "localhost", "", "", "")
		f.Add(uint8(i), "GET", "from=0&to=1e9&points=1000&limit=1000&ledger=0&format=csv", "127.0.0.1:7788", "none", "gzip", "x")
	}
	f.Add(uint8(5), "GET", all+"&ep=served%7C1%7C10.0.0.5%7C80%7Cnginx&slow_us=1&status=5xx&sort=time", "[::1]", "same-origin", "gzip;q=0", "Bearer x")
	f.Add(uint8(7), "GET", all+"&against_from=0&against_to=1&kind=off&value=off-cpu&roots=thread", "localhost.", "cross-site", "*", "")
	f.Add(uint8(6), "POST", "id=1_s_1_1.2.3.4:5_[::1]:6_7&token="+strings.Repeat("x", 300), "evil.example", "same-site", "", "")
	f.Add(uint8(0), "GET", "from=1e300&to=nan", "localhost", "", "", "")
	f.Add(uint8(0), "OPTIONS", "%zz;", "127.0.0.1.nip.io", "", "", "")
	f.Fuzz(func(t *testing.T, path uint8, method, query, host, site, encoding, authorization string) {
		for name, h := range map[string]http.Handler{"host": h, "fleet": fleetPage} {
			p := paths[int(path)%len(paths)]
			if name == "fleet" && strings.HasPrefix(p, "/api/") {
				p = "/api/fleet"
			}
			r := httptest.NewRequest(http.MethodGet, p, nil)
			r.Method, r.Host, r.URL.RawQuery = method, host, query
			r.Header.Set("Sec-Fetch-Site", site)
			r.Header.Set("Accept-Encoding", encoding)
			r.Header.Set("Authorization", authorization)
			w := httptest.NewRecorder()
			// A thousand requests as JSON, and what they are made of.
			budgettest.Within(t, len(query), budgettest.Cost{PerByte: 4096, Fixed: 128 << 20, CPU: 5 * time.Second}, func() { h.ServeHTTP(w, r) })
			switch w.Code {
			case http.StatusOK, http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed:
			default:
				t.Fatalf("%s %s?%s: %d %s", method, p, query, w.Code, w.Body)
			}
			if w.Code == http.StatusOK && (method != http.MethodGet && method != http.MethodHead) {
				t.Errorf("%s %s: is answered", method, p)
			}
			if name := strings.ToLower(strings.Trim(strings.TrimSuffix(host, "."), "[]")); w.Code == http.StatusOK && strings.Contains(name, "evil") {
				t.Errorf("who asks for %q is answered", host)
			}
			header := w.Header()
			for _, must := range []string{"Content-Security-Policy", "X-Content-Type-Options", "X-Frame-Options", "Cross-Origin-Resource-Policy"} {
				if header.Get(must) == "" {
					t.Errorf("%s %s has no %s", method, p, must)
				}
			}
			if method == http.MethodGet && header.Get("Content-Encoding") == "" && strings.HasPrefix(header.Get("Content-Type"), "application/json") && !json.Valid(w.Body.Bytes()) {
				t.Errorf("%s?%s: %.200s", p, query, w.Body)
			}
		}
	})
}

// FuzzFleetQuery reads the range that is asked of a fleet: never longer than may be
// judged, nor of another time than was asked for.
func FuzzFleetQuery(f *testing.F) {
	f.Add("last=900", int64(1_800_000_000))
	f.Add("from=1&to=2e9", int64(0))
	f.Add("from=2026-11-22T12:00:00Z&to=2026-11-22T13:00:00+01:00", int64(1_800_000_000))
	f.Add("last=1e300&to=-1", int64(1))
	f.Fuzz(func(t *testing.T, raw string, newest int64) {
		budgettest.Within(t, len(raw), budgettest.Usual, func() {
			q, err := parseFleetQuery(raw, time.Unix(newest%lastSecond, 0))
			if err != nil {
				if len(err.Error()) > 500 {
					t.Errorf("%d bytes of error", len(err.Error()))
				}
				return
			}
			if d := q.to.Sub(q.from); d < shortestFleet || d > longestFleet {
				t.Errorf("%q: %s", raw, d)
			}
			again, err := parseFleetQuery(url.Values{"from": {fmt.Sprint(q.from.Unix())}, "to": {fmt.Sprint(q.to.Unix())}}.Encode(), time.Unix(0, 0))
			if q.from.Unix() >= 0 && (err != nil || again != q) {
				t.Errorf("%q: %v, and then %v: %v", raw, q, again, err)
			}
		})
	})
}

// FuzzKey reads keys of endpoints as people and pages write them: what is read is
// written the same, and drives nothing.
func FuzzKey(f *testing.F) {
	f.Add("served|4026531840|10.0.0.5|80|nginx")
	f.Add("called|0|::1|0|a%zz%41|b")
	f.Add("served|1|other|1|\x1b")
	f.Fuzz(func(t *testing.T, text string) {
		k, err := parseKey(text)
		if err != nil {
			return
		}
		written := k.String()
		if again, err := parseKey(written); err != nil && len(written) <= maxKey || err == nil && again != k {
			t.Errorf("%+v is written %q and read as %+v: %v", k, written, again, err)
		}
		if !utf8.ValidString(written) {
			t.Errorf("%q", written)
		}
		if name := unescapeName(escapeName(k.comm)); name != k.comm {
			t.Errorf("%q, and then %q", k.comm, name)
		}
	})
}
