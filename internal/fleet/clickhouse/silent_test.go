package clickhouse

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/fleet/clickhouse/clickhousetest"
)

// A replica that is stopped takes connections and says nothing. Hosts go on with the other
// one meanwhile; when it goes on, each record is there once.
func TestAReplicaThatHangsIsPassedOver(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: a server is stopped for seconds: not with -short")
	}
	const hosts, requests, seconds = 2, 1500, 60
	c := clickhousetest.ForTest(t, clickhousetest.Layout{Replicas: 2})
	url := c.URL("slowray")
	cfg, _ := initAll(t, url, nil)
	stopped := c.Servers[0][0].PID()
	if err := syscall.Kill(stopped, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(stopped, syscall.SIGCONT)
	begun := time.Now()
	lost, had := shipHosts(t, url, hosts, requests, seconds)
	t.Logf("%d sends unclear, of which %d had arrived, in %s", lost, had, time.Since(begun))

	db := New(cfg)
	defer db.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if list, err := db.Hosts(ctx); err != nil || len(list) != 0 {
		t.Errorf("asked while it hangs: %v, %v", list, err)
	}
	if err := syscall.Kill(stopped, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	cl := newClient(cfg)
	// The server has lost its session with the keeper meanwhile, and takes it up again in its
	// own time: seconds, on a busy machine a minute.
	for end := time.Now().Add(90 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		var failed error
		for _, table := range []string{"requests", "seconds", "seconds10", "minutes5"} {
			if err := cl.exec(t.Context(), cfg.Shards[0][0], "slowray", "SYSTEM SYNC REPLICA "+table); err != nil {
				failed = err
			}
		}
		if failed == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(failed)
		}
	}
	counted(t, url, hosts, requests, seconds)
}
