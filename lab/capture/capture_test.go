package capture

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/slowray/slowray/lab/netns"
)

// inNamespace runs f on a thread in a new network namespace with lo up.
func inNamespace(t *testing.T, f func() error) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIP: needs root, for a network namespace and a packet socket: nothing of the live capture is tested")
	}
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	if err := netns.Do(ns, f); err != nil {
		t.Fatal(err)
	}
}

// pair opens a connection on loopback.
func pair(addr string) (client, server *net.TCPConn, err error) {
	l, err := net.Listen("tcp", net.JoinHostPort(addr, "0"))
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	c, err := net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr))
	if err != nil {
		return nil, nil, err
	}
	s, err := l.Accept()
	if err != nil {
		return nil, nil, err
	}
	return c, s.(*net.TCPConn), nil
}

// rounds has a connection do n requests of in bytes, answered with out bytes.
func rounds(client, server *net.TCPConn, n, in, out int) error {
	request, response := make([]byte, in), make([]byte, out)
	for range n {
		if _, err := client.Write(request); err != nil {
			return err
		}
		if err := readFull(server, request); err != nil {
			return err
		}
		if _, err := server.Write(response); err != nil {
			return err
		}
		if err := readFull(client, response); err != nil {
			return err
		}
	}
	return nil
}

func readFull(c *net.TCPConn, b []byte) error {
	for len(b) > 0 {
		n, err := c.Read(b)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// TestCaptureAndCut: known numbers of requests on loopback, as fast as they
// go, and exactly those are found.
func TestCaptureAndCut(t *testing.T) {
	const n, in, out = 20_000, 100, 200
	for _, addr := range []string{"127.0.0.1", "::1"} {
		t.Run(addr, func(t *testing.T) {
			inNamespace(t, func() error {
				c, err := Start(Options{Interface: "lo"})
				if err != nil {
					return err
				}
				before := time.Now().UnixNano()
				client, server, err := pair(addr)
				if err != nil {
					return err
				}
				if err := rounds(client, server, n, in, out); err != nil {
					return err
				}
				took := time.Now().UnixNano() - before
				client.Close()
				server.Close()
				packets, err := c.Stop()
				if err != nil {
					return err
				}
				t.Logf("%d packets in %.2f s", len(packets), float64(took)/1e9)
				for _, end := range []End{Serving, Calling} {
					checkRounds(t, Cut(packets, end), client.LocalAddr(), server.LocalAddr(), n, in, out, before, before+took)
				}
				return nil
			})
		})
	}
}

func checkRounds(t *testing.T, list []*Connection, client, server net.Addr, n int, in, out, from, to int64) {
	t.Helper()
	if len(list) != 1 {
		t.Fatalf("%d connections, want 1", len(list))
	}
	c := list[0]
	if c.Client != netip.MustParseAddrPort(client.String()) || c.Server != netip.MustParseAddrPort(server.String()) {
		t.Errorf("connection %s → %s, want %s → %s", c.Client, c.Server, client, server)
	}
	if len(c.Requests) != n {
		t.Fatalf("%d requests, want %d", len(c.Requests), n)
	}
	for i := range c.Requests {
		r := &c.Requests[i]
		if r.BytesIn != in || r.BytesOut != out || r.Retrans != 0 || r.Overlapped {
			t.Fatalf("request %d: %+v", i, *r)
		}
		if r.First < from || r.Last < r.First || r.FirstOut < r.Last || r.LastOut < r.FirstOut || r.Acked < r.LastOut || r.LastOut > to {
			t.Fatalf("request %d of %d to %d: %+v", i, from, to, *r)
		}
	}
}

// TestCaptureLargeResponse: super-frames, and more bytes than sequence numbers
// below the sign.
func TestCaptureLargeResponse(t *testing.T) {
	inNamespace(t, func() error {
		c, err := Start(Options{Interface: "lo"})
		if err != nil {
			return err
		}
		client, server, err := pair("127.0.0.1")
		if err != nil {
			return err
		}
		const size, times = 1 << 20, 100
		sent := make(chan error, 1)
		go func() {
			request := make([]byte, 10)
			err := readFull(server, request)
			for range times {
				if err == nil {
					_, err = server.Write(make([]byte, size))
				}
			}
			sent <- err
		}()
		if _, err := client.Write(make([]byte, 10)); err != nil {
			return err
		}
		for range times {
			if err := readFull(client, make([]byte, size)); err != nil {
				return err
			}
		}
		if err := <-sent; err != nil {
			return err
		}
		packets, err := c.Stop()
		if err != nil {
			return err
		}
		list := Cut(packets, Serving)
		if len(list) != 1 || len(list[0].Requests) != 1 {
			t.Fatalf("%d connections: %+v", len(list), list)
		}
		if r := list[0].Requests[0]; r.BytesIn != 10 || r.BytesOut != size*times || r.Acked == 0 {
			t.Errorf("%+v", r)
		}
		return nil
	})
}

// TestCaptureTellsDrops: a ring that is too small is an error, never silence.
func TestCaptureTellsDrops(t *testing.T) {
	inNamespace(t, func() error {
		c, err := Start(Options{Interface: "lo", RingBytes: 1}) // the least: two blocks
		if err != nil {
			return err
		}
		c.stop.Store(true)
		<-c.reader // nobody reads the ring any more
		client, server, err := pair("127.0.0.1")
		if err != nil {
			return err
		}
		if err := rounds(client, server, 5000, 10, 10); err != nil {
			return err
		}
		if _, err := c.Stop(); err == nil {
			t.Error("no error, though the ring was not read")
		}
		return nil
	})
}

// TestSave: the file has the pcap header and every packet.
func TestSave(t *testing.T) {
	inNamespace(t, func() error {
		c, err := Start(Options{Interface: "lo"})
		if err != nil {
			return err
		}
		client, server, err := pair("127.0.0.1")
		if err != nil {
			return err
		}
		if err := rounds(client, server, 3, 10, 10); err != nil {
			return err
		}
		packets, err := c.Stop()
		if err != nil {
			return err
		}
		path := filepath.Join(t.TempDir(), "x.pcap")
		if err := c.Save(path); err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		found := 0
		for at := 24; at < len(b); found++ {
			length := int(binary.LittleEndian.Uint32(b[at+8:]))
			p, err := parse(b[at+32:at+16+length], int(binary.LittleEndian.Uint32(b[at+12:]))-16)
			if err != nil || p.Seq != packets[found].Seq || p.Len != packets[found].Len {
				t.Fatalf("packet %d: %v, %v, want %v", found, err, p, packets[found])
			}
			at += 16 + length
		}
		if found != len(packets) || found < 18 {
			t.Errorf("%d packets in the file, %d captured", found, len(packets))
		}
		return nil
	})
}

func TestParse(t *testing.T) {
	for name, test := range map[string]struct {
		bytes  []byte
		length int
		want   error
	}{
		"empty":         {nil, 0, errNotTCP},
		"other version": {make([]byte, 40), 40, errNotTCP},
		"UDP":           {append([]byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17}, make([]byte, 18)...), 28, errNotTCP},
		"fragment":      {append([]byte{0x45, 0, 0, 60, 0, 0, 0, 9, 64, 6}, make([]byte, 50)...), 60, errNotTCP},
		"cut":           {append([]byte{0x45, 0, 0, 60, 0, 0, 0, 0, 64, 6}, make([]byte, 20)...), 60, errShort},
		"IPv6 cut":      {append([]byte{0x60, 0, 0, 0, 0, 20, 6}, make([]byte, 20)...), 60, errShort},
	} {
		if _, err := parse(test.bytes, test.length); err != test.want {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}

// FuzzParse: no input makes the parser read out of bounds or count backwards.
func FuzzParse(f *testing.F) {
	tcp := make([]byte, 60)
	copy(tcp, []byte{0x45, 0, 0, 60, 0, 0, 0, 0, 64, 6})
	tcp[32] = 10 << 4
	f.Add(tcp, 60)
	f.Fuzz(func(t *testing.T, b []byte, length int) {
		if p, err := parse(b, length); err == nil && p.Len < 0 {
			t.Errorf("%d bytes of payload", p.Len)
		}
	})
}
