package nginx

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/slowray/slowray/internal/observe"
)

var testWindow = observe.Window{Start: time.Date(2026, 10, 21, 6, 29, 0, 0, time.UTC), Seconds: 10}

const second = 1792564140 // 2026-10-21T06:29:00Z

const customFormat = `$remote_addr "$http_user_agent" $status rt=$request_time urt="$upstream_response_time" ${msec}s`

var accessCases = []struct {
	name, format, line string
	want               *entry
}{
	{"combined", combinedText, `10.0.0.1 - - [21/Oct/2026:06:29:00 +0000] "GET / HTTP/1.1" 200 12 "-" "curl/8"`, &entry{status: 200, second: second}},
	{"zone", combinedText, `10.0.0.1 - - [21/Oct/2026:08:29:00 +0200] "GET / HTTP/1.1" 499 0 "-" "curl/8"`, &entry{status: 499, second: second}},
	{"hostile user", combinedText, `10.0.0.1 - a [b] "x" 503 [21/Oct/2026:06:29:00 +0000] "GET / HTTP/1.1" 200 12 "-" "x"`, &entry{status: 200, second: second}},
	{"hostile request", combinedText, `10.0.0.1 - - [21/Oct/2026:06:29:00 +0000] "\x22 503 12 \x22" 400 12 "-" "x"`, &entry{status: 400, second: second}},
	{"junk", combinedText, "\x00\x01binary", nil},
	{"cut", combinedText, `10.0.0.1 - - [21/Oct/2026:06:29`, nil},
	{"json", `{"time":"$time_iso8601","req":"$request","status":$status,"rt":$request_time}`,
		`{"time":"2026-10-21T11:59:00+05:30","req":"GET /\"status\":500 HTTP/1.1","status":404,"rt":0.125}`,
		&entry{status: 404, second: second, requestTime: []byte("0.125")}},
	{"custom", customFormat, `10.0.0.1 "a 200 b" 502 rt=1.250 urt="0.100, 1.150 : -" 1792564140.999s`,
		&entry{status: 502, second: second, requestTime: []byte("1.250"), upstreamTime: []byte("0.100, 1.150 : -")}},
	{"agent that looks like a status", `$http_user_agent $status $request_time`, `x 200 y 500 0.001`,
		&entry{status: 500, requestTime: []byte("0.001")}},
	{"status first", `$status $request`, `301 GET / HTTP/1.1`, &entry{status: 301}},
	{"status last", `$request|$status`, `GET /a|b HTTP/1.1|204`, &entry{status: 204}},
	{"no text between", `$remote_addr$status`, `10.0.0.1200`, nil},
	{"no status", `$request`, `GET /`, nil},
}

const combinedText = `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"`

func TestExtract(t *testing.T) {
	for _, c := range accessCases {
		var times stamps
		var got entry
		f := compileFormat(c.format)
		ok := f != nil && f.extract([]byte(c.line), &times, &got)
		if ok != (c.want != nil) {
			t.Errorf("%s: found %v", c.name, ok)
			continue
		}
		if ok {
			if d := cmp.Diff(*c.want, got, cmp.AllowUnexported(entry{})); d != "" {
				t.Errorf("%s: %s", c.name, d)
			}
		}
	}
}

func TestGuess(t *testing.T) {
	for line, want := range map[string]entry{
		`x "GET / HTTP/1.1" 200 5`:                            {status: 200},
		`x [21/Oct/2026:06:29:00 +0000] "GET / HTTP/1.1" 404`: {status: 404, second: second},
		`{"uri":"/","status": "503"}`:                         {status: 503},
		`{"status":301,"x":1}`:                                {status: 301},
		`x "a" 0.123 "b" 2000 "GET / HTTP/1.1" 500 `:          {status: 500},
	} {
		var times stamps
		var got entry
		if !guess([]byte(line), &times, &got) {
			t.Errorf("%s: nothing found", line)
		}
		if d := cmp.Diff(want, got, cmp.AllowUnexported(entry{})); d != "" {
			t.Errorf("%s: %s", line, d)
		}
	}
	for _, line := range []string{"", `"`, `" `, `" 2`, `" 20`, "plain 200 text", `"status":`, `"status":"`, `" 2000`} {
		var times stamps
		var got entry
		if guess([]byte(line), &times, &got) {
			t.Errorf("%q: found %+v", line, got)
		}
	}
}

func TestStatuses(t *testing.T) {
	s := newStatuses(testWindow)
	for _, c := range [][2]int{{0, 200}, {0, 206}, {-1, 304}, {3, 404}, {3, 499}, {10, 502}, {11, 500}, {2, 101}, {2, 0}} {
		s.add(c[0], c[1])
	}
	s.settle(1)
	s.add(3, 499)
	s.settle(10)
	want := []observe.StatusSecond{{Offset: 0, S2xx: 2, S3xx: 1}, {Offset: 3, S4xx: 1, S499: 11}, {Offset: 9, S5xx: 2}}
	if d := cmp.Diff(want, s.list()); d != "" {
		t.Error(d)
	}
	long := newStatuses(observe.Window{Start: testWindow.Start, Seconds: 7200})
	long.add(3599, 200)
	long.add(3600, 200)
	if long.settle(1); len(long.total) != 3600 || long.beyond != 1 || len(long.list()) != 1 {
		t.Errorf("%d seconds, %d beyond", len(long.total), long.beyond)
	}
}

func FuzzFormat(f *testing.F) {
	for _, c := range accessCases {
		f.Add(c.format, []byte(c.line))
	}
	f.Fuzz(func(t *testing.T, text string, line []byte) {
		var times stamps
		var e entry
		if fm := compileFormat(text); fm != nil && fm.extract(line, &times, &e) {
			if e.status < 0 || e.status > 999 {
				t.Errorf("status %d", e.status)
			}
			return
		}
		guess(line, &times, &e)
	})
}

func BenchmarkExtract(b *testing.B) {
	for name, c := range map[string]struct{ format, line string }{
		"combined": {combinedText, `10.77.0.2 - - [21/Oct/2026:06:29:00 +0000] "GET /index.php?a=1 HTTP/1.1" 200 612 "-" "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"`},
		"json":     {accessCases[6].format, accessCases[6].line},
	} {
		b.Run(name, func(b *testing.B) {
			f, line := compileFormat(c.format), []byte(c.line)
			s := newStatuses(testWindow)
			var times stamps
			var e entry
			b.SetBytes(int64(len(line) + 1))
			b.ReportAllocs()
			for b.Loop() {
				if !f.extract(line, &times, &e) {
					b.Fatal("not found")
				}
				s.add(int(e.second-second), e.status)
			}
		})
	}
	b.Run("guess", func(b *testing.B) {
		line := bytes.Repeat([]byte("x"), 200)
		var times stamps
		var e entry
		b.SetBytes(int64(len(line) + 1))
		for b.Loop() {
			guess(line, &times, &e)
		}
	})
}
