package clickhousetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Layout is how many servers there are to be.
type Layout struct {
	Shards   int // default 1
	Replicas int // of each shard, default 1; more need a ZooKeeper, which is then started too
	// Tidy servers remove parts that were merged after seconds and not minutes: each has some
	// 150 files, and a host's batch makes three.
	Tidy bool
}

// ClusterName is what the servers call the cluster of all of them.
const ClusterName = "slowray"

// Cluster is running servers.
type Cluster struct {
	Servers [][]*Server // by shard and replica
	keeper  *process
}

// ErrMissing says that a program is not installed.
var ErrMissing = errors.New("not installed: run script/setup.sh test")

// Start starts servers with their data below dir, and waits until they answer.
// Close ends them.
func Start(ctx context.Context, dir string, l Layout) (*Cluster, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	l.Shards, l.Replicas = max(l.Shards, 1), max(l.Replicas, 1)
	c := &Cluster{}
	fail := func(err error) (*Cluster, error) {
		c.Close()
		return nil, err
	}
	zookeeper := 0
	if l.Replicas > 1 {
		if c.keeper, zookeeper, err = startZooKeeper(ctx, filepath.Join(dir, "zookeeper")); err != nil {
			return fail(err)
		}
	}
	for s := range l.Shards {
		var replicas []*Server
		for r := range l.Replicas {
			srv, err := newServer(filepath.Join(dir, fmt.Sprintf("shard%d-replica%d", s+1, r+1)), s+1, r+1)
			if err != nil {
				return fail(err)
			}
			replicas = append(replicas, srv)
		}
		c.Servers = append(c.Servers, replicas)
	}
	for srv := range c.all {
		if err := srv.configure(c, zookeeper, l.Tidy); err != nil {
			return fail(err)
		}
		if err := srv.begin(); err != nil {
			return fail(err)
		}
	}
	for srv := range c.all {
		if err := srv.wait(ctx); err != nil {
			return fail(err)
		}
	}
	return c, nil
}

func (c *Cluster) all(yield func(*Server) bool) {
	for _, replicas := range c.Servers {
		for _, s := range replicas {
			if !yield(s) {
				return
			}
		}
	}
}

// URL is where slowray fleet init and slowray record --to find a database.
func (c *Cluster) URL(database string) string {
	var shards []string
	for _, replicas := range c.Servers {
		var hosts []string
		for _, s := range replicas {
			hosts = append(hosts, s.HTTP)
		}
		shards = append(shards, strings.Join(hosts, "|"))
	}
	return "clickhouse://" + strings.Join(shards, ",") + "/" + database + "?cluster=" + ClusterName
}

// Close kills all servers.
func (c *Cluster) Close() {
	for s := range c.all {
		s.Kill()
	}
	if c.keeper != nil {
		c.keeper.kill()
	}
}

// ForTest is Start for the length of a test, which is skipped where a program is
// missing.
func ForTest(tb testing.TB, l Layout) *Cluster {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	c, err := Start(ctx, tempDir(tb), l)
	if errors.Is(err, ErrMissing) {
		tb.Skip("SKIP: " + err.Error())
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

// tempDir is a directory that is removed after the servers are killed, whatever
// they leave in it.
func tempDir(tb testing.TB) string {
	dir, err := os.MkdirTemp("", "clickhousetest-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
