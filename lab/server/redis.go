package server

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Redis is how the Redis behind a web server keeps what it is told.
type Redis struct {
	Fsync      string // appendfsync: "everysec", "always"
	DiskWrites int    // that its disk takes in a second; 0 = as many as it can
}

// webRedis starts a Redis, and the web server that writes into it.
func (s *starter) webRedis() error {
	dir := filepath.Join(s.box.Dir, "redis")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	group := s.cgroup
	if n := s.v.Redis.DiskWrites; n > 0 {
		var err error
		if s.cgroup, err = s.box.SlowDisk(s.ctx, n); err != nil {
			return err
		}
	}
	err := s.runAt(s.box.Backend, s.v.BackPort, "redis", "redis-server", "--bind", s.v.BackendAddr, "--port", strconv.Itoa(s.v.BackPort),
		"--protected-mode", "no", "--dir", dir, "--save", "", "--appendonly", "yes", "--appendfsync", s.v.Redis.Fsync)
	s.cgroup = group
	if err != nil {
		return err
	}
	return s.web(&behind{Redis: net.JoinHostPort(s.v.BackendAddr, strconv.Itoa(s.v.BackPort))})
}

// redisCaller writes a key in each call, over one of its connections.
type redisCaller struct {
	addr string
	idle chan *redisConn
	keys atomic.Int64
}

type redisConn struct {
	net.Conn
	r *bufio.Reader
}

// redisPool is how many connections are kept.
const redisPool = 64

func newRedisCaller(addr string) *redisCaller {
	return &redisCaller{addr: addr, idle: make(chan *redisConn, redisPool)}
}

func (c *redisCaller) call(ctx context.Context) error {
	var conn *redisConn
	select {
	case conn = <-c.idle:
	default:
		to, err := (&net.Dialer{Timeout: 20 * time.Second}).DialContext(ctx, "tcp", c.addr)
		if err != nil {
			return err
		}
		conn = &redisConn{to, bufio.NewReader(to)}
	}
	fmt.Fprintf(conn, "SET booking:%d taken\r\n", c.keys.Add(1)%10_000)
	said, err := conn.r.ReadString('\n')
	if err != nil {
		conn.Close()
		return fmt.Errorf("redis: %w", err)
	}
	select {
	case c.idle <- conn:
	default:
		conn.Close()
	}
	if !strings.HasPrefix(said, "+OK") {
		return fmt.Errorf("redis: %.100s", said)
	}
	return nil
}
