package request_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io"
	"net"
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

// told is a stream as the server (testdata/h2tls.py) says that it was. Times are ns of
// CLOCK_MONOTONIC.
type told struct {
	port, id               int
	asked, answered, ended int64
	what                   string
}

// tlsServer is testdata/h2tls.py in a place of a trial.
type tlsServer struct {
	*trial
	place *place
	addr  net.Addr
	mu    sync.Mutex
	log   []told
}

func (tr *trial) tlsServer(mode, version string) *tlsServer {
	tr.t.Helper()
	python, err := exec.LookPath("/usr/bin/python3")
	if err != nil {
		tr.t.Skipf("SKIP: %v: streams under TLS are NOT tested", err)
	}
	certFile, keyFile := writeCertificate(tr, tr.t.TempDir())
	s := &tlsServer{trial: tr, place: tr.place()}
	cmd := exec.Command(python, "testdata/h2tls.py", mode, certFile, keyFile, version)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	tr.must(err)
	tr.must(netns.Do(s.place.ns, cmd.Start))
	lines := bufio.NewScanner(out)
	tr.cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if !lines.Scan() {
		tr.t.Skip("SKIP: Python finds no OpenSSL 3 (see above): streams under TLS are NOT tested")
	}
	port := 0
	_, err = fmt.Sscan(lines.Text(), &port)
	tr.must(err)
	s.addr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}
	go func() {
		for lines.Scan() {
			var x told
			if _, err := fmt.Sscan(lines.Text(), &x.port, &x.id, &x.asked, &x.answered, &x.ended, &x.what); err == nil {
				s.mu.Lock()
				s.log = append(s.log, x)
				s.mu.Unlock()
			}
		}
	}()
	return s
}

// writeCertificate writes a certificate and its key for a server that is no Go program.
func writeCertificate(tr *trial, dir string) (certFile, keyFile string) {
	tr.t.Helper()
	cert := certificate(tr.t)
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	tr.must(err)
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	tr.must(os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), 0o600))
	tr.must(os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))
	return certFile, keyFile
}

// streams is a client of one connection, of which the test writes the frames.
type streams struct {
	*tls.Conn
	port int
	next uint32
	mu   sync.Mutex
	over map[uint32]chan struct{}
}

func (s *tlsServer) dial() *streams {
	s.t.Helper()
	plain := s.dialNet(s.place, s.addr)
	c := &streams{Conn: tls.Client(plain, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}), next: 1, over: map[uint32]chan struct{}{}}
	c.port = plain.LocalAddr().(*net.TCPAddr).Port
	s.must(c.Handshake())
	_, err := c.Write(append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(4, 0, 0, nil)...))
	s.must(err)
	go c.read()
	return c
}

func frame(kind, flags byte, id uint32, payload []byte) []byte {
	n := len(payload)
	head := []byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags}
	return append(binary.BigEndian.AppendUint32(head, id), payload...)
}

// ask begins a stream, and gives what is closed when it is over; see h2tls.py.
func (c *streams) ask(delay time.Duration, what byte) (id uint32, over chan struct{}) {
	id, over = c.next, make(chan struct{})
	c.next += 2
	c.mu.Lock()
	c.over[id] = over
	c.mu.Unlock()
	ms := uint16(delay / time.Millisecond)
	// Padding that nobody reads: of a length of its own, as requests have.
	_, _ = c.Write(frame(1, 5, id, append([]byte{byte(ms >> 8), byte(ms), what}, make([]byte, 20+id%64)...)))
	return id, over
}

func (c *streams) end(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if over := c.over[id]; over != nil {
		close(over)
		delete(c.over, id)
	}
}

func (c *streams) read() {
	in := bufio.NewReader(c)
	for {
		head := make([]byte, 9)
		if _, err := io.ReadFull(in, head); err != nil {
			c.mu.Lock()
			for id, over := range c.over {
				close(over)
				delete(c.over, id)
			}
			c.mu.Unlock()
			return
		}
		if _, err := in.Discard(int(head[0])<<16 | int(head[1])<<8 | int(head[2])); err != nil {
			continue
		}
		if id := binary.BigEndian.Uint32(head[5:]); head[3] == 3 || (head[3] <= 1 && head[4]&1 != 0) {
			c.end(id)
		}
	}
}

// warm has requests overlap until streams are told apart.
func (s *tlsServer) warm() {
	s.t.Helper()
	c := s.dial()
	defer c.Close()
	for deadline := time.Now().Add(15 * time.Second); s.streams.Load() == 0; {
		_, long := c.ask(60*time.Millisecond, 'l')
		for range 3 {
			time.Sleep(10 * time.Millisecond)
			_, over := c.ask(0, 'a')
			<-over
		}
		<-long
		if time.Now().After(deadline) {
			s.t.Fatalf("requests overlap, and none was distinguished")
		}
	}
}

// wall is how far the wall clock is ahead of the monotonic one, ns.
func wall() int64 {
	var m, w unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &m)
	_ = unix.ClockGettime(unix.CLOCK_REALTIME, &w)
	return w.Nano() - m.Nano()
}

// TestStreamsUnderTLS: each stream has a record, at the times at which the server read and
// wrote its frames, however the server uses OpenSSL.
func TestStreamsUnderTLS(t *testing.T) {
	for _, mode := range []string{"direct", "memory"} {
		for _, version := range []string{"1.2", "1.3"} {
			t.Run(mode+" "+version, func(t *testing.T) {
				measure(t, func(tr *trial) { streamsUnderTLS(tr, mode, version) })
			})
		}
	}
}

func streamsUnderTLS(tr *trial, mode, version string) {
	s := tr.tlsServer(mode, version)
	tr.record(request.Options{})
	s.warm()
	const connections, turns = 4, 12
	var clients []*streams
	for range connections {
		c := s.dial()
		defer c.Close()
		clients = append(clients, c)
	}
	// Without a memory of which socket an object has, the first requests tell.
	for range 6 {
		for _, c := range clients {
			_, over := c.ask(0, 'a')
			<-over
			time.Sleep(time.Millisecond)
		}
	}
	time.Sleep(20 * time.Millisecond)
	began := time.Now().UnixNano()
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() {
			for turn := range turns {
				var wait []chan struct{}
				for n, what := range "aabakl" {
					if what == 'k' && version == "1.2" {
						what = 'x'
					}
					_, over := c.ask(time.Duration(5+3*n+i+turn)*time.Millisecond, byte(what))
					wait = append(wait, over)
				}
				for _, over := range wait {
					<-over
				}
			}
		})
	}
	all.Wait()
	time.Sleep(settle)
	tr.finish()

	records := map[[2]int]*observe.Request{}
	for _, r := range tr.of(observe.Served) {
		if r.StartNS < began || r.Flags&observe.FlagUnfinished != 0 {
			continue
		}
		if r.Flags&observe.FlagMultiplexed == 0 {
			tr.errorf("no stream: %s", describe(r, r.StartNS))
			continue
		}
		k := [2]int{int(r.Peer.Port()), int(r.Seq)}
		if records[k] != nil {
			tr.errorf("two records of stream %v", k)
		}
		records[k] = r
	}
	ahead := wall()
	var off [3][]time.Duration
	s.mu.Lock()
	defer s.mu.Unlock()
	streams := 0
	for _, x := range s.log {
		if x.asked+ahead < began {
			continue
		}
		streams++
		r := records[[2]int{x.port, (x.id + 1) / 2}]
		if r == nil {
			tr.errorf("no record of %+v", x)
			continue
		}
		read := r.StartNS - ahead + r.Ledger[observe.Upload] + r.Ledger[observe.RecvWait]
		off[0] = append(off[0], time.Duration(x.asked-read).Abs())
		off[1] = append(off[1], time.Duration(x.answered-x.asked-r.Ledger[observe.Server]).Abs())
		off[2] = append(off[2], time.Duration(x.ended-x.answered-r.Ledger[observe.Unaccounted]).Abs())
		status := map[string]int{"x": 404}[x.what]
		if status == 0 {
			status = 200
		}
		if r.HTTP != status || r.Flags&observe.FlagOverlapped != 0 || r.PID == 0 {
			tr.errorf("HTTP %d, want %d: %s", r.HTTP, status, describe(r, r.StartNS))
		}
	}
	if want := connections * turns * 6; streams != want || len(records) != want {
		tr.errorf("the server had %d streams and %d have a record, want %d", streams, len(records), want)
	}
	for i, what := range []string{"asked", "server", "answer"} {
		if len(off[i]) == 0 {
			continue
		}
		slices.Sort(off[i])
		median, p99 := off[i][len(off[i])/2], off[i][len(off[i])*99/100]
		tr.t.Logf("%s: median %v, p99 %v", what, median, p99)
		if median > medianLimit {
			tr.errorf("%s: median difference %v, p99 %v", what, median, p99)
		}
	}
}

// ready is dial, and as many requests as tell which socket an object of OpenSSL has.
func (s *tlsServer) ready() *streams {
	c := s.dial()
	for range 6 {
		_, over := c.ask(0, 'a')
		<-over
		time.Sleep(time.Millisecond)
	}
	return c
}

// TestStreamsUnderTLSEnd: streams that are reset by either end, whose connection is closed,
// that last, and that nobody reads for a while.
func TestStreamsUnderTLSEnd(t *testing.T) {
	for _, mode := range []string{"direct", "memory"} {
		t.Run(mode, func(t *testing.T) { measure(t, func(tr *trial) { streamsEnd(tr, mode) }) })
	}
}

func streamsEnd(tr *trial, mode string) {
	const short, lasting = 60 * time.Millisecond, 2100 * time.Millisecond
	s := tr.tlsServer(mode, "1.3")
	tr.record(request.Options{})
	s.warm()
	type want struct {
		what         string
		at           *streams
		id           uint32
		flags, never observe.RequestFlags
		total, wait  time.Duration
	}
	var all []want
	resets := s.ready()
	id, over := resets.ask(0, 'n')
	time.Sleep(short)
	_, err := resets.Write(frame(3, 0, id, make([]byte, 4)))
	tr.must(err)
	resets.end(id)
	<-over
	all = append(all, want{"reset by the caller", resets, id, observe.FlagReset | observe.FlagUnanswered, observe.FlagTruncated, short, 0})
	id, over = resets.ask(short, 'r')
	<-over
	all = append(all, want{"reset by the server", resets, id, observe.FlagReset | observe.FlagUnanswered, observe.FlagTruncated, short, 0})

	closed := s.ready()
	id, _ = closed.ask(0, 'n')
	_, over = closed.ask(short, 'c')
	<-over
	all = append(all, want{"closed by the server", closed, id, observe.FlagUnanswered, observe.FlagReset, short, 0})

	gone := s.ready()
	id, _ = gone.ask(2*short, 'l')
	time.Sleep(short)
	gone.Close()
	all = append(all, want{"closed by the caller", gone, id, observe.FlagTruncated, observe.FlagUnanswered, short, 0})

	busy := s.ready()
	_, first := busy.ask(2*short, 's')
	time.Sleep(short)
	id, over = busy.ask(0, 'a')
	<-over
	<-first
	all = append(all, want{"not read for a while", busy, id, 0, observe.FlagUnanswered | observe.FlagReset, short, short})

	long := s.ready()
	id, over = long.ask(lasting, 'l')
	<-over
	all = append(all, want{"long", long, id, 0, observe.FlagUnanswered | observe.FlagReset, lasting, 0})
	time.Sleep(settle)
	tr.finish()

	const exact = 25 * time.Millisecond // of sleeps on a busy machine
	unfinished := 0
	for _, w := range all {
		n := 0
		for _, r := range tr.of(observe.Served) {
			if int(r.Peer.Port()) != w.at.port || r.Seq != (w.id+1)/2 || r.Flags&observe.FlagMultiplexed == 0 {
				continue
			}
			if r.Flags&observe.FlagUnfinished != 0 {
				unfinished++
				continue
			}
			n++
			total, wait := time.Duration(r.TotalNS()), time.Duration(r.Ledger[observe.RecvWait])
			if r.Flags&w.flags != w.flags || r.Flags&w.never != 0 || (r.Status == observe.StatusError) != (w.flags != 0) ||
				(total-w.total).Abs() > exact || (wait-w.wait).Abs() > exact {
				tr.errorf("%s: want %v with %v not read, flags %v, status %v: %s", w.what, w.total, w.wait, w.flags.Names(), r.Status, describe(r, r.StartNS))
			}
		}
		if n != 1 {
			tr.errorf("%s: %d records", w.what, n)
		}
	}
	if unfinished != 1 {
		tr.errorf("%d streams were reported while they lasted, want 1", unfinished)
	}
}

// TestStreamsOfNginx: every stream of nginx and of the client that calls it, also of
// connections that carry a few only.
func TestStreamsOfNginx(t *testing.T) {
	for _, name := range []string{"nginx", "h2load"} {
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
		load := func(connections, requests int) {
			cmd := exec.Command("h2load", "-c", fmt.Sprint(connections), "-m", "5", "-n", fmt.Sprint(requests), "https://127.0.0.1:8443/")
			var out []byte
			tr.must(netns.Do(place.ns, func() (err error) { out, err = cmd.Output(); return err }))
			if !strings.Contains(string(out), fmt.Sprintf(" %d succeeded", requests)) {
				tr.t.Fatalf("%s", out)
			}
		}
		tr.record(request.Options{})
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
		time.Sleep(settle)
		tr.finish()
		for _, side := range []observe.Side{observe.Served, observe.Called} {
			streams := 0
			for _, r := range tr.of(side) {
				switch {
				case r.StartNS < began:
				case r.Flags&observe.FlagMultiplexed == 0 || r.Status != observe.StatusOK || r.HTTP != 200:
					tr.errorf("%s: %s", side, describe(r, r.StartNS))
				default:
					streams++
				}
			}
			if streams != 2100 {
				tr.errorf("%s: %d streams, want 2100", side, streams)
			}
		}
	})
}
