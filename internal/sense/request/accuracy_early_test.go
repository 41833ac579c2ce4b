package request_test

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	server { listen 127.0.0.1:8445 ssl http2; ssl_early_data on; keepalive_requests 3; location / { proxy_pass http://%[4]s; } }
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

// earlyServer is nginx, and what openssl says to it.
type earlyServer struct {
	place                   *place
	dir, session, asks, ask string
	// client has openssl say the text when the handshake is over, if there is one, and ends with the server.
	client func(port int, text string, args ...string) (string, error)
}

const earlyWork = 30 * time.Millisecond

// startEarly starts nginx. ask is what is said early.
func (tr *trial) startEarly(ask string) *earlyServer {
	tr.t.Helper()
	dir, place := tr.t.TempDir(), tr.place()
	certFile, keyFile := writeCertificate(tr, dir)
	backend := tr.listenNet(place)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { time.Sleep(earlyWork) })}
	go server.Serve(backend)
	tr.cleanup(func() { server.Close() })
	ticket, conf := make([]byte, 80), filepath.Join(dir, "conf")
	_, _ = rand.Read(ticket)
	s := &earlyServer{place: place, dir: dir, session: filepath.Join(dir, "session"), asks: filepath.Join(dir, "asks"), ask: ask}
	tr.must(os.WriteFile(filepath.Join(dir, "ticket"), ticket, 0o600))
	tr.must(os.WriteFile(s.asks, []byte(ask), 0o600))
	tr.must(os.WriteFile(conf, fmt.Appendf(nil, earlyNginx, dir, certFile, keyFile, backend.Addr()), 0o600))
	nginx := exec.Command("nginx", "-e", filepath.Join(dir, "error"), "-c", conf)
	tr.must(netns.Do(place.ns, nginx.Start))
	tr.cleanup(func() {
		_ = nginx.Process.Signal(unix.SIGTERM)
		_ = nginx.Wait()
	})
	s.client = func(port int, text string, args ...string) (string, error) {
		cmd := exec.Command("timeout", append([]string{"10", "openssl", "s_client", "-connect", fmt.Sprintf("127.0.0.1:%d", port), "-tls1_3", "-ign_eof", "-quiet"}, args...)...)
		cmd.Stdin = strings.NewReader(text)
		var out []byte
		err := netns.Do(place.ns, func() (err error) { out, err = cmd.Output(); return err })
		return string(out), err
	}
	return s
}

// first has a session from a port, as soon as nginx listens.
func (s *earlyServer) first(tr *trial, port int, args ...string) {
	tr.t.Helper()
	var err error
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if _, err = s.client(port, s.ask, append(args, "-sess_out", s.session)...); err == nil || time.Now().After(deadline) {
			break
		}
	}
	tr.must(err)
	tr.must(os.Truncate(filepath.Join(s.dir, "log"), 0))
}

// log are the lines of nginx' log, of five words each.
func (s *earlyServer) log(tr *trial) []string {
	tr.t.Helper()
	log, err := os.ReadFile(filepath.Join(s.dir, "log"))
	tr.must(err)
	return strings.Fields(string(log))
}

func early(tr *trial, port int, path string) {
	const requests, work = 5, earlyWork
	const exact = 5 * time.Millisecond // of timers on a busy machine
	s := tr.startEarly("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	s.first(tr, 8443)
	tr.record(request.Options{})
	var ran []time.Duration
	for range requests {
		text, start := "", time.Now()
		if port == 8444 {
			text = s.ask
		}
		out, err := s.client(port, text, "-sess_in", s.session, "-early_data", s.asks)
		if tr.must(err); !strings.Contains(out, "HTTP/1.1 200 OK") {
			tr.t.Fatalf("nginx answered %q", out)
		}
		ran = append(ran, time.Since(start))
	}
	time.Sleep(settle)
	tr.finish()
	lines := s.log(tr)
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
			// openssl ran for longer. nginx counts from when it has read.
			total, server := time.Duration(r.TotalNS()), time.Duration(r.Ledger[observe.Server])
			if total > ran[n-1] || server < slept || server+shake > total {
				tr.errorf("%s: %v by a sleep, nginx says %v, openssl ran for %v: %s", side, slept, took, ran[n-1], describe(r, r.StartNS))
			}
			if shake <= 0 || (port == 8443) != (shake < 100*time.Microsecond) {
				tr.errorf("%s: %v in the handshake: %s", side, shake, describe(r, r.StartNS))
			}
			if r.Flags&observe.FlagOverlapped != 0 || r.PID == 0 {
				tr.errorf("%s: process %d: %s", side, r.PID, describe(r, r.StartNS))
			}
			if calls := time.Duration(r.Split[observe.ServerCall]); side == observe.Served && path == "/" && r.Followed && (calls < work-exact || calls > took+exact) {
				tr.errorf("%v in the call that takes %v: %s", calls, work, describe(r, r.StartNS))
			}
		}
		if n != requests || len(told) != requests {
			tr.errorf("%s: %d requests, and %d by nginx, want %d", side, n, len(told), requests)
		}
	}
}

// TestStreamsOfEarlyData: streams of HTTP/2 that come with the ClientHello have records of their own, at both ends.
func TestStreamsOfEarlyData(t *testing.T) {
	for _, name := range []string{"nginx", "openssl"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("SKIP: %v (script/setup.sh test): streams in early data of TLS are NOT tested", err)
		}
	}
	measure(t, func(tr *trial) {
		const connections, streams, port = 5, 3, 8445
		const sending = time.Millisecond                                                  // openssl makes its ClientHello first
		get := append(slices.Clone(hpackGet), append([]byte{0x41, 9}, "localhost"...)...) // :authority
		ask := append([]byte(preface), frame(4, 0, 0, nil)...)
		for i := range streams {
			ask = append(ask, frame(1, 5, uint32(2*i+1), get)...)
		}
		s := tr.startEarly(string(ask))
		s.first(tr, port, "-alpn", "h2")
		keyLog := filepath.Join(s.dir, "keys")
		tr.record(request.Options{})
		call := func() {
			out, err := s.client(port, "", "-alpn", "h2", "-keylogfile", keyLog, "-sess_in", s.session, "-early_data", s.asks)
			if tr.must(err); len(out) < streams*len(frame(1, 4, 1, hpackOK)) {
				tr.t.Fatalf("nginx answered %q", out)
			}
		}
		for deadline := time.Now().Add(15 * time.Second); tr.streams.Load() == 0; {
			if call(); time.Now().After(deadline) {
				tr.t.Fatal("HTTP/2 is spoken in early data, and no stream was distinguished")
			}
		}
		time.Sleep(settle)
		tr.must(os.Truncate(filepath.Join(s.dir, "log"), 0))
		tr.must(os.Truncate(keyLog, 0))
		x := tr.tapWhole(s.place)
		began := time.Now().UnixNano()
		for range connections {
			call()
		}
		time.Sleep(settle)
		tr.finish()
		if lines := s.log(tr); len(lines) != 5*connections*streams || lines[2] != "r" || lines[4] != "200" {
			tr.t.Fatalf("nginx says %q", lines)
		}
		wire := tr.decrypted(x, keyLog)
		for _, w := range wire {
			if !w.first.early {
				tr.t.Fatalf("openssl did not ask early: %+v", *w)
			}
		}
		for _, side := range []observe.Side{observe.Served, observe.Called} {
			n := 0
			for _, r := range tr.of(side) {
				at := r.Local.Port()
				if side == observe.Called {
					at = r.Peer.Port()
				}
				if r.StartNS < began || at != port {
					continue
				}
				n++
				server := time.Duration(r.Ledger[observe.Server])
				if r.Flags&observe.FlagMultiplexed == 0 || r.HTTP != 200 || r.Seq > streams || server < earlyWork || time.Duration(r.Ledger[observe.TLS]) > time.Millisecond {
					tr.errorf("%s: %s", side, describe(r, r.StartNS))
				}
			}
			if same := tr.sameAsDecrypted(side, wire, began, sending); n != connections*streams || same != n {
				tr.errorf("%s: %d streams, %d in packets, want %d", side, n, same, connections*streams)
			}
		}
	})
}
