// Package accept bounds how many connections a server has at a time.
//
// In: a listener. Out: the same, which holds to a number of connections in all and for
// each address. It never reads or writes a connection.
package accept

import (
	"net"
	"sync"
	"syscall"
)

// Limits are how many connections there may be at a time.
type Limits struct {
	Most int // in all, 1 at least
	// PerHost is how many of one address there may be; more are closed at once. 0 is no
	// limit of its own: of those who come through one proxy all have its address.
	PerHost int
	// Wait leaves more than Most in the kernel's queue until others have ended. Without it
	// they are closed at once, for those who can try elsewhere.
	Wait bool
}

// Within is the listener within its limits.
func Within(l net.Listener, limits Limits) net.Listener {
	return &limited{Listener: l, limits: limits, free: make(chan struct{}, limits.Most), byHost: map[string]int{}}
}

// Share is a part of the descriptors that this process may have, 1/of, and no more than
// most: others of its work need descriptors too.
func Share(of uint64, most int) int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return most
	}
	const least = 4
	return int(max(min(limit.Cur/of, uint64(most)), least))
}

type limited struct {
	net.Listener
	limits Limits
	free   chan struct{} // one for each connection

	mu     sync.Mutex
	byHost map[string]int
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		if l.limits.Wait {
			l.free <- struct{}{}
		}
		c, err := l.Listener.Accept()
		if err != nil {
			if l.limits.Wait {
				<-l.free
			}
			return nil, err
		}
		if !l.limits.Wait {
			select {
			case l.free <- struct{}{}:
			default:
				c.Close()
				continue
			}
		}
		host := hostOf(c.RemoteAddr())
		if l.enter(host) {
			return &counted{Conn: c, l: l, host: host}, nil
		}
		c.Close()
		<-l.free
	}
}

func (l *limited) enter(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limits.PerHost > 0 && l.byHost[host] >= l.limits.PerHost {
		return false
	}
	l.byHost[host]++
	return true
}

func (l *limited) leave(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byHost[host]--; l.byHost[host] == 0 {
		delete(l.byHost, host)
	}
	<-l.free
}

// counted is a connection that gives its place back when it is closed.
type counted struct {
	net.Conn
	l    *limited
	host string
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.l.leave(c.host) })
	return c.Conn.Close()
}

// hostOf is the address without the port.
func hostOf(a net.Addr) string {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.IP.String()
	}
	return ""
}
