package server

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// Cache is the memcached behind a web server.
type Cache struct {
	Max int // connections it takes; 0 = 1,024
}

// webMemcached starts a memcached, and the web server that asks it.
func (s *starter) webMemcached() error {
	most := s.v.Cache.Max
	if most == 0 {
		most = 1024
	}
	if err := s.runAt(s.box.Backend, s.v.BackPort, "memcached", "memcached", "-u", "memcache", "-l", s.v.BackendAddr,
		"-p", strconv.Itoa(s.v.BackPort), "-U", "0", "-t", "2", "-c", strconv.Itoa(most)); err != nil {
		return err
	}
	return s.web(&behind{Cache: net.JoinHostPort(s.v.BackendAddr, strconv.Itoa(s.v.BackPort))})
}

// cacheCaller asks for a key in each call, over one of its connections.
type cacheCaller struct{ linePool }

func newCacheCaller(addr string) *cacheCaller { return &cacheCaller{newLinePool(addr)} }

func (c *cacheCaller) call(ctx context.Context) error {
	return c.with(ctx, func(conn *lineConn) error {
		fmt.Fprint(conn, "get booking\r\n")
		said, err := conn.r.ReadString('\n')
		if err == nil && !strings.HasPrefix(said, "END") {
			err = fmt.Errorf("%.100s", said)
		}
		if err != nil {
			return fmt.Errorf("memcached: %w", err)
		}
		return nil
	})
}

// linePool is connections to a server that answers in lines.
type linePool struct {
	addr string
	idle chan *lineConn
}

type lineConn struct {
	net.Conn
	r *bufio.Reader
}

// lineConns is how many connections are kept.
const lineConns = 64

func newLinePool(addr string) linePool {
	return linePool{addr: addr, idle: make(chan *lineConn, lineConns)}
}

// with does something over a connection, which is closed if that fails.
func (p *linePool) with(ctx context.Context, do func(*lineConn) error) error {
	var conn *lineConn
	select {
	case conn = <-p.idle:
	default:
		to, err := (&net.Dialer{Timeout: 20 * time.Second}).DialContext(ctx, "tcp", p.addr)
		if err != nil {
			return err
		}
		conn = &lineConn{to, bufio.NewReader(to)}
	}
	if err := do(conn); err != nil {
		conn.Close()
		return err
	}
	select {
	case p.idle <- conn:
	default:
		conn.Close()
	}
	return nil
}
