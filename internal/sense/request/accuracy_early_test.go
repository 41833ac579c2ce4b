package request_test

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
	"github.com/slowray/slowray/lab/netns"
)

// earlyNginx answers at two ports, at the first also to early data. Sessions of the one are
// taken by the other.
const earlyNginx = `daemon off; worker_processes 1; pid %[1]s/pid; error_log %[1]s/error;
events {}
http { log_format it '$server_port $ssl_early_data $ssl_session_reused $request_time $status'; access_log %[1]s/log it;
	client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
	ssl_certificate %[2]s; ssl_certificate_key %[3]s; ssl_protocols TLSv1.3; ssl_session_ticket_key %[1]s/ticket;
	server { listen 127.0.0.1:8443 ssl; ssl_early_data on; location / { proxy_pass http://%[4]s; } location /now { return 200 now; } }
	server { listen 127.0.0.1:8444 ssl; location / { proxy_pass http://%[4]s; } }
}`

// TestEarlyData: a request that comes with the ClientHello (0-RTT) is one, at both ends, also
// where it is answered before the handshake is over; one that the server does not take is none, and
// is one when it is said again.
func TestEarlyData(t *testing.T) {
	for _, name := range []string{"nginx", "openssl"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("SKIP: %v (script/setup.sh test): early data of TLS is NOT tested", err)
		}
	}
	for _, c := range []struct {
		name, path string
		port       int
	}{{"taken", "/", 8443}, {"answered at once", "/now", 8443}, {"refused", "/", 8444}} {
		t.Run(c.name, func(t *testing.T) {
			measure(t, func(tr *trial) { early(tr, c.port, c.path) })
		})
	}
}

func early(tr *trial, port int, path string) {
	const requests, work = 5, 30 * time.Millisecond
	const exact = 5 * time.Millisecond // of timers on a busy machine
	dir, place := tr.t.TempDir(), tr.place()
	certFile, keyFile := writeCertificate(tr, dir)
	backend := tr.listenNet(place)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { time.Sleep(work) })}
	go server.Serve(backend)
	tr.cleanup(func() { server.Close() })
	ticket, conf, session, asks := make([]byte, 80), filepath.Join(dir, "conf"), filepath.Join(dir, "session"), filepath.Join(dir, "asks")
	_, _ = rand.Read(ticket)
	ask := "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
	tr.must(os.WriteFile(filepath.Join(dir, "ticket"), ticket, 0o600))
	tr.must(os.WriteFile(asks, []byte(ask), 0o600))
	tr.must(os.WriteFile(conf, fmt.Appendf(nil, earlyNginx, dir, certFile, keyFile, backend.Addr()), 0o600))
	nginx := exec.Command("nginx", "-e", filepath.Join(dir, "error"), "-c", conf)
	tr.must(netns.Do(place.ns, nginx.Start))
	tr.cleanup(func() {
		_ = nginx.Process.Signal(unix.SIGTERM)
		_ = nginx.Wait()
	})
	// openssl says the text when the handshake is over, if there is one, and ends with the server.
	client := func(port int, text string, args ...string) error {
		cmd := exec.Command("timeout", append([]string{"10", "openssl", "s_client", "-connect", fmt.Sprintf("127.0.0.1:%d", port), "-tls1_3", "-ign_eof", "-quiet"}, args...)...)
		cmd.Stdin = strings.NewReader(text)
		var out []byte
		err := netns.Do(place.ns, func() (err error) { out, err = cmd.Output(); return err })
		if err == nil && !strings.Contains(string(out), "HTTP/1.1 200 OK") {
			err = fmt.Errorf("%s answered %q", cmd, out)
		}
		return err
	}
	var err error
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if err = client(8443, ask, "-sess_out", session); err == nil || time.Now().After(deadline) {
			break
		}
	}
	tr.must(err)
	tr.must(os.Truncate(filepath.Join(dir, "log"), 0))
	tr.record(request.Options{})
	for range requests {
		text := ""
		if port == 8444 {
			text = ask
		}
		tr.must(client(port, text, "-sess_in", session, "-early_data", asks))
	}
	time.Sleep(settle)
	tr.finish()
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	tr.must(err)
	lines := strings.Fields(string(log))
	var told []time.Duration // by nginx
	for i := 0; i+5 <= len(lines); i += 5 {
		// It tells of early data only until it has read the end of the handshake.
		if lines[i] != fmt.Sprint(port) || lines[i+2] != "r" || port == 8444 && lines[i+1] != "-" {
			tr.t.Fatalf("nginx says %q, want a session that it took", lines[i:i+5])
		}
		took, err := time.ParseDuration(lines[i+3] + "s")
		tr.must(err)
		told = append(told, took)
	}
	slept := map[string]time.Duration{"/": work}[path]
	for _, side := range []observe.Side{observe.Served, observe.Called} {
		n := 0
		for _, r := range tr.of(side) {
			if r.Local.Port() != uint16(port) && r.Peer.Port() != uint16(port) {
				continue
			}
			if n++; n > len(told) {
				continue
			}
			took, shake := told[n-1], time.Duration(r.Ledger[observe.TLS])
			// nginx counts from its cached time, and until it has logged.
			total, server := time.Duration(r.TotalNS()), time.Duration(r.Ledger[observe.Server])
			if total < slept || total > took+2*exact || server < slept || server > total {
				tr.errorf("%s: %v by a sleep, nginx says %v: %s", side, slept, took, describe(r, r.StartNS))
			}
			if shake <= 0 || shake > exact || (port == 8443) != (shake < 100*time.Microsecond) {
				tr.errorf("%s: %v in the handshake: %s", side, shake, describe(r, r.StartNS))
			}
			if r.Flags&observe.FlagOverlapped != 0 {
				tr.errorf("%s: %s", side, describe(r, r.StartNS))
			}
			if calls := time.Duration(r.Split[observe.ServerCall]); side == observe.Served && path == "/" && r.Followed && (calls < work || calls > took+exact) {
				tr.errorf("%v in the call that takes %v: %s", calls, work, describe(r, r.StartNS))
			}
		}
		if n != requests || len(told) != requests {
			tr.errorf("%s: %d requests, and %d by nginx, want %d", side, n, len(told), requests)
		}
	}
}
