package request_test

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
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
	"github.com/slowray/slowray/lab/capture"
	"github.com/slowray/slowray/lab/netns"
)

// Streams under TLS against the packets that carried them, decrypted with the keys that the calling
// program wrote: neither end's word is needed, nor slowray's.

// moment is when a frame passed: it left one end, and came to the other.
type moment struct {
	left, came int64
	early      bool // in early data
}

// wireStream is a stream in decrypted packets.
type wireStream struct {
	port, id                     int
	first, asked, answered, over moment // HEADERS, the request's last frame, HEADERS, the last frame
	in, out                      uint64 // bytes of the bodies, of the request and of the answer
	reset                        string // who did, caller or server
}

// tapWhole captures a place's loopback from now to finish, whole packets.
func (tr *trial) tapWhole(p *place) *tap {
	tr.t.Helper()
	c, err := capture.Start(capture.Options{NetNS: p.ns, Interface: "lo", Snap: 1 << 17, RingBytes: 64 << 20})
	tr.must(err)
	x := &tap{capture: c, name: "lo"}
	tr.taps = append(tr.taps, x)
	return x
}

// decrypted are the streams of a capture, by the caller's port and number.
func (tr *trial) decrypted(x *tap, keyLog string) map[[2]int]*wireStream {
	tr.t.Helper()
	file, err := os.Open(keyLog)
	tr.must(err)
	defer file.Close()
	keys, err := capture.ReadKeys(file)
	tr.must(err)
	sessions, err := capture.Decrypt(x.packets, keys)
	tr.must(err)
	all := map[[2]int]*wireStream{}
	for _, s := range sessions {
		port := int(s.Client.Port())
		// The asking end's frames first: an answer belongs to what was asked.
		frames(s.Asks, len(preface), func(kind, flags byte, id, size int, at moment) {
			x := all[[2]int{port, id}]
			if x == nil && kind == 1 {
				x = &wireStream{port: port, id: id, first: at}
				all[[2]int{port, id}] = x
			}
			switch {
			case x == nil:
			case kind == 3:
				x.reset, x.over = "caller", at
			case kind <= 1:
				if kind == 0 {
					x.in += uint64(size)
				}
				if flags&1 != 0 {
					x.asked = at
				}
			}
		})
		frames(s.Answers, 0, func(kind, flags byte, id, size int, at moment) {
			x := all[[2]int{port, id}]
			if x == nil || x.reset == "caller" && at.left > x.over.came {
				return
			}
			switch {
			case kind == 3 && x.over.left == 0:
				x.reset, x.over = "server", at
			case kind <= 1:
				if kind == 0 {
					x.out += uint64(size)
				} else if x.answered.left == 0 {
					x.answered = at
				}
				if flags&1 != 0 {
					x.reset, x.over = "", at
				}
			}
		})
	}
	return all
}

// frames goes through those of one direction, RFC 9113 section 4.1. A record is read when all of it is there.
func frames(records []capture.Record, skip int, f func(kind, flags byte, id, size int, at moment)) {
	const header = 9
	var head []byte
	left, at := skip, moment{}
	for _, r := range records {
		for b := r.Clear; len(b) > 0 || left == 0 && len(head) == header; {
			if len(head) == header && left == 0 {
				at.came = r.Came
				size := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
				f(head[3], head[4], int(binary.BigEndian.Uint32(head[5:])&(1<<31-1)), size, at)
				head = head[:0]
				continue
			}
			if len(head) < header && left == 0 {
				if len(head) == 0 {
					at.left, at.early = r.Left, r.Early
				}
				n := min(header-len(head), len(b))
				head, b = append(head, b[:n]...), b[n:]
				if len(head) == header {
					left = int(head[0])<<16 | int(head[1])<<8 | int(head[2])
				}
				continue
			}
			n := min(left, len(b))
			left, b = left-n, b[n:]
		}
	}
}

// at are the moments of a stream at one end: HEADERS, the last frame of the request, or where the answer begins
// before that, HEADERS of the answer, and its end; 0 = none.
func (x *wireStream) at(side observe.Side) (all [4]int64) {
	caller := x.reset == "caller"
	for i, m := range []struct {
		moment
		sent bool
	}{{x.first, side == observe.Called}, {x.asked, side == observe.Called}, {x.answered, side == observe.Served}, {x.over, (side == observe.Called) == caller}} {
		if all[i] = m.came; m.sent {
			all[i] = m.left
		}
	}
	if all[2] != 0 && (all[1] == 0 || all[2] < all[1]) {
		all[1] = all[2]
	}
	return all
}

// sameAsDecrypted checks that each stream in packets has one record of a side, at its times but for medianLimit at
// the median and with its bytes, and gives how many there were. What an end sends is written, encrypted and
// sent: the record has when it is written, and sending says how long the rest may take at the median.
func (tr *trial) sameAsDecrypted(side observe.Side, wire map[[2]int]*wireStream, began int64, sending time.Duration) int {
	tr.t.Helper()
	var off [4][]int64
	seen, ports := map[[2]int]bool{}, map[int]bool{}
	for k := range wire {
		ports[k[0]] = true
	}
	for _, r := range tr.of(side) {
		port := int(r.Peer.Port())
		if side == observe.Called {
			port = int(r.Local.Port())
		}
		k := [2]int{port, 2*int(r.Seq) - 1}
		x := wire[k]
		switch {
		case r.Flags&observe.FlagUnfinished != 0 || r.StartNS < began && x == nil || r.Flags&observe.FlagMultiplexed == 0 && !ports[port]:
			continue // those of another protocol are no streams
		case r.Flags&observe.FlagMultiplexed == 0 && x != nil && int(r.Seq) <= settings:
			continue // SETTINGS, before the socket is known (docs/http2.md)
		case r.Flags&observe.FlagMultiplexed == 0:
			tr.errorf("%s: no stream: %s", side, describe(r, r.StartNS))
			continue
		case x == nil:
			tr.errorf("%s: a record, and no stream: %s", side, describe(r, r.StartNS))
			continue
		case seen[k]:
			tr.errorf("%s: two records of stream %v", side, k)
		}
		seen[k] = true
		in, out := r.BytesIn, r.BytesOut
		if side == observe.Called {
			in, out = out, in
		}
		if (in != x.in || out != x.out) && x.reset == "" || (r.Flags&observe.FlagReset != 0) != (x.reset != "") {
			tr.errorf("%s: %+v in packets: %s", side, *x, describe(r, r.StartNS))
		}
		begins, asked, answer, end := moments(r)
		if side == observe.Served {
			asked -= r.Ledger[observe.RecvWait] // all of it is there
		}
		for i, record := range []int64{begins, asked, answer, end} {
			if packet := x.at(side)[i]; packet != 0 && (i != 2 || r.FirstByte != 0) {
				off[i] = append(off[i], record-packet)
			}
		}
	}
	for k, x := range wire {
		if !seen[k] && x.first.left >= began {
			tr.errorf("%s: no record of %+v", side, *x)
		}
	}
	for i, what := range []string{"begins", "last byte asked", "first byte of the answer", "last byte of the answer"} {
		slices.SortFunc(off[i], func(a, b int64) int { return cmp.Compare(abs(a), abs(b)) })
		n := len(off[i])
		if n == 0 {
			tr.errorf("%s: %s: of no stream", side, what)
			continue
		}
		median, p99 := time.Duration(off[i][n/2]), time.Duration(off[i][n*99/100])
		tr.t.Logf("%s: %-24s of %4d streams: off by %8v at the median, %9v at p99", side, what, n, median, p99)
		limit := medianLimit
		if (i < 2) == (side == observe.Called) {
			limit = sending
		}
		if median.Abs() > limit {
			tr.errorf("%s: %s: off by %v at the median of %d streams (limit %v)", side, what, median, n, limit)
		}
	}
	return len(seen)
}

// TestStreamsOfKeys: streams of Go's and OpenSSL's TLS, also such as last, overlap and are reset, have the times and
// bytes of the decrypted packets at either end.
func TestStreamsOfKeys(t *testing.T) {
	for _, version := range []string{"1.2", "1.3"} {
		t.Run("Go "+version, func(t *testing.T) {
			measure(t, func(tr *trial) { keysOfGo(tr, version) })
		})
		t.Run("OpenSSL "+version, func(t *testing.T) {
			for _, name := range []string{"nginx", "h2load", "curl"} {
				if _, err := exec.LookPath(name); err != nil {
					t.Skipf("SKIP: %v (script/setup.sh test): streams of OpenSSL are NOT held against decrypted packets", err)
				}
			}
			measure(t, func(tr *trial) { keysOfNginx(tr, version) })
		})
	}
}

func keysOfGo(tr *trial, version string) {
	program := filepath.Join(tr.t.TempDir(), "grpctls")
	if out, err := exec.Command("go", "build", "-ldflags", "-s -w", "-o", program, "./testdata/grpctls").CombinedOutput(); err != nil {
		tr.t.Skipf("SKIP: %v: streams of gRPC under TLS are NOT tested: %s", err, out)
	}
	cert, key := writeCertificate(tr, tr.t.TempDir())
	s := tr.startTLS(exec.Command(program, "serve", cert, key))
	keyLog := filepath.Join(tr.t.TempDir(), "keys")
	caller := func(args ...string) *exec.Cmd {
		cmd := exec.Command(program, append([]string{"call", fmt.Sprint(s.addr.(*net.TCPAddr).Port)}, args...)...)
		cmd.Env = append(os.Environ(), "SSLKEYLOGFILE="+keyLog)
		return cmd
	}
	tr.record(request.Options{})
	for deadline := time.Now().Add(3 * time.Minute); tr.streams.Load() == 0; {
		s.call(caller("1", "4", "3"))
		if time.Now().After(deadline) {
			tr.t.Fatalf("gRPC under TLS, and no stream was distinguished: %v", tr.recorder.Stats().Missing)
		}
	}
	time.Sleep(2 * settle)
	x := tr.tapWhole(s.place)
	began := time.Now().UnixNano()
	const connections, atOnce, turns = 3, 14, 5
	s.call(caller(fmt.Sprint(connections), fmt.Sprint(atOnce), fmt.Sprint(turns), "long", version))
	time.Sleep(settle)
	tr.finish()
	wire := tr.decrypted(x, keyLog)
	for _, side := range []observe.Side{observe.Served, observe.Called} {
		if n := tr.sameAsDecrypted(side, wire, began, medianLimit); n != connections*(atOnce*turns+3) {
			tr.errorf("%s: %d streams, want %d", side, n, connections*(atOnce*turns+3))
		}
	}
}

func keysOfNginx(tr *trial, version string) {
	dir, place := tr.t.TempDir(), tr.place()
	certFile, keyFile := writeCertificate(tr, dir)
	const config = `daemon off; worker_processes 2; pid %[1]s/pid; error_log %[1]s/error;
events {}
user root;
http { access_log off; keepalive_requests 1000000; client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s;
	uwsgi_temp_path %[1]s; scgi_temp_path %[1]s; root %[1]s;
	server { listen 127.0.0.1:8443 ssl http2; ssl_certificate %[2]s; ssl_certificate_key %[3]s; ssl_protocols TLSv%[4]s;
		location / { return 200 "hello"; } location /big { } location /long { limit_rate 40k; } } }`
	tr.must(os.WriteFile(filepath.Join(dir, "big"), make([]byte, 50_000), 0o644))
	tr.must(os.WriteFile(filepath.Join(dir, "long"), make([]byte, 100_000), 0o644))
	tr.must(os.Chmod(dir, 0o755))
	file := filepath.Join(dir, "conf")
	tr.must(os.WriteFile(file, fmt.Appendf(nil, config, dir, certFile, keyFile, version), 0o600))
	nginx := exec.Command("nginx", "-e", filepath.Join(dir, "error"), "-c", file)
	tr.must(netns.Do(place.ns, nginx.Start))
	tr.cleanup(func() {
		_ = nginx.Process.Signal(unix.SIGTERM)
		_ = nginx.Wait()
	})
	keyLog := filepath.Join(dir, "keys")
	run := func(name string, args ...string) (string, error) {
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), "SSLKEYLOGFILE="+keyLog)
		var out []byte
		err := netns.Do(place.ns, func() (err error) { out, err = cmd.Output(); return err })
		return string(out), err
	}
	load := func(connections, requests int, path string) {
		out, err := run("h2load", "-c", fmt.Sprint(connections), "-m", "5", "-n", fmt.Sprint(requests), "https://127.0.0.1:8443"+path)
		if tr.must(err); !strings.Contains(out, fmt.Sprintf(" %d succeeded", requests)) {
			tr.t.Fatalf("%s", out)
		}
	}
	tr.record(request.Options{})
	for deadline := time.Now().Add(15 * time.Second); tr.streams.Load() == 0; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			tr.t.Fatal("nginx speaks HTTP/2, and none was distinguished")
		}
		load(1, 5, "/")
	}
	time.Sleep(settle)
	x := tr.tapWhole(place)
	began := time.Now().UnixNano()
	load(4, 400, "/")
	load(3, 60, "/big")
	// One lasts, while others come and go; the caller gives another one up.
	const host, none = "https://127.0.0.1:8443", "/dev/null"
	_, err := run("curl", "-sk", "--http2", "--parallel", "-o", none, host+"/long", "-o", none, host+"/?[1-50]",
		"--next", "-sk", "--http2", "-m", "0.5", "-o", none, host+"/long?given-up")
	const timedOut = 28 // curl(1)
	if e := (*exec.ExitError)(nil); !errors.As(err, &e) || e.ExitCode() != timedOut {
		tr.t.Fatalf("curl: %v", err)
	}
	time.Sleep(settle)
	tr.finish()
	wire := tr.decrypted(x, keyLog)
	const sending = 2 * medianLimit // of OpenSSL, with the probes, on CPUs that are all busy
	for _, side := range []observe.Side{observe.Served, observe.Called} {
		if n := tr.sameAsDecrypted(side, wire, began, sending); n != 512 {
			tr.errorf("%s: %d streams, want 512", side, n)
		}
	}
}
