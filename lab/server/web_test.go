package server

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// writes records each write.
type writes struct {
	all  bytes.Buffer
	each []int
	at   []time.Time
}

func (w *writes) Write(p []byte) (int, error) {
	w.each, w.at = append(w.each, len(p)), append(w.at, time.Now())
	return w.all.Write(p)
}

func TestAnswer(t *testing.T) {
	for _, tt := range []struct {
		name   string
		is     Service
		status int
		pieces int
		body   int
	}{
		{"plain", Service{}, 200, 1, 12},
		{"sized", Service{Size: 100_000}, 200, 1, 100_000},
		{"in pieces", Service{Pieces: 8, Size: 800}, 200, 8, 800},
		{"stalled", Service{Stall: 20 * time.Millisecond}, 200, 2, 12},
		{"failed", Service{}, 502, 1, 12},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var w writes
			if err := (&webSpec{Service: tt.is}).answer(&w, tt.status, false); err != nil {
				t.Fatal(err)
			}
			if len(w.each) != tt.pieces {
				t.Errorf("writes of %v bytes, want %d writes", w.each, tt.pieces)
			}
			if last := len(w.at) - 1; w.at[last].Sub(w.at[0]) < tt.is.Stall {
				t.Errorf("no stall of %v", tt.is.Stall)
			}
			resp, err := http.ReadResponse(bufio.NewReader(&w.all), nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != tt.status || len(body) != tt.body || resp.Close {
				t.Errorf("status %d, %d bytes, closes %v, %v", resp.StatusCode, len(body), resp.Close, err)
			}
		})
	}
}

// freePort gives a port that was free a moment ago.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// Both ways to serve, one calling the other.
func TestServe(t *testing.T) {
	back := webSpec{Addr: "127.0.0.1", Port: freePort(t), Backlog: 5, Service: Service{EventLoop: true}}
	addr := func(port int) string { return (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}).String() }
	front := webSpec{Addr: "127.0.0.1", Port: freePort(t), Backlog: 5, Service: Service{Calls: 2},
		Behind: &behind{HTTP: addr(back.Port)}}
	broken := webSpec{Addr: "127.0.0.1", Port: freePort(t), Backlog: 5, Service: Service{Calls: 1},
		Behind: &behind{HTTP: addr(freePort(t))}}
	for _, w := range []*webSpec{&back, &front, &broken} {
		go w.serve() // until the test's process ends
	}
	client := &http.Client{Timeout: 5 * time.Second}
	get := func(port int) (status int, body string) {
		t.Helper()
		for range 50 {
			resp, err := client.Get("http://" + addr(port) + "/")
			if err != nil { // it does not listen yet
				time.Sleep(20 * time.Millisecond)
				continue
			}
			defer resp.Body.Close()
			data, _ := io.ReadAll(resp.Body)
			return resp.StatusCode, strings.TrimSpace(string(data))
		}
		t.Fatalf("port %d: no answer", port)
		return 0, ""
	}
	for range 3 { // over one connection
		if status, body := get(front.Port); status != 200 || body != "Hello World" {
			t.Errorf("%d %q", status, body)
		}
	}
	if status, _ := get(broken.Port); status != 502 {
		t.Errorf("status %d where the backend does not answer", status)
	}
}
