package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// mixedServer answers /slow after 100 ms in query_db and /fast after 5 ms in
// cache_get, to clients of its own that are idle between requests. It prints its
// port, and ends by itself.
const mixedServer = `
import http.client, http.server, threading, time

def query_db(): time.sleep(0.1)
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
    end = time.time() + 20
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
	if os.Getuid() != 0 {
		t.Skip("needs root, to load BPF programs")
	}
	cmd := exec.Command("/usr/bin/python3", "-c", mixedServer)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if _, err := out.Read(make([]byte, 16)); err != nil { // its port: it serves
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond)
	file := filepath.Join(t.TempDir(), "a.folded")
	var stdout, stderr bytes.Buffer
	if status := run([]string{"flame", "--pid", strconv.Itoa(cmd.Process.Pid), "--off-cpu", "--slow", "60ms", "--for", "3s", "-o", file}, &stdout, &stderr); status != exitNothing {
		t.Fatalf("exit status %d: %s", status, stderr.String())
	}
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
	// A slow request every 130 ms and a little, of which 100 ms are waited for.
	if all < 1.5e9 || all > 2.6e9 {
		t.Errorf("slow requests waited %.2f s of 3 s, want 1.5 to 2.6:\n%s", all/1e9, data)
	}
	if database < 0.95*all {
		t.Errorf("%.2f of %.2f s are in query_db:\n%s", database/1e9, all/1e9, data)
	}
}
