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
	"sync"
	"time"

	"github.com/slowray/slowray/lab/netns"
)

// told is a stream as a server (as testdata/h2tls.py) or a caller says that it was. Times are
// ns of CLOCK_MONOTONIC.
type told struct {
	port, id               int
	asked, answered, ended int64
	what                   string
	first                  int64 // it began; 0 = not said
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
	return tr.startTLS(exec.Command(python, "testdata/h2tls.py", mode, certFile, keyFile, version))
}

// startTLS starts a server that prints its port, and then a line for each stream.
func (tr *trial) startTLS(cmd *exec.Cmd) *tlsServer {
	tr.t.Helper()
	s := &tlsServer{trial: tr, place: tr.place()}
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
		tr.t.Skipf("SKIP: %s does not start (see above): streams under its TLS are NOT tested", cmd)
	}
	port := 0
	_, err = fmt.Sscan(lines.Text(), &port)
	tr.must(err)
	s.addr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}
	go func() {
		for lines.Scan() {
			if x, ok := parseTold(lines.Text()); ok {
				s.mu.Lock()
				s.log = append(s.log, x)
				s.mu.Unlock()
			}
		}
	}()
	return s
}

// writeCertificate writes a certificate and its key for a server that is another process.
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

// warm has requests overlap until streams are distinguished.
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
