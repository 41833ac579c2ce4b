package drop

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/slowray/slowray/lab/netns"
)

// veth gives two network namespaces that are joined: 10.79.0.1 and .2 on eth0.
func veth(t *testing.T) (a, b *os.File) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: network namespaces and BPF need root")
	}
	var err error
	for _, ns := range []**os.File{&a, &b} {
		if *ns, err = netns.New(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { (*ns).Close() })
	}
	ip := func(ns *os.File, args string) {
		t.Helper()
		err := netns.Do(ns, func() error {
			cmd := exec.Command("ip", strings.Fields(args)...)
			cmd.ExtraFiles = []*os.File{b} // fd 3
			out, err := cmd.CombinedOutput()
			if err != nil {
				return fmt.Errorf("ip %s: %w: %s", args, err, out)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	ip(a, "link add eth0 type veth peer name eth0 netns /proc/self/fd/3")
	for n, ns := range []*os.File{a, b} {
		ip(ns, fmt.Sprintf("addr add 10.79.0.%d/30 dev eth0", n+1))
		ip(ns, "link set eth0 up")
		if err := NoOffload(ns, "eth0"); err != nil {
			t.Fatal(err)
		}
	}
	return a, b
}

// connect gives a TCP connection from b to port 80 of a.
func connect(t *testing.T, a, b *os.File) (atA, atB net.Conn) {
	t.Helper()
	const addr = "10.79.0.1:80"
	var l net.Listener
	if err := netns.Do(a, func() (err error) { l, err = net.Listen("tcp", addr); return err }); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := netns.Do(b, func() (err error) { atB, err = net.Dial("tcp", addr); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { atB.Close() })
	atA, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { atA.Close() })
	return atA, atB
}

// retransmitted reads the kernel's own count of the namespace.
func retransmitted(t *testing.T, ns *os.File) (n uint64) {
	t.Helper()
	var data []byte
	if err := netns.Do(ns, func() (err error) { data, err = os.ReadFile("/proc/thread-self/net/snmp"); return err }); err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(data)) {
		if !strings.HasPrefix(line, "Tcp:") {
			continue
		}
		if names == nil {
			names = strings.Fields(line)
			continue
		}
		for i, value := range strings.Fields(line) {
			if names[i] == "RetransSegs" {
				fmt.Sscan(value, &n)
			}
		}
	}
	return n
}

// What the dropper says it lost is what the kernel had to send again. A machine
// that is late has TCP send again what was only slow: then it is done once more.
func TestEveryNth(t *testing.T) {
	const tries = 3
	for try := 1; ; try++ {
		dropped, again := everyNth(t)
		switch {
		case again >= dropped && again <= dropped+dropped/20:
			return
		case again < dropped || try == tries:
			t.Fatalf("%d dropped, %d retransmitted", dropped, again)
		}
	}
}

// everyNth drops every hundredth segment of 20 MB.
func everyNth(t *testing.T) (dropped, again uint64) {
	t.Helper()
	a, b := veth(t)
	d, err := Attach(a, "eth0", Rule{Every: 100, Port: 80, Payload: true})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	atA, atB := connect(t, a, b)
	const total = 20 << 20
	go func() {
		io.CopyN(atB, zeros{}, total)
		atB.Close()
	}()
	if n, err := io.Copy(io.Discard, atA); n != total {
		t.Fatalf("%d bytes, %v", n, err)
	}
	c, err := d.Counters()
	if err != nil {
		t.Fatal(err)
	}
	again = retransmitted(t, b)
	t.Logf("%+v, retransmitted %d", c, again)
	if c.Dropped != c.Matches/100 || c.Dropped < 100 {
		t.Errorf("counted %+v, want every 100th", c)
	}
	return c.Dropped, again
}

func TestByChance(t *testing.T) {
	a, b := veth(t)
	d, err := Attach(a, "eth0", Rule{PPM: 100_000})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const sent = 5000
	var conn net.Conn
	if err := netns.Do(b, func() (err error) { conn, err = net.Dial("udp", "10.79.0.1:9"); return err }); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range sent {
		conn.Write([]byte("x")) // some fail: nobody listens, and the kernel says so
	}
	c, err := d.Counters()
	if err != nil {
		t.Fatal(err)
	}
	if share := float64(c.Dropped) / float64(c.Matches); c.Matches < sent/2 || share < 0.08 || share > 0.12 {
		t.Errorf("%+v: %.3f lost, asked for 0.1", c, share)
	}
}

func TestAttachAndClose(t *testing.T) {
	a, b := veth(t)
	d, err := Attach(a, "eth0", Rule{Every: 1, Port: 81})
	if err != nil {
		t.Fatal(err)
	}
	connect(t, a, b) // another port passes
	if _, err := Attach(a, "eth0", Rule{Every: 1}); err == nil {
		t.Error("two droppers at one device")
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	again, err := Attach(a, "eth0", Rule{PPM: 1})
	if err != nil {
		t.Fatal("after Close: ", err)
	}
	again.Close()
	if _, err := Attach(a, "nowhere", Rule{Every: 1}); err == nil {
		t.Error("no error for a device that there is not")
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
