package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// mixedServer answers /slow after 100 ms in query_db and /fast after 5 ms in
// cache_get, to clients of its own that are idle between requests. It prints its
// port, then how long each query_db took, in seconds, and ends by itself.
const mixedServer = `
import http.client, http.server, threading, time

def query_db():
    began = time.monotonic()
    time.sleep(0.1)
    print(time.monotonic() - began, flush=True)
def cache_get(): time.sleep(0.005)

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    wbufsize = -1  # one write for an answer
    def do_GET(self):
        query_db() if self.path == '/slow' else cache_get()
        self.send_response(200)
        self.send_header('Content-Length', '2')
        self.end_headers()
        self.wfile.write(b'ok')
    def log_message(self, *a): pass

server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)

def load(path):
    c = http.client.HTTPConnection('127.0.0.1', server.server_port)
    end = time.time() + 120
    while time.time() < end:
        c.request('GET', path)
        c.getresponse().read()
        time.sleep(0.03)

for path in ('/slow', '/fast', '/fast'):
    threading.Thread(target=load, args=(path,)).start()
`

// TestFlameSlow: of a service that is idle most of the time, and fast at most
// requests, only what slow requests wait for is left.
func TestFlameSlow(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	if os.Getuid() != 0 {
		t.Skip("needs root, to load BPF programs")
	}
	cmd := exec.Command("/usr/bin/python3", "-c", mixedServer)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("SKIPPED: %v: flame --slow is NOT tried", err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	lines := bufio.NewScanner(out)
	if !lines.Scan() { // its port: it serves
		t.Fatal(lines.Err())
	}
	var queries queryTime
	go queries.read(lines)
	time.Sleep(200 * time.Millisecond)
	began, before := time.Now(), queries.load()
	file := filepath.Join(t.TempDir(), "a.folded")
	var stdout, stderr bytes.Buffer
	if status := run([]string{"flame", "--pid", strconv.Itoa(cmd.Process.Pid), "--off-cpu", "--slow", "90ms", "--for", "3s", "-o", file}, &stdout, &stderr); status != exitNothing {
		t.Fatalf("exit status %d: %s", status, stderr.String())
	}
	// How many slow requests there are is a matter of how busy the machine is: the
	// server knows.
	want := (queries.load() - before) * float64(3*time.Second) / float64(time.Since(began))
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all, database float64
	for line := range strings.Lines(string(data)) {
		var ns float64
		at := strings.LastIndexByte(line, ' ')
		if _, err := fmt.Sscan(line[at+1:], &ns); err != nil {
			t.Fatal(err)
		}
		all += ns
		if strings.Contains(line, ";query_db;") {
			database += ns
		}
	}
	if want == 0 || all < 0.75*want || all > 1.25*want {
		t.Errorf("slow requests waited %.2f s of 3 s, the server waited %.2f s:\n%s%s", all/1e9, want/1e9, data, stderr.String())
	}
	if database < 0.8*all { // on a busy machine they wait elsewhere too
		t.Errorf("%.2f of %.2f s are in query_db:\n%s", database/1e9, all/1e9, data)
	}
}

// queryTime is how long the server says that its queries took, in ns.
type queryTime struct {
	sync.Mutex
	ns float64
}

func (q *queryTime) load() float64 {
	q.Lock()
	defer q.Unlock()
	return q.ns
}

func (q *queryTime) read(lines *bufio.Scanner) {
	for lines.Scan() {
		seconds, err := strconv.ParseFloat(lines.Text(), 64)
		if err != nil {
			return
		}
		q.Lock()
		q.ns += seconds * 1e9
		q.Unlock()
	}
}
