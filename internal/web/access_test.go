package web

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const token = "0123456789abcdefghijklmn"

func TestToken(t *testing.T) {
	h := serve(t, incident(), Options{Token: token, Metrics: http.NotFoundHandler()})
	try := func(target string, change func(*http.Request)) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, target, nil)
		if change != nil {
			change(r)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	bearer := func(text string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", text) }
	}
	for _, target := range []string{"/", "/api/status", "/api/requests", "/metrics", "/assets/page.css", "/flame", "/nothing", "/api/status?token=" + token} {
		if w := try(target, nil); w.Code != http.StatusUnauthorized || strings.Contains(w.Body.String(), token) {
			t.Errorf("%s without a token: %d %s", target, w.Code, w.Body)
		}
	}
	for _, wrong := range []string{"Bearer", "Bearer ", "Bearer " + token[1:], "Bearer " + token + "x", "Basic " + token, token} {
		if w := try("/api/status", bearer(wrong)); w.Code != http.StatusUnauthorized {
			t.Errorf("%q: %d", wrong, w.Code)
		}
	}
	if w := try("/api/status", bearer("bearer  "+token)); w.Code != http.StatusOK {
		t.Errorf("the token: %d", w.Code)
	}
	if w := try("/?token="+token[1:], nil); w.Code != http.StatusUnauthorized || w.Header().Get("Set-Cookie") != "" {
		t.Errorf("a wrong token in the address: %d %v", w.Code, w.Header())
	}
	for lang, to := range map[string]string{"zh": "/?lang=zh", "xx": "/", `zh"><b>`: "/"} { // the language stays in the address
		w := try("/?token="+token+"&lang="+url.QueryEscape(lang), nil)
		if got := w.Header().Get("Refresh"); got != "0; url="+to || !strings.Contains(w.Body.String(), `<a href="`+to+`">`) {
			t.Errorf("lang=%s: %q, %s", lang, got, w.Body)
		}
	}
	w := try("/?token="+token, nil)
	cookies := w.Result().Cookies()
	if len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode || strings.Contains(w.Body.String(), token) {
		t.Fatalf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	if w := try("/api/status", func(r *http.Request) { r.AddCookie(cookies[0]) }); w.Code != http.StatusOK {
		t.Errorf("with the cookie: %d", w.Code)
	}
	if w := try("/api/status", func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "slowray", Value: token}) }); w.Code != http.StatusUnauthorized {
		t.Errorf("another cookie: %d", w.Code)
	}
	if _, err := New(incident(), Options{Token: "short"}); err == nil {
		t.Error("a short token is taken")
	}
	if a, b := NewToken(), NewToken(); a == b || len(a) < 24 {
		t.Errorf("tokens %q, %q", a, b)
	}
}

func TestURL(t *testing.T) {
	if got := URL("127.0.0.1:7788", ""); got != "http://127.0.0.1:7788/" {
		t.Error(got)
	}
	if got := URL("[fd00::5]:7788", "a b&c"); got != "http://[fd00::5]:7788/?token=a+b%26c" {
		t.Error(got)
	}
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, any := range []string{"0.0.0.0:80", "[::]:80"} {
		if got, want := URL(any, ""), "http://"+net.JoinHostPort(name, "80")+"/"; got != want {
			t.Errorf("%s: %s, want %s", any, got, want)
		}
	}
}

// A page on the internet whose name points to 127.0.0.1 must read nothing.
func TestNamesOnLoopback(t *testing.T) {
	h := serve(t, incident(), Options{Loopback: true, Names: []string{"slowray.example"}})
	for host, want := range map[string]int{
		"localhost:7788": 200, "127.0.0.1:7788": 200, "[::1]:7788": 200, "LOCALHOST": 200, "localhost.": 200, "127.9.9.9": 200, "slowray.example": 200, "Slowray.Example:443": 200,
		"evil.example:7788": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example": 403, "10.0.0.1": 403, "": 403, "0.0.0.0": 403, "[::ffff:10.0.0.1]:80": 403, "[::ffff:127.0.0.1]:80": 200,
	} {
		r := httptest.NewRequest(http.MethodGet, "/api/status", nil)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("Host %q: %d, want %d", host, w.Code, want)
		}
	}
}

func TestOtherSites(t *testing.T) {
	h := serve(t, incident(), Options{})
	for _, c := range []struct {
		path, site, mode, dest string
		want                   int
	}{
		{"/api/status", "same-origin", "cors", "empty", 200},
		{"/api/status", "none", "navigate", "document", 200}, // typed in
		{"/api/status", "", "", "", 200},                     // curl
		{"/api/status", "cross-site", "no-cors", "image", 403},
		{"/api/status", "same-site", "cors", "empty", 403},
		{"/api/status", "cross-site", "navigate", "document", 403},
		{"/", "cross-site", "navigate", "document", 200}, // a link
		{"/", "cross-site", "navigate", "iframe", 403},
		{"/assets/page.css", "cross-site", "no-cors", "style", 403},
	} {
		r := httptest.NewRequest(http.MethodGet, c.path, nil)
		for name, value := range map[string]string{"Sec-Fetch-Site": c.site, "Sec-Fetch-Mode": c.mode, "Sec-Fetch-Dest": c.dest} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%+v: %d", c, w.Code)
		}
	}
}

func TestNothingCanBeChanged(t *testing.T) {
	h := serve(t, incident(), Options{})
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions, "TRACE", "CONNECT", "PROPFIND"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, "/api/status", strings.NewReader("x")))
		if w.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodHead, "/api/status", nil))
	if w.Code != http.StatusOK || w.Body.Len() != 0 {
		t.Errorf("HEAD: %d, %d bytes", w.Code, w.Body.Len())
	}
}

func TestSecurityHeaders(t *testing.T) {
	h := serve(t, incident(), Options{})
	for _, path := range []string{"/", "/api/status", "/api/nothing", "/nothing", "/assets/page.css", "/flame"} {
		w := get(t, h, path)
		header := w.Header()
		if csp := header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") || !strings.Contains(csp, "frame-ancestors") {
			t.Errorf("%s: %q", path, csp)
		}
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin"} {
			if got := header.Get(name); got != want {
				t.Errorf("%s: %s %q", path, name, got)
			}
		}
		for name := range header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s: %s", path, name)
			}
		}
	}
}

func TestNoPathLeadsOut(t *testing.T) {
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, "secret"), []byte("secret"), 0o600)
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop := start(t, l, serve(t, incident(), Options{Loopback: true, Proofs: dir}))
	defer stop()
	for _, path := range []string{
		"/../doc.go", "/assets/../doc.go", "/assets/..%2fdoc.go", "/assets/%2e%2e/doc.go", "//etc/passwd", "/assets//etc/passwd", "/assets/....//....//etc/passwd",
		"/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "/assets/", "/assets", "/assets/page.css/..", "/assets/page.css%00.js", "/index.html", "/./", "/api/../../secret", "/api/request?id=../../secret", "/api/proofs/../secret", "/\\..\\..\\etc\\passwd",
	} {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path)
		c.SetDeadline(time.Now().Add(5 * time.Second))
		body, _ := io.ReadAll(c)
		c.Close()
		text := string(body)
		if strings.Contains(text, "root:") || strings.Contains(text, "package page") || strings.Contains(text, "secret\n") || strings.HasPrefix(text, "HTTP/1.1 200") {
			t.Errorf("%s: %.200s", path, text)
		}
	}
}

// start serves until it is asked to end.
func start(t *testing.T, l *Listener, h http.Handler) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, h) }()
	return func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("serve: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("serve does not end")
		}
	}
}

func TestListen(t *testing.T) {
	for addr, want := range map[string]struct{ public, loopback bool }{
		"127.0.0.1:0": {false, true}, ":0": {false, true}, "localhost:0": {false, true}, "0.0.0.0:0": {true, false},
	} {
		l, err := Listen(addr)
		if err != nil {
			t.Errorf("%s: %v", addr, err)
			continue
		}
		if l.Public() != want.public || l.Loopback() != want.loopback {
			t.Errorf("%s: public %t, loopback %t", addr, l.Public(), l.Loopback())
		}
		l.Close()
	}
	for _, addr := range []string{"", "7788", "127.0.0.1", "127.0.0.1:http:x", "256.0.0.1:80", "unix:", "unix:relative", "unix:/nowhere/at/all", "127.0.0.1:99999"} {
		if l, err := Listen(addr); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", addr, err)
			if l != nil {
				l.Close()
			}
		}
	}
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Listen(l.Address()); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("twice: %v", err)
	}
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "slowray.sock")
	l, err := Listen("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
	if l.Public() || l.Loopback() || l.Address() != "unix:"+path {
		t.Errorf("public %t, loopback %t, %s", l.Public(), l.Loopback(), l.Address())
	}
	if _, err := Listen("unix:" + path); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("twice: %v", err)
	}
	stop := start(t, l, serve(t, incident(), Options{}))
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	res, err := client.Get("http://any/api/status")
	if err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("%v %v", res, err)
	} else {
		res.Body.Close()
	}
	client.CloseIdleConnections()
	stop()
	if _, err := os.Stat(path); err == nil {
		t.Error("the socket is still there")
	}
	// A killed process leaves its socket: it is replaced. A file is not.
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	if l, err = Listen("unix:" + path); err != nil {
		t.Fatalf("after a killed one: %v", err)
	}
	l.Close()
	os.WriteFile(path, nil, 0o600)
	if _, err := Listen("unix:" + path); err == nil {
		t.Error("a file is replaced")
	}
}

// What never ends, or has no end, is cut off.
func TestRequestsAreBounded(t *testing.T) {
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop := start(t, l, serve(t, incident(), Options{Loopback: true}))
	defer stop()
	status := func(request string) string {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(8 * time.Second))
		io.WriteString(c, request)
		line, _ := bufio.NewReader(c).ReadString('\n')
		return strings.TrimSpace(line)
	}
	for _, c := range []struct{ name, request, want string }{
		{"large header", "GET / HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 100<<10) + "\r\n\r\n", "HTTP/1.1 431"},
		{"large query", "GET /api/series?ep=" + strings.Repeat("x", 33<<10) + " HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 400"},
		{"body", "GET /api/status HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\nx", "HTTP/1.1 200"},
		{"two hosts", "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", "HTTP/1.1 400"},
	} {
		if got := status(c.request); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
	if testing.Short() {
		return
	}
	began := time.Now()
	if got := status("GET / HTTP/1.1\r\nHost: localh"); got != "" && !strings.HasPrefix(got, "HTTP/1.1 408") || time.Since(began) > 7*time.Second {
		t.Errorf("half a header: %q after %s", got, time.Since(began))
	}
}

// Many at once are answered, or told to come again: nothing waits for ever.
func TestManyAtOnce(t *testing.T) {
	slow := &held{memory: incident(), gate: make(chan struct{})}
	h := serve(t, slow, Options{})
	codes := make(chan int, 200)
	for range 200 {
		go func() { codes <- get(t, h, "/api/endpoints").Code }()
	}
	refused := 0
	for range 200 - maxWaiting {
		if code := <-codes; code != http.StatusServiceUnavailable {
			t.Fatalf("%d before any could be answered", code)
		}
		refused++
	}
	close(slow.gate)
	for range maxWaiting {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("one that waited: %d", code)
		}
	}
}

// TestNoSocketWhereAnotherCouldPutOne: who asks a socket must reach slowray. In a sticky
// directory nobody else can take it away.
func TestNoSocketWhereAnotherCouldPutOne(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIP: needs root, to give a directory to another user: that no socket is made there is NOT tested")
	}
	top, err := os.MkdirTemp("/tmp", "slowray-socket")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(top)
	for name, c := range map[string]struct {
		owner int
		mode  os.FileMode
		ok    bool
	}{
		"own":     {0, 0o755, true},
		"sticky":  {0, 0o777 | os.ModeSticky, true},
		"theirs":  {65534, 0o755, false},
		"stickys": {65534, 0o777 | os.ModeSticky, false},
		"open":    {0, 0o777, false},
	} {
		dir := filepath.Join(top, name)
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, c.owner, 0), os.Chmod(dir, c.mode)); err != nil {
			t.Fatal(err)
		}
		below := filepath.Join(dir, "below") // root's own, which who has the one above it can rename
		if err := os.Mkdir(below, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{filepath.Join(dir, "s"), filepath.Join(below, "s"), filepath.Join(below, "..", "s2")} {
			l, err := Listen("unix:" + path)
			switch {
			case err == nil:
				l.Close()
				if !c.ok {
					t.Errorf("%s: %s is listened at", name, path)
				}
			case c.ok || !strings.Contains(err.Error(), "could put another socket there") || strings.Contains(err.Error(), "\n"):
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
