package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
)

// Redis is how the Redis behind a web server keeps what it is reported.
type Redis struct {
	Fsync      string // appendfsync: "everysec", "always"; empty = it keeps no file
	DiskWrites int    // that its disk takes in a second; 0 = as many as it can
	Max        int    // clients it takes; 0 = 10,000
	Keys       int    // that it holds from the beginning
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
	args := []string{"redis-server", "--bind", s.v.BackendAddr, "--port", strconv.Itoa(s.v.BackPort),
		"--protected-mode", "no", "--dir", dir, "--save", "", "--enable-debug-command", "yes"}
	if s.v.Redis.Fsync != "" {
		args = append(args, "--appendonly", "yes", "--appendfsync", s.v.Redis.Fsync)
	}
	if s.v.Redis.Max > 0 {
		args = append(args, "--maxclients", strconv.Itoa(s.v.Redis.Max))
	}
	err := s.runAt(s.box.Backend, s.v.BackPort, "redis", args...)
	s.cgroup = group
	if err != nil {
		return err
	}
	addr := net.JoinHostPort(s.v.BackendAddr, strconv.Itoa(s.v.BackPort))
	if n := s.v.Redis.Keys; n > 0 {
		if _, err := s.box.Backend.Output(s.ctx, "redis-cli", "-h", s.v.BackendAddr, "-p", strconv.Itoa(s.v.BackPort), "debug", "populate", strconv.Itoa(n)); err != nil {
			return err
		}
	}
	if err := s.web(&behind{Redis: addr}); err != nil {
		return err
	}
	if s.v.Report.Every == 0 {
		return nil
	}
	return s.alongside(s.box.Server, "night-report", alongsideSpec{Report: &reportSpec{Report: s.v.Report, Redis: addr}})
}

// redisCaller writes a key in each call, over one of its connections.
type redisCaller struct {
	linePool
	written atomic.Int64
}

func newRedisCaller(addr string) *redisCaller { return &redisCaller{linePool: newLinePool(addr)} }

func (c *redisCaller) call(ctx context.Context) error {
	return c.with(ctx, func(conn *lineConn) error {
		fmt.Fprintf(conn, "SET booking:%d taken\r\n", c.written.Add(1)%10_000)
		said, err := conn.r.ReadString('\n')
		if err == nil && !strings.HasPrefix(said, "+OK") {
			err = fmt.Errorf("%.100s", said)
		}
		if err != nil {
			return fmt.Errorf("redis: %w", err)
		}
		return nil
	})
}

// keys has Redis look at all of its keys.
func (c *redisCaller) keys(ctx context.Context) error {
	return c.with(ctx, func(conn *lineConn) error {
		fmt.Fprint(conn, "KEYS sold-out:*\r\n")
		said, err := conn.r.ReadString('\n')
		for n, _ := strconv.Atoi(strings.Trim(said, "*\r\n")); err == nil && n > 0; n-- {
			if said, err = conn.r.ReadString('\n'); err == nil {
				size, _ := strconv.Atoi(strings.Trim(said, "$\r\n"))
				_, err = io.CopyN(io.Discard, conn.r, int64(size)+2)
			}
		}
		return err
	})
}
