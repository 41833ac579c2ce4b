package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/lab/netns"
)

var (
	addrA  = netip.MustParsePrefix("10.78.0.1/30")
	addrB  = netip.MustParsePrefix("10.78.0.2/30")
	addr6A = netip.MustParsePrefix("fd78::1/64")
	addr6B = netip.MustParsePrefix("fd78::2/64")
)

// pair is a link between two network namespaces of its own.
type pair struct {
	*Link
	a, b *os.File
}

func openPair(t *testing.T, cfg Config) pair {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: network namespaces and TUN devices need root")
	}
	var p pair
	var err error
	for _, ns := range []**os.File{&p.a, &p.b} {
		if *ns, err = netns.New(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { (*ns).Close() })
	}
	cfg.A.NetNS, cfg.B.NetNS = p.a, p.b
	if cfg.A.Addrs == nil {
		cfg.A.Addrs, cfg.B.Addrs = []netip.Prefix{addrA}, []netip.Prefix{addrB}
	}
	if p.Link, err = Open(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// udp opens a socket in each namespace: that of b sends to the one of a.
func (p pair) udp(t *testing.T, a netip.Addr) (atA, atB *net.UDPConn) {
	t.Helper()
	err := netns.Do(p.a, func() (err error) {
		atA, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 0)))
		return err
	})
	if err == nil {
		t.Cleanup(func() { atA.Close() })
		err = netns.Do(p.b, func() (err error) {
			atB, err = net.DialUDP("udp", nil, atA.LocalAddr().(*net.UDPAddr))
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { atB.Close() })
	atA.SetReadBuffer(8 << 20)
	return atA, atB
}

// tcp opens a connection from b to port 80 of a.
func (p pair) tcp(t *testing.T) (atA, atB net.Conn) {
	t.Helper()
	at := netip.AddrPortFrom(addrA.Addr(), 80).String()
	var l net.Listener
	err := netns.Do(p.a, func() (err error) { l, err = net.Listen("tcp", at); return err })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := netns.Do(p.b, func() (err error) { atB, err = net.Dial("tcp", at); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { atB.Close() })
	if atA, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { atA.Close() })
	return atA, atB
}

// roundTrips sends n packets to an echo in this process and returns how long each
// was on its way, there and back: from each sender's system call to the time at which
// the receiver's kernel has it (SO_TIMESTAMPNS, socket(7)). How late this process is
// woken for it, on a machine at rest up to a tick (4 ms), is not the link's doing.
func roundTrips(t *testing.T, p pair, a netip.Addr, n int, pause time.Duration) []time.Duration {
	t.Helper()
	atA, atB := p.udp(t, a)
	stampPackets(t, atA)
	stampPackets(t, atB)
	arrived, sent := make(chan time.Time, 1), make(chan time.Time, 1)
	go func() {
		buf := make([]byte, 100)
		for {
			n, at, from, err := readStamped(atA, buf)
			if err != nil {
				close(arrived)
				return
			}
			arrived <- at
			sent <- time.Now()
			atA.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
	var took []time.Duration
	buf := make([]byte, 100)
	for range n {
		start := time.Now()
		atB.SetDeadline(start.Add(time.Second))
		if _, err := atB.Write([]byte("ping")); err != nil {
			t.Fatal(err)
		}
		_, back, _, err := readStamped(atB, buf)
		if err != nil {
			t.Fatal(err)
		}
		there, again := <-arrived, <-sent
		took = append(took, there.Sub(start)+back.Sub(again))
		time.Sleep(pause)
	}
	slices.Sort(took)
	return took
}

func stampPackets(t *testing.T, c *net.UDPConn) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	})
	if err = errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
}

// readStamped reads a packet, and when the kernel got it.
func readStamped(c *net.UDPConn, buf []byte) (n int, at time.Time, from netip.AddrPort, err error) {
	extra := make([]byte, unix.CmsgSpace(16))
	n, m, _, from, err := c.ReadMsgUDPAddrPort(buf, extra)
	if err != nil {
		return 0, at, from, err
	}
	messages, err := unix.ParseSocketControlMessage(extra[:m])
	if err != nil || len(messages) != 1 || messages[0].Header.Type != unix.SCM_TIMESTAMPNS {
		return 0, at, from, fmt.Errorf("no time with the packet: %v", err)
	}
	o := binary.NativeEndian
	data := messages[0].Data
	return n, time.Unix(int64(o.Uint64(data)), int64(o.Uint64(data[8:]))), from, nil
}

func TestDelay(t *testing.T) {
	for _, tt := range []struct {
		name       string
		there, and Settings
		addr       netip.Addr
		want       time.Duration
	}{
		{"none", Settings{}, Settings{}, addrA.Addr(), 0},
		{"one way", Settings{Delay: 17 * time.Millisecond}, Settings{}, addrA.Addr(), 17 * time.Millisecond},
		{"both ways", Settings{Delay: 5 * time.Millisecond}, Settings{Delay: 5 * time.Millisecond}, addrA.Addr(), 10 * time.Millisecond},
		{"IPv6", Settings{Delay: 7 * time.Millisecond}, Settings{}, addr6A.Addr(), 7 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := Config{AtoB: tt.there, BtoA: tt.and}
			if tt.addr.Is6() {
				cfg.A.Addrs, cfg.B.Addrs = []netip.Prefix{addr6A}, []netip.Prefix{addr6B}
			}
			p := openPair(t, cfg)
			took := roundTrips(t, p, tt.addr, 50, time.Millisecond)
			// Never too early; a quarter of them late by no more than what two
			// wake-ups of the link take on a machine that others use.
			if took[0] < tt.want || took[12] > tt.want+time.Millisecond {
				t.Errorf("round trips from %v, lower quartile %v, want %v", took[0], took[12], tt.want)
			}
			c := p.Counters(BtoA)
			if late := c.LateQuantile(0.5); late > time.Millisecond {
				t.Errorf("packets leave the link late by %v at the median", late)
			}
			t.Logf("min %v median %v; on the way late by %v at the median, %v at p99, %v at most",
				took[0], took[25], c.LateQuantile(0.5), c.LateQuantile(0.99), c.LateMax)
		})
	}
}

func TestJitterKeepsOrder(t *testing.T) {
	p := openPair(t, Config{BtoA: Settings{Delay: 5 * time.Millisecond, Jitter: 4 * time.Millisecond}, Seed: 3})
	got := p.flood(t, 300, 100*time.Microsecond)
	if !slices.IsSorted(got) || len(got) != 300 {
		t.Errorf("%d of 300 arrived; in order: %v", len(got), slices.IsSorted(got))
	}
}

// flood sends numbered packets from b to a and gives the numbers that arrived.
func (p pair) flood(t *testing.T, n int, pause time.Duration) []uint32 {
	t.Helper()
	atA, atB := p.udp(t, addrA.Addr())
	before := p.Counters(BtoA)
	for i := range n {
		var buf [4]byte
		binary.BigEndian.PutUint32(buf[:], uint32(i))
		if _, err := atB.Write(buf[:]); err != nil {
			t.Fatal(err)
		}
		if pause > 0 && i%10 == 0 {
			time.Sleep(10 * pause)
		}
	}
	for range 500 { // until all are through
		c := p.Counters(BtoA).Sub(before)
		if c.Received == uint64(n) && c.Received == c.Sent+c.Lost+c.Picked+c.TailDropped {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	var got []uint32
	buf := make([]byte, 100)
	for {
		atA.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if _, err := atA.Read(buf); err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
			return got
		}
		got = append(got, binary.BigEndian.Uint32(buf))
	}
}

// What is lost is counted to the packet, and a seed loses the same ones again.
func TestLoss(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	const sent, share = 5000, 0.03
	var first []uint32
	for range 2 {
		p := openPair(t, Config{BtoA: Settings{Loss: share}, Seed: 42})
		got := p.flood(t, sent, 20*time.Microsecond)
		c := p.Counters(BtoA)
		if c.Received != sent || int(c.Sent) != len(got) || c.Lost != sent-uint64(len(got)) || c.Overrun != 0 {
			t.Errorf("%d of %d arrived, counted %+v", len(got), sent, c)
		}
		if rate := c.LossRate(); rate < share*0.75 || rate > share*1.25 {
			t.Errorf("lost %.2f %%, asked for 3 %%", 100*rate)
		}
		if first != nil && !slices.Equal(first, got) {
			t.Error("the same seed lost other packets")
		}
		first = got
	}
}

func TestRateAndQueue(t *testing.T) {
	// 32-byte packets: 4 bytes, UDP and IP header. 25,600 bit/s are 100/s.
	p := openPair(t, Config{BtoA: Settings{Rate: 32 * 8 * 100, Queue: 10}})
	start := time.Now()
	got := p.flood(t, 40, 0)
	c := p.Counters(BtoA)
	if took := time.Since(start); took < 90*time.Millisecond || took > time.Second {
		t.Errorf("it took %v to send 10 packets at 100 a second", took)
	}
	// One is being sent while ten wait.
	if len(got) < 10 || len(got) > 12 || int(c.TailDropped) != 40-len(got) {
		t.Errorf("%d of 40 arrived, counted %+v", len(got), c)
	}
}

func TestThroughput(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	p := openPair(t, Config{})
	atA, atB := p.tcp(t)
	const total = 200 << 20
	go func() {
		io.CopyN(atB, zeros{}, total)
		atB.Close()
	}()
	start := time.Now()
	n, err := io.Copy(io.Discard, atA)
	if err != nil || n != total {
		t.Fatalf("%d bytes, %v", n, err)
	}
	rate := float64(n) / time.Since(start).Seconds() / 1e6
	c := p.Counters(BtoA)
	t.Logf("%.0f MB/s, %.0f packets/s", rate, float64(c.Received)/time.Since(start).Seconds())
	if rate < 20 {
		t.Errorf("%.0f MB/s", rate)
	}
	if c.Lost+c.TailDropped+c.Refused != 0 {
		t.Errorf("a perfect link lost packets: %+v", c)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// One lost response, and the time until TCP retransmits it.
func TestPick(t *testing.T) {
	p := openPair(t, Config{})
	atA, atB := p.tcp(t)
	go func() {
		buf := make([]byte, 100)
		for {
			n, err := atA.Read(buf)
			if err != nil {
				return
			}
			atA.Write(buf[:n])
		}
	}()
	p.Pick(AtoB, &Pick{Port: 80, Every: 5, Times: 2})
	var slow []int
	buf := make([]byte, 100)
	for n := range 20 {
		start := time.Now()
		fmt.Fprint(atB, "ask")
		if _, err := atB.Read(buf); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 190*time.Millisecond {
			slow = append(slow, n)
		}
	}
	// The second one comes a packet earlier: the first one's retransmission counts.
	if !slices.Equal(slow, []int{4, 8}) || p.Counters(AtoB).Picked != 2 || p.Counters(BtoA).Picked != 0 {
		t.Errorf("slow were %v, counted %+v", slow, p.Counters(AtoB))
	}
}

func TestPickSYN(t *testing.T) {
	p := openPair(t, Config{})
	p.Pick(BtoA, &Pick{SYN: true, Times: 1})
	start := time.Now()
	p.tcp(t)
	if took := time.Since(start); took < 900*time.Millisecond {
		t.Errorf("connected after %v without the first SYN", took)
	}
}

func TestSetWhileRunning(t *testing.T) {
	p := openPair(t, Config{})
	p.Set(BtoA, Settings{Delay: 20 * time.Millisecond})
	if took := roundTrips(t, p, addrA.Addr(), 3, 0); took[0] < 20*time.Millisecond {
		t.Errorf("round trips %v", took)
	}
	p.Set(BtoA, Settings{})
	p.Set(AtoB, Settings{Loss: 1})
	p.flood(t, 10, 0)
	if c := p.Counters(BtoA); c.Lost != 0 {
		t.Errorf("the other direction loses: %+v", c)
	}
}

func TestOpenFails(t *testing.T) {
	p := openPair(t, Config{})
	for _, cfg := range []Config{
		{A: End{NetNS: p.a}, B: End{NetNS: p.b}}, // the names are taken
		{A: End{NetNS: p.a, Name: "x"}},
		{A: End{NetNS: p.a, Name: "a-name-of-17-char"}, B: End{NetNS: p.b}},
		{MTU: 9000},
	} {
		if l, err := Open(cfg); err == nil {
			l.Close()
			t.Errorf("%+v: no error", cfg)
		}
	}
}

func TestCloseRemovesDevices(t *testing.T) {
	p := openPair(t, Config{})
	has := func() bool {
		err := netns.Do(p.a, func() error { _, err := net.InterfaceByName(defaultName); return err })
		return err == nil
	}
	if !has() {
		t.Fatal("no device")
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if has() {
		t.Error("the device is left")
	}
}
