package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/fleet/clickhouse"
	"github.com/slowray/slowray/internal/fleet/clickhouse/clickhousetest"
)

// TestRecordToClickHouse: what the real agent counts is what a real ClickHouse has,
// soon after it happened; slowray's own calls to it are not recorded.
func TestRecordToClickHouse(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIP: needs root, to record requests: what ClickHouse gets of a real agent is NOT tested")
	}
	if testing.Short() {
		t.Skip("SKIP: an agent and a ClickHouse take 15 s: NOT tested with -short")
	}
	c := clickhousetest.ForTest(t, clickhousetest.Layout{})
	url := c.URL("agent")
	cfg, err := clickhouse.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	if err := clickhouse.Init(t.Context(), cfg, nil, func(string) {}); err != nil {
		t.Fatal(err)
	}
	ask := func(query string) string {
		t.Helper()
		resp, err := http.Post("http://"+c.Servers[0][0].HTTP+"/", "text/plain", strings.NewReader(query))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s %v", query, text, err)
		}
		return strings.TrimSpace(string(text))
	}
	load := runLoad(t)
	dir := t.TempDir()
	run := startRecorder(t, dir, "--to", url, "--host", "web-1", "--label", "rack=r1", "--own-namespace")
	// How long after its end a second is there.
	var late []time.Duration
	for second := run.began.Unix() + 2; second < run.began.Unix()+7; second++ {
		for end := time.Now().Add(20 * time.Second); ask(fmt.Sprintf("SELECT count() FROM agent.seconds WHERE toUInt32(time) = %d", second)) == "0"; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("nothing of second %d arrives", second)
			}
		}
		late = append(late, time.Since(time.Unix(second+1, 0)))
	}
	from, to := run.began.Unix()+2, run.began.Unix()+6
	got, _ := strconv.ParseUint(ask(fmt.Sprintf("SELECT sum(requests) FROM agent.seconds WHERE side = 'served' AND port = %d AND toUInt32(time) >= %d AND toUInt32(time) < %d", load.port, from, to)), 10, 64)
	_ = run.cmd.Process.Signal(os.Interrupt)
	for e := range run.lines {
		if e.Event != "end" {
			continue
		}
		if len(e.Status.Targets) != 1 || e.Status.Targets[0].Sent == 0 || e.Status.Targets[0].Error != "" {
			t.Errorf("at the end: %+v", e.Status.Targets)
		}
	}
	_ = run.cmd.Wait()
	if here := storedRequests(t, dir, load.port, time.Unix(from, 0), time.Unix(to, 0)); got != here || got == 0 {
		t.Errorf("%d requests there, %d here", got, here)
	}
	if n := ask(fmt.Sprint("SELECT count() FROM agent.seconds WHERE side = 'called' AND pid = ", run.cmd.Process.Pid)); n != "0" {
		t.Errorf("%s seconds of slowray's own calls were recorded", n)
	}
	slices.Sort(late)
	t.Logf("a second was there %s after its end (median of %d; most %s)", late[len(late)/2].Round(time.Millisecond), len(late), late[len(late)-1].Round(time.Millisecond))
}
