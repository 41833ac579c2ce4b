package nat

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// space is a network namespace, of a process that sleeps in it.
type space struct {
	t   *testing.T
	pid int
	ns  *host.NetNS
}

func newSpace(t *testing.T) *space {
	t.Helper()
	cmd := exec.Command("unshare", "--net", "sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Skip("SKIPPED: ", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid)); err == nil && ns != own {
			break
		}
		if time.Now().After(end) {
			t.Skip("SKIPPED: cannot make a network namespace")
		}
	}
	ns, err := host.Default().OpenNetNS(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return &space{t, cmd.Process.Pid, ns}
}

// run runs a shell script in the namespace.
func (s *space) run(script string) {
	s.t.Helper()
	out, err := exec.Command("nsenter", "-t", fmt.Sprint(s.pid), "-n", "sh", "-ec", script).CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s: %v: %s", script, err, out)
	}
}

// answer listens at an address, and gives the ends of what it accepts, as it knows them.
func (s *space) answer(addr string) <-chan net.Conn {
	s.t.Helper()
	var l net.Listener
	if err := s.ns.Do(func() (err error) { l, err = net.Listen("tcp", addr); return err }); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { l.Close() })
	accepted := make(chan net.Conn, 64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	return accepted
}

// call is a request that has just ended, on a new connection from the namespace.
func (s *space) call(to string) *observe.Request {
	s.t.Helper()
	var c net.Conn
	if err := s.ns.Do(func() (err error) { c, err = net.Dial("tcp", to); return err }); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return &observe.Request{Side: observe.Called, StartNS: time.Now().UnixNano(), NetNS: s.ns.Inode(),
		Local: c.LocalAddr().(*net.TCPAddr).AddrPort(), Peer: netip.MustParseAddrPort(to)}
}

func need(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs root")
	}
	for _, tool := range []string{"ip", "nft", "unshare", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("SKIPPED: ", err)
		}
	}
}

// know waits until the table knows who tracks connections.
func know(t *testing.T, table *Table, r *observe.Request) {
	t.Helper()
	table.Destination(r)
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		table.mu.Lock()
		looked := table.looked
		table.mu.Unlock()
		if looked {
			return
		}
		if time.Now().After(end) {
			t.Fatal("nobody was found in a minute")
		}
	}
}

// TestBehindService: the calls of a pod go to the address of a service, which its node
// leads to either of two pods. The truth is the sockets that accepted.
func TestBehindService(t *testing.T) {
	need(t)
	client, node, server := newSpace(t), newSpace(t), newSpace(t)
	for i, s := range []*space{client, server} {
		n := i + 1
		node.run(fmt.Sprintf(`ip link set lo up; ip link add v%[1]d type veth peer name e0 netns %[2]d
			ip addr add 10.7.%[1]d.1/24 dev v%[1]d; ip addr add fd07:%[1]d::1/64 dev v%[1]d nodad; ip link set v%[1]d up
			sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1`, n, s.pid))
		s.run(fmt.Sprintf(`ip link set lo up; ip addr add 10.7.%[1]d.2/24 dev e0; ip addr add 10.7.%[1]d.3/24 dev e0
			ip addr add fd07:%[1]d::2/64 dev e0 nodad; ip link set e0 up; ip route add default via 10.7.%[1]d.1; ip route add default via fd07:%[1]d::1`, n))
	}
	node.run(`nft -f - <<-EOF
		table ip nat { chain pre { type nat hook prerouting priority -100;
			ip daddr 10.96.0.7 tcp dport 80 dnat to numgen inc mod 2 map { 0: 10.7.2.2, 1: 10.7.2.3 }:8080
		}
		}
		table ip6 nat { chain pre { type nat hook prerouting priority -100;
			ip6 daddr fd96::7 tcp dport 80 dnat to [fd07:2::2]:8080
		}
		}
	EOF`)
	accepted := server.answer(":8080")
	table := New(host.Default())
	defer table.Close()
	know(t, table, client.call("10.96.0.7:80"))
	(<-accepted).Close()

	met := map[netip.AddrPort]bool{}
	for _, to := range []string{"10.96.0.7:80", "10.96.0.7:80", "[fd96::7]:80"} {
		r := client.call(to)
		c := <-accepted
		defer c.Close()
		want := c.LocalAddr().(*net.TCPAddr).AddrPort()
		want = netip.AddrPortFrom(want.Addr().Unmap(), want.Port())
		met[want] = true
		if got := table.Destination(r); got != want {
			t.Errorf("calls to %s go to %s, which the server says is %s", to, got, want)
		}
	}
	if len(met) != 3 {
		t.Errorf("the calls went to %v: that tests too little", met)
	}
	direct := client.call("10.7.2.2:8080")
	<-accepted
	if got := table.Destination(direct); got.IsValid() {
		t.Errorf("calls to 10.7.2.2:8080 are said to go to %s", got)
	}
	old := client.call("10.96.0.7:80")
	<-accepted
	if old.StartNS -= int64(2 * fresh); table.Destination(old).IsValid() {
		t.Error("an old request is answered for: its address and port may be another connection's by now")
	}
	old.StartNS, old.Side = time.Now().UnixNano(), observe.Served
	if table.Destination(old).IsValid() {
		t.Error("a served request goes somewhere")
	}
}

// TestRedirectedInside: a proxy next to a program gets what the program calls.
func TestRedirectedInside(t *testing.T) {
	need(t)
	s := newSpace(t)
	s.run(`ip link set lo up; ip link add d0 type veth peer name d1; ip link set d1 up; ip addr add 10.7.3.1/24 dev d0; ip link set d0 up
		nft -f - <<-EOF
			table ip nat { chain out { type nat hook output priority -100; ip daddr 10.96.0.0/16 tcp dport 80 redirect to :15001
		}
		}
		EOF`)
	s.run("ip route add 10.96.0.0/16 dev d0")
	accepted := s.answer(":15001")
	table := New(host.Default())
	defer table.Close()
	r := s.call("10.96.0.9:80")
	know(t, table, r)
	<-accepted
	if got := table.Destination(r); !got.Addr().IsLoopback() || got.Port() != 15001 {
		t.Errorf("the calls go to %s, not to the proxy", got)
	}
}

// TestBudget: however much is called, few look-ups are made in a second.
func TestBudget(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	table := New(host.Default())
	asked := 0
	for range 10 * perSecond {
		if table.may(now) {
			asked++
		}
	}
	if asked != perSecond {
		t.Errorf("%d look-ups in a second, not %d", asked, perSecond)
	}
	if !table.may(now.Add(time.Second)) {
		t.Error("none in the next second")
	}
}

// Nothing is asked where that would make the kernel load a module.
func TestLoadsNoModule(t *testing.T) {
	for modules, want := range map[string]bool{
		"": true,
		"nf_conntrack 200704 3 xt_conntrack,nf_nat,xt_MASQUERADE, Live 0x0\n":                    false,
		"veth 1 0 - Live 0x0\nnf_conntrack 200704 1 nf_conntrack_netlink, Live 0x0\n":            false,
		"nf_conntrack_netlink 65536 0 - Live 0x0\nnf_conntrack 200704 1 nf_conntrack_netlink,\n": true,
		"veth 1 0 - Live 0x0\n": true,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(dir+"/modules", []byte(modules), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := New(host.FS{Proc: dir}).answers(); got != want {
			t.Errorf("%q: asks %v", strings.TrimSpace(modules), got)
		}
	}
}

// FuzzAnsweredBy: whatever the kernel says, an address is whole or none.
func FuzzAnsweredBy(f *testing.F) {
	f.Add(question(netip.MustParseAddrPort("10.0.0.1:5"), netip.MustParseAddrPort("10.0.0.2:80")))
	f.Fuzz(func(t *testing.T, b []byte) {
		if a := answeredBy(b); a.IsValid() && a.Addr().Is4In6() {
			t.Errorf("%s", a)
		}
	})
}
