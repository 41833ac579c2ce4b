package server

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/slowray/slowray/lab/sandbox"
)

// Transport is what may be wrong between sockets, and settings of the kernel
// that belong to it. The zero value is as the kernel has it.
type Transport struct {
	AbortOnOverflow bool
	SlowStart       string        // tcp_slow_start_after_idle
	HalfOpen        int           // SYNs a second that nobody stands behind
	Forged          bool          // … from any address of the world, not from one
	FloodFor        time.Duration // … for so long; 0 = all the time
	NoCookies       bool          // tcp_syncookies 0, with a queue of 64
	BackDown        bool          // what is behind nginx does not run
	Leak            bool          // Web: it keeps the connections that clients have closed
	Files           uint64        // Web: its limit of open files, which Go raises as far as it may; 0 = that
}

// settings are those of the server's network namespace.
func (t Transport) settings(into map[string]string) {
	if t.AbortOnOverflow {
		into["net.ipv4.tcp_abort_on_overflow"] = "1"
	}
	if t.SlowStart != "" {
		into["net.ipv4.tcp_slow_start_after_idle"] = t.SlowStart
	}
	if t.NoCookies {
		into["net.ipv4.tcp_syncookies"], into["net.ipv4.tcp_max_syn_backlog"] = "0", "64"
		// Of those that it has measured the kernel takes SYNs all the same.
		into["net.ipv4.tcp_no_metrics_save"] = "1"
	}
}

// nobody is an address of the clients' network that no machine has.
const nobody = ClientNet + "77"

// halfOpen has SYNs come from an address that nobody has.
func (s *starter) halfOpen() error {
	t := s.v.Transport
	if t.HalfOpen == 0 {
		return nil
	}
	to, forged := []string{nobody + "/32", "dev", "eth0"}, []string{"--spoof", nobody}
	if t.Forged {
		to, forged = []string{"default", "via", s.v.ClientAddr}, []string{"--rand-source"}
	}
	if _, err := s.box.Server.Output(s.ctx, append([]string{"ip", "route", "replace"}, to...)...); err != nil {
		return err
	}
	if !t.Forged {
		// What comes back to that address is lost there as if it were another machine's.
		if _, err := s.box.Client.Output(s.ctx, "ip", "route", "add", nobody+"/32", "dev", "eth0"); err != nil {
			return err
		}
	}
	long := floodTime
	if t.FloodFor > 0 {
		long = t.FloodFor
	}
	args := append([]string{"timeout", strconv.FormatFloat(long.Seconds(), 'f', -1, 64), "hping3", "--quiet", "--syn"}, forged...)
	_, err := s.box.Client.Start(s.ctx, sandbox.Spec{Args: append(args,
		"--interval", "u"+strconv.Itoa(1e6/t.HalfOpen), "--destport", strconv.Itoa(s.v.FrontPort), s.v.ServerAddr)})
	return err
}

// Quotes is how the service in Python behaves that looks up names and calls
// others by them (programs/quotes.py). The nameservers are dnsmasq, on the
// machine behind and on the service's own.
type Quotes struct {
	Lookup   bool   // it looks up a name for each answer
	Search   string // search domains, and names with fewer than 5 dots are tried there first
	Deaf     bool   // the first of two nameservers takes queries and answers none
	OneByOne bool   // a nameserver of another make, which answers one query after the other
	Buffer   int    // … with a receive buffer of so many bytes; 0 = as the kernel sizes it

	Call     bool          // it calls a service on the machine behind for each answer
	Timeout  time.Duration // … with this time limit; 0 = 5 s
	DeadIPv6 bool          // the name has an IPv6 address too, which leads nowhere

	Syslog bool // it logs to a datagram socket for each answer
	Unread bool // … that nobody reads
}

const (
	quoteName = "prices.shop.example"
	turn      = 200 * time.Microsecond // of a nameserver that answers one by one
	deadIPv6  = "fd5a:77::2"
)

// quotes starts the service in Python, and before it what it needs.
func (s *starter) quotes() error {
	q := s.v.Quotes
	path, err := s.program("quotes.py")
	if err != nil {
		return err
	}
	args := []string{python, path, s.v.ServerAddr, strconv.Itoa(s.v.FrontPort)}
	if q.Timeout > 0 {
		args = append(args, "--timeout", fmt.Sprint(q.Timeout.Seconds()))
	}
	if q.Lookup {
		args = append(args, "--lookup", quoteName)
		if err := s.nameServers(); err != nil {
			return err
		}
	}
	if q.Call {
		args = append(args, "--call", quoteName, "--call-port", strconv.Itoa(s.v.BackPort))
		if err := s.called(); err != nil {
			return err
		}
	}
	if q.Syslog {
		socket := filepath.Join(s.box.Dir, "log")
		args = append(args, "--syslog", socket)
		if err := s.alongside(s.box.Server, "log-daemon", alongsideSpec{Datagrams: socket, Unread: q.Unread}); err != nil {
			return err
		}
		if _, err := s.box.Server.Output(s.ctx, "timeout", "5", "sh", "-c", "until [ -S "+socket+" ]; do sleep 0.02; done"); err != nil {
			return err
		}
	}
	return s.run(s.v.FrontPort, "quotes", args...)
}

// nameServers starts them and has the service's machine ask them: the first one
// on the machine behind, the second one on its own.
func (s *starter) nameServers() error {
	q := s.v.Quotes
	var err error
	if q.OneByOne || q.Deaf {
		var path string
		if path, err = s.program("nameserver.py"); err != nil {
			return err
		}
		answer := fmt.Sprint(turn.Seconds())
		if q.Deaf {
			answer = "never"
		}
		err = s.startNameServer(s.box.Backend, python, path, s.v.BackendAddr, strconv.Itoa(q.Buffer), answer)
	} else {
		err = s.dnsmasq(s.box.Backend, s.v.BackendAddr)
	}
	if err != nil {
		return err
	}
	if err := s.dnsmasq(s.box.Server, "127.0.0.1"); err != nil {
		return err
	}
	conf := "nameserver " + s.v.BackendAddr + "\nnameserver 127.0.0.1\noptions timeout:1 attempts:2\n"
	if q.Search != "" {
		conf += "search " + q.Search + "\noptions ndots:5\n"
	}
	return s.inPlaceOf("/etc/resolv.conf", "resolv.conf", conf)
}

// slowNames starts a nameserver on the service's machine that answers each query by
// itself after so long.
func (s *starter) slowNames(each time.Duration) error {
	path, err := s.program("nameserver.py")
	if err != nil {
		return err
	}
	if err := s.startNameServer(s.box.Server, python, path, "127.0.0.1", "0", fmt.Sprint(each.Seconds()), "at-once"); err != nil {
		return err
	}
	return s.inPlaceOf("/etc/resolv.conf", "resolv.conf", "nameserver 127.0.0.1\n")
}

// dnsmasq knows every name below shop.example, and that nothing is below
// cluster.local.
func (s *starter) dnsmasq(side *sandbox.Side, addr string) error {
	return s.startNameServer(side, "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--bind-interfaces",
		"--listen-address="+addr, "--except-interface=none", "--address=/shop.example/192.0.2.7", "--local=/shop.example/", "--address=/cluster.local/", "--user=root", "--pid-file=")
}

func (s *starter) startNameServer(side *sandbox.Side, args ...string) error {
	out := filepath.Join(s.box.Dir, "names.out")
	if _, err := side.Start(s.ctx, sandbox.Spec{Args: args, Stdout: out, Stderr: out}); err != nil {
		return err
	}
	if _, err := side.Output(s.ctx, "timeout", "5", "sh", "-c", "until ss -Huln sport = :53 | grep -q .; do sleep 0.05; done"); err != nil {
		said, _ := os.ReadFile(out)
		return fmt.Errorf("nameserver: %w: %.300s", err, said)
	}
	return nil
}

// called starts the service on the machine behind. Its name is in the hosts
// file.
func (s *starter) called() error {
	q := s.v.Quotes
	err := s.startWeb(s.box.Backend, "price-service", webSpec{Addr: s.v.BackendAddr, Port: s.v.BackPort, Backlog: s.v.AppBacklog})
	if err != nil {
		return err
	}
	hosts := "127.0.0.1 localhost\n" + s.v.BackendAddr + " " + quoteName + "\n"
	if q.DeadIPv6 {
		hosts += deadIPv6 + " " + quoteName + "\n"
		if _, err := s.box.Server.Output(s.ctx, "ip", "-6", "addr", "add", "fd5a:77::1/64", "dev", "eth1", "nodad"); err != nil {
			return err
		}
	}
	return s.inPlaceOf("/etc/hosts", "hosts", hosts)
}

// inPlaceOf puts a file of the sandbox in the place of one of the system, for
// the sandbox.
func (s *starter) inPlaceOf(system, name, text string) error {
	path, err := s.v.write(name, text)
	if err != nil {
		return err
	}
	_, err = s.box.Server.Output(s.ctx, "mount", "--bind", path, system)
	return err
}

// takeDatagrams binds a datagram socket and reads it, or does not.
func (b *alongsideSpec) takeDatagrams() error {
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: b.Datagrams, Net: "unixgram"})
	if err != nil {
		return err
	}
	if b.Unread {
		time.Sleep(time.Hour)
	}
	for buf := make([]byte, 8192); ; {
		if _, err := conn.Read(buf); err != nil {
			return err
		}
	}
}
