package nginx

import (
	"strings"
	"testing"
)

const tail = `, client: 10.0.0.9, server: _, request: "GET /a HTTP/1.1", `

// Messages of nginx 1.18 to 1.27; the stamp and level are put before them.
var errorCases = []struct {
	level, message, kind, upstream string
	figure                         int
}{
	{"alert", "1024 worker_connections are not enough", KindWorkerConnections, "", 1024},
	{"warn", "1024 worker_connections are not enough, reusing connections", KindWorkerConnections, "", 1024},
	{"alert", "*7 1024 worker_connections are not enough while connecting to upstream" + tail + `upstream: "fastcgi://127.0.0.1:9000", host: "x"`, KindWorkerConnections, "", 1024},
	{"alert", "worker_connections are not enough while accepting", KindWorkerConnections, "", 0},
	{"warn", "2048 worker_connections exceed open file resource limit: 1024", KindWorkerFDCap, "", 1024},
	{"crit", "*7 connect() to 127.0.0.1:9000 failed (99: Cannot assign requested address) while connecting to upstream" + tail + `upstream: "fastcgi://127.0.0.1:9000", host: "x"`, KindEphemeralPorts, "127.0.0.1:9000", 0},
	{"crit", "*7 connect() to [::1]:9000 failed (Cannot assign requested address) while connecting to upstream", KindEphemeralPorts, "[::1]:9000", 0},
	{"crit", "*7 connect() to 10.0.0.1:80 failed (99: Address not available) while connecting to upstream", KindEphemeralPorts, "10.0.0.1:80", 0},
	{"crit", "*7 bind(10.0.0.2) failed (99: Cannot assign requested address) while connecting to upstream" + tail + `upstream: "http://10.0.0.1:80/x"`, KindEphemeralPorts, "10.0.0.1:80", 0},
	{"emerg", "bind() to 10.9.9.9:80 failed (99: Cannot assign requested address)", KindOtherError, "", 0},
	{"error", "*7 connect() failed (111: Connection refused) while connecting to upstream" + tail + `upstream: "http://127.0.0.1:8080/a?b=//c", host: "x"`, KindUpstreamRefused, "127.0.0.1:8080", 0},
	{"error", "*7 connect() failed: Connection refused while connecting to upstream" + tail + `upstream: "http://127.0.0.1:8080/a"`, KindUpstreamRefused, "127.0.0.1:8080", 0},
	{"error", "*7 upstream timed out (110: Connection timed out) while connecting to upstream" + tail + `upstream: "grpc://[::1]:8080", host: "x"`, KindUpstreamConnectTimeout, "[::1]:8080", 0},
	{"error", "*7 upstream timed out (110: Operation timed out) while reading response header from upstream" + tail + `upstream: "fastcgi://unix:/run/php/p.sock:", host: "x"`, KindUpstreamReadTimeout, "unix:/run/php/p.sock", 0},
	{"error", "*7 upstream timed out while reading upstream" + tail + `upstream: "http://unix:/run/a.sock:/uri", host: "x"`, KindUpstreamReadTimeout, "unix:/run/a.sock", 0},
	{"error", "*7 connect() failed (110: Connection timed out) while connecting to upstream" + tail + `upstream: "http://10.0.0.1:80/"`, KindUpstreamConnectTimeout, "10.0.0.1:80", 0},
	{"error", "*7 connect() to unix:/run/php.sock failed (11: Resource temporarily unavailable) while connecting to upstream" + tail + `upstream: "fastcgi://unix:/run/php.sock:"`, KindUpstreamBusy, "unix:/run/php.sock", 0},
	{"error", "*7 recv() failed (104: Connection reset by peer) while reading response header from upstream" + tail + `upstream: "http://10.0.0.1:80/"`, KindUpstreamReset, "10.0.0.1:80", 0},
	{"error", "*7 upstream prematurely closed connection while reading response header from upstream" + tail + `upstream: "http://10.0.0.1:80/"`, KindUpstreamReset, "10.0.0.1:80", 0},
	{"error", "*7 upstream prematurely closed FastCGI stdout while reading response header from upstream" + tail + `upstream: "fastcgi://10.0.0.1:80"`, KindUpstreamReset, "10.0.0.1:80", 0},
	{"info", "*7 recv() failed (104: Connection reset by peer) while sending to client" + tail, KindClientClosed, "", 0},
	{"error", "*7 no live upstreams while connecting to upstream" + tail + `upstream: "http://back/a"`, KindNoLiveUpstreams, "back", 0},
	{"crit", "accept4() failed (24: Too many open files)", KindFDLimit, "", 0},
	{"crit", `*7 open() "/var/www/a" failed (24: Too many open files)` + tail, KindFDLimit, "", 0},
	{"alert", "*7 socket() failed (24: No file descriptors available) while connecting to upstream", KindFDLimit, "", 0},
	{"crit", "accept4() failed (23: Too many open files in system)", KindFileTableFull, "", 0},
	{"crit", "accept4() failed (Too many open files in system)", KindFileTableFull, "", 0},
	{"info", "*7 client prematurely closed connection" + tail, KindClientClosed, "", 0},
	{"info", "*7 epoll_wait() reported that client prematurely closed connection, so upstream connection is closed too while sending request to upstream" + tail, KindClientClosed, "", 0},
	{"info", "*7 client 10.0.0.9 closed keepalive connection", "", "", 0},
	{"error", `*7 limiting requests, excess: 1.000 by zone "z"` + tail, KindLimitReq, "z", 0},
	{"warn", `*7 delaying request, excess: 0.5, by zone "z"` + tail, KindLimitReqDelay, "z", 0},
	{"error", `*7 limiting connections by zone "z"` + tail, KindLimitConn, "z", 0},
	{"warn", "*7 an upstream response is buffered to a temporary file /var/cache/x/1 while reading upstream" + tail, KindBufferedToDisk, "", 0},
	{"warn", "*7 a client request body is buffered to a temporary file /var/cache/x/1" + tail, KindBufferedToDisk, "", 0},
	{"crit", `*7 pwritev() "/var/cache/x/1" failed (28: No space left on device) while reading upstream` + tail, KindNoSpace, "", 0},
	{"error", `*7 open() "/var/www/a" failed (2: No such file or directory)` + tail + `referrer: "connect() failed (111: Connection refused)"`, KindOtherError, "", 0},
	{"error", `*7 FastCGI sent in stderr: "PHP message: x" while reading response header from upstream` + tail, KindOtherError, "", 0},
	{"notice", "signal process started", "", "", 0},
	{"debug", "*7 http upstream request: \"/\"", "", "", 0},
	{"error", "", KindOtherError, "", 0},
}

func errorText(level, message string) string {
	return "2026/10/21 06:29:00 [" + level + "] 12#12: " + message
}

func TestClassify(t *testing.T) {
	for _, c := range errorCases {
		text := errorText(c.level, c.message)
		l, ok := parseErrorLine([]byte(text))
		if !ok {
			t.Errorf("not parsed: %s", text)
			continue
		}
		kind, upstream, figure := l.classify()
		if kind != c.kind || string(upstream) != c.upstream || figure != c.figure {
			t.Errorf("%s\n got %q %q %d\nwant %q %q %d", text, kind, upstream, figure, c.kind, c.upstream, c.figure)
		}
	}
	for _, s := range []string{"", "PHP message: x", "2026/10/21 06:29:00", "2026/10/21 06:29:00 [", "2026/10/21 06:29:00 [error 12#12: x", "  #0 /x.php"} {
		if _, ok := parseErrorLine([]byte(s)); ok {
			t.Errorf("parsed: %q", s)
		}
	}
}

// TestClassifyEveryLevel: a kind does not depend on the level of its line.
func TestClassifyEveryLevel(t *testing.T) {
	for _, c := range errorCases {
		if c.kind == "" || c.kind == KindOtherError || strings.HasPrefix(c.message, "*7 bind(") {
			continue
		}
		for _, level := range []string{"debug", "info", "notice", "warn", "error", "crit", "alert", "emerg"} {
			l, ok := parseErrorLine([]byte(errorText(level, c.message)))
			if kind, _, _ := l.classify(); !ok || kind != c.kind {
				t.Errorf("[%s] %s: got %q, want %q", level, c.message, kind, c.kind)
			}
		}
	}
}

func FuzzErrorLine(f *testing.F) {
	for _, c := range errorCases {
		f.Add([]byte(errorText(c.level, c.message)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l, ok := parseErrorLine(b)
		if !ok {
			return
		}
		var s stamps
		s.errorTime(l.stamp)
		kind, upstream, figure := l.classify()
		if kind == "" && (len(upstream) > 0 || figure != 0) || figure < 0 || severe(l.level) && kind == "" {
			t.Errorf("%q %q %d", kind, upstream, figure)
		}
	})
}

func BenchmarkClassify(b *testing.B) {
	var lines [][]byte
	size := 0
	for _, c := range errorCases {
		lines = append(lines, []byte(errorText(c.level, c.message)))
		size += len(lines[len(lines)-1]) + 1
	}
	var times stamps
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		for _, line := range lines {
			if l, ok := parseErrorLine(line); ok {
				times.errorTime(l.stamp)
				l.classify()
			}
		}
	}
}

// BenchmarkClassifyStorm is what a real storm looks like: one long line.
func BenchmarkClassifyStorm(b *testing.B) {
	line := []byte(errorText("crit", `*123456 connect() to 127.0.0.1:9000 failed (99: Cannot assign requested address) while connecting to upstream, client: 10.77.0.2, server: , request: "GET / HTTP/1.1", upstream: "fastcgi://127.0.0.1:9000", host: "10.77.0.1"`))
	r := newReading(testWindow)
	var times stamps
	b.SetBytes(int64(len(line) + 1))
	b.ReportAllocs()
	for b.Loop() {
		l, _ := parseErrorLine(line)
		second, _ := times.errorTime(l.stamp)
		kind, upstream, figure := l.classify()
		r.errors.Add(kind, upstream, second, figure, line)
	}
}
