package request_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
	"github.com/slowray/slowray/lab/netns"
)

// TestStreamsOfNginx: every stream of nginx and of the clients that call it, also of
// connections that carry a few only, with its label and trace.
func TestStreamsOfNginx(t *testing.T) {
	for _, name := range []string{"nginx", "h2load", "curl"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("SKIP: %v (script/setup.sh test): streams of nginx under TLS are NOT tested", err)
		}
	}
	measure(t, func(tr *trial) {
		dir, place := tr.t.TempDir(), tr.place()
		certFile, keyFile := writeCertificate(tr, dir)
		const config = `daemon off; worker_processes 2; pid %[1]s/pid; error_log %[1]s/error;
events {}
http { access_log %[1]s/log; keepalive_requests 1000000; client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s;
	uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
	server { listen 127.0.0.1:8443 ssl http2; ssl_certificate %[2]s; ssl_certificate_key %[3]s; location / { return 200 "hello"; } } }`
		file := filepath.Join(dir, "conf")
		tr.must(os.WriteFile(file, fmt.Appendf(nil, config, dir, certFile, keyFile), 0o600))
		nginx := exec.Command("nginx", "-e", filepath.Join(dir, "error"), "-c", file)
		tr.must(netns.Do(place.ns, nginx.Start))
		tr.cleanup(func() {
			_ = nginx.Process.Signal(unix.SIGTERM)
			_ = nginx.Wait()
		})
		const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
		trace, _ := observe.ParseTraceparent(parent)
		load := func(connections, requests int) {
			cmd := exec.Command("h2load", "-c", fmt.Sprint(connections), "-m", "5", "-n", fmt.Sprint(requests), "-H", "traceparent: "+parent, "https://127.0.0.1:8443/")
			var out []byte
			tr.must(netns.Do(place.ns, func() (err error) { out, err = cmd.Output(); return err }))
			if !strings.Contains(string(out), fmt.Sprintf(" %d succeeded", requests)) {
				tr.t.Fatalf("%s", out)
			}
		}
		tr.record(request.Options{Labels: true})
		for deadline := time.Now().Add(15 * time.Second); tr.streams.Load() == 0; time.Sleep(100 * time.Millisecond) {
			if time.Now().After(deadline) {
				tr.t.Fatal("nginx speaks HTTP/2, and none was distinguished")
			}
			load(1, 5)
		}
		time.Sleep(settle)
		began := time.Now().UnixNano()
		load(4, 2000)
		load(20, 100)
		curl := exec.Command("curl", "-sSk", "--http2", "--parallel", "--parallel-max", "5", "-H", "traceparent: "+parent, "-o", "/dev/null", "https://127.0.0.1:8443/?[1-200]")
		tr.must(netns.Do(place.ns, curl.Run))
		time.Sleep(settle)
		tr.finish()
		for _, side := range []observe.Side{observe.Served, observe.Called} {
			streams := 0
			for _, r := range tr.of(side) {
				switch {
				case r.StartNS < began:
				case r.Flags&observe.FlagMultiplexed == 0 || r.Status != observe.StatusOK || r.HTTP != 200,
					r.Label != "GET /" || r.Trace != trace:
					tr.errorf("%s: %s", side, describe(r, r.StartNS))
				case (r.Ledger[observe.TLS] > 0) != (r.Seq == 1): // the handshake is a part of the connection's first request
					tr.errorf("%s: request %d of its connection has a handshake of %v", side, r.Seq, time.Duration(r.Ledger[observe.TLS]))
				default:
					streams++
				}
			}
			if streams != 2300 {
				tr.errorf("%s: %d streams, want 2300", side, streams)
			}
		}
	})
}

// TestStreamsOfCallers: callers that open a connection for each request, of a server whose
// TLS cannot be watched. They ask before they read anything.
func TestStreamsOfCallers(t *testing.T) {
	if _, err := exec.LookPath("h2load"); err != nil {
		t.Skipf("SKIP: %v (script/setup.sh test): streams of callers under TLS are NOT tested", err)
	}
	measure(t, func(tr *trial) {
		const connections, each, work = 30, 2, 10 * time.Millisecond
		place := tr.place()
		l := tr.listenNet(place)
		var mutex sync.Mutex
		var worked []int64 // how long that really took
		server := &http.Server{
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate(t)}},
			Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				start := time.Now()
				time.Sleep(work)
				mutex.Lock()
				defer mutex.Unlock()
				worked = append(worked, int64(time.Since(start)))
			}),
		}
		go server.ServeTLS(l, "", "")
		tr.cleanup(func() { server.Close() })
		load := func(connections, requests int, log string) {
			cmd := exec.Command("h2load", "-c", fmt.Sprint(connections), "-m", "2", "-n", fmt.Sprint(requests), "--log-file="+log, "https://"+l.Addr().String()+"/")
			tr.must(netns.Do(place.ns, cmd.Run))
		}
		tr.record(request.Options{})
		for deadline := time.Now().Add(15 * time.Second); tr.streams.Load() == 0; time.Sleep(100 * time.Millisecond) {
			if time.Now().After(deadline) {
				tr.t.Fatal("a caller speaks HTTP/2, and none was distinguished")
			}
			load(1, 100, os.DevNull)
		}
		time.Sleep(settle)
		began := time.Now().UnixNano()
		mutex.Lock()
		worked = nil
		mutex.Unlock()
		log := filepath.Join(t.TempDir(), "log")
		load(connections, connections*each, log)
		time.Sleep(settle)
		tr.finish()
		var took, waited []int64
		for _, r := range tr.of(observe.Called) {
			if r.StartNS < began {
				continue
			}
			took = append(took, r.TotalNS()-r.Ledger[observe.TLS])
			if r.Flags&observe.FlagMultiplexed == 0 || r.HTTP != 200 || r.Local.Port() == 0 || r.Peer.String() != l.Addr().String() {
				tr.errorf("%s", describe(r, r.StartNS))
			}
		}
		lines, err := os.ReadFile(log) // start, status and how long the caller waited, µs
		tr.must(err)
		for line := range strings.Lines(string(lines)) {
			var start, status, us int64
			_, err := fmt.Sscan(line, &start, &status, &us)
			tr.must(err)
			waited = append(waited, 1000*(us+1))
		}
		mutex.Lock()
		defer mutex.Unlock()
		const streams = connections * each
		if len(took) != streams || len(worked) != streams || len(waited) != streams {
			tr.errorf("%d streams, %d were worked on and %d waited for, want %d", len(took), len(worked), len(waited), streams)
			return
		}
		// A stream lasts from what was worked on it to what its caller waited: so does the
		// shortest, and the one after it.
		slices.Sort(took)
		slices.Sort(worked)
		slices.Sort(waited)
		for i := range took {
			if took[i] < worked[i] || took[i] > waited[i] {
				tr.errorf("a stream takes %d ns, its server worked for %d and its caller waited for %d", took[i], worked[i], waited[i])
			}
		}
	})
}
