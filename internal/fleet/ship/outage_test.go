package ship

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/fleet/clickhouse"
	"github.com/slowray/slowray/internal/fleet/clickhouse/clickhousetest"
)

// largeOutage, when set, has TestHourOfOutage record as much as eight hosts do in an
// hour; otherwise it is as much as three do in ten minutes.
const largeOutage = "SLOWRAY_OUTAGE"

// mostMemory is what an agent may have taken at most, bytes, whatever waits: the buffers
// of its stores and of its streams, and what the runtime adds.
const mostMemory = 400 << 20

// An hour without the engine, in less: two real shards are away for all that some hosts
// record in it. The agent is killed meanwhile, twice; when the shards are back one of them
// is killed while they catch up, and the agent too. In the end each record that was durable
// is there once, in order; of the host that may keep less than that, all but the oldest,
// and how many it gave up is counted and told.
func TestHourOfOutage(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: an outage of real ClickHouse servers takes 15 s: NOT tested with -short")
	}
	p := plan{Histories: 3, Requests: 50, Endpoints: 3, Tick: time.Millisecond, Ticks: 200, Sync: 10, Segment: time.Second, Buffer: 1 << 20}
	if os.Getenv(largeOutage) != "" {
		p = plan{Histories: 9, Requests: 80, Endpoints: 10, Tick: time.Millisecond, Ticks: 1200, Sync: 20, Segment: 2 * time.Second, Buffer: 8 << 20}
	}
	const lives = 3
	p.First = time.Now().Unix() - int64(lives*p.Ticks)
	c := clickhousetest.ForTest(t, clickhousetest.Layout{Shards: 2})
	url := c.URL("outage")
	cfg, err := clickhouse.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	if err := clickhouse.Init(t.Context(), cfg, nil, func(string) {}); err != nil {
		t.Fatal(err)
	}
	one, two := c.Servers[0][0], c.Servers[1][0]
	one.Kill()
	two.Kill()
	begun := time.Now()
	a := &agent{t: t, dir: t.TempDir(), to: url, plan: p}
	var disk, memory int64
	for life := range lives {
		a.plan.First = p.First + int64(life*p.Ticks)
		a.start()
		if line := <-a.lines; line != "recorded" {
			t.Fatalf("the agent says %q", line)
		}
		// What is too much is given up in the first run of its bound after it was written.
		buffer := filepath.Join(a.home(p.Histories-1), shipDir)
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			if disk = bytesIn(t, buffer); disk <= p.Buffer || time.Now().After(end) {
				break
			}
		}
		if disk > p.Buffer {
			t.Errorf("life %d: %d bytes wait where %d may", life, disk, p.Buffer)
		}
		memory = max(memory, peakMemory(t, a.cmd.Process.Pid))
		a.kill()
	}
	var waits int64
	for i := range p.Histories {
		waits += bytesIn(t, filepath.Join(a.home(i), shipDir))
	}
	outage := time.Since(begun)

	// Back again: it catches up, and is disturbed.
	a.plan.First, a.plan.Ticks = p.First+int64(lives*p.Ticks), 20
	a.start()
	back := time.Now()
	restartAll(t, one, two)
	rows := func(s *clickhousetest.Server) int {
		n, _ := strconv.Atoi(ask(t, s.HTTP, "SELECT count() FROM outage.requests_local")[0])
		return n
	}
	for end := time.Now().Add(time.Minute); rows(two) == 0 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	early := rows(two)
	two.Kill()
	time.Sleep(100 * time.Millisecond)
	memory = max(memory, peakMemory(t, a.cmd.Process.Pid))
	a.kill()
	a.plan.First += 20
	a.start()
	restartAll(t, two)
	if line := <-a.lines; line != "recorded" {
		t.Fatalf("the agent says %q", line)
	}
	watched := make(chan int64)
	go func(pid int) {
		var most int64
		for {
			n, err := memoryOf(pid)
			if err != nil {
				watched <- most
				return
			}
			most = max(most, n)
			time.Sleep(20 * time.Millisecond)
		}
	}(a.cmd.Process.Pid)
	said := a.finish()
	memory = max(memory, <-watched)
	t.Log(said)
	caught := time.Since(back)

	total, lost := 0, 0
	for i := range p.Histories {
		here, there := recorded(t, a.home(i)), a.arrived(one, "outage", i)
		total += len(here.requests) + here.seconds
		if i == p.Histories-1 {
			lost = checkGivenUp(t, here, there, said)
			continue
		}
		if !slices.Equal(there.requests, here.requests) {
			t.Errorf("history %d: %d requests are there, %d here, and they are not the same in the same order", i, len(there.requests), len(here.requests))
		}
		if there.inSeconds != here.inSeconds || there.seconds != here.seconds {
			t.Errorf("history %d: %d seconds with %d requests there, %d with %d here", i, there.seconds, there.inSeconds, here.seconds, here.inSeconds)
		}
	}
	// Each start of the agent says again what it gives up.
	if !strings.Contains(a.said.String(), "gave up ") || !strings.Contains(a.said.String(), "(--to-buffer)") {
		t.Errorf("that records were given up is not told:\n%s", a.said.String())
	}
	if memory > mostMemory {
		t.Errorf("the agent took %d MB of memory, want %d at most", memory>>20, mostMemory>>20)
	}
	if early == 0 {
		t.Error("the second shard took nothing before it was killed: that was not tested")
	}
	t.Logf("%d records of %d histories; %d MB waited after %s; the agent had %d MB of memory at most; all was there %s after the servers began; %d were given up; the shard that was killed had %d requests",
		total, p.Histories, waits>>20, outage.Round(time.Second), memory>>20, caught.Round(time.Second/10), lost, early)
}

// restartAll starts servers that were killed.
func restartAll(t *testing.T, servers ...*clickhousetest.Server) {
	t.Helper()
	var all sync.WaitGroup
	for _, s := range servers {
		all.Go(func() {
			if err := s.Restart(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

var gaveUpCount = regexp.MustCompile(`GaveUp:(\d+)`)

// checkGivenUp says whether what is missing are the oldest, and as many as the agent
// says that it gave up.
func checkGivenUp(t *testing.T, here, there content, said string) (lost int) {
	t.Helper()
	lost = len(here.requests) - len(there.requests)
	if lost <= 0 || len(there.requests) == 0 {
		t.Errorf("%d requests of %d are there, of the history that has little room", len(there.requests), len(here.requests))
		return 0
	}
	if !slices.Equal(there.requests, here.requests[lost:]) {
		t.Error("what is there of the history that has little room are not its newest, in order")
	}
	lost += here.seconds - there.seconds
	var counts []string
	for _, m := range gaveUpCount.FindAllStringSubmatch(said, -1) {
		counts = append(counts, m[1])
	}
	if len(counts) == 0 || counts[len(counts)-1] != strconv.Itoa(lost) {
		t.Errorf("given up are %s, by history; of the last one %d are missing", counts, lost)
		return lost
	}
	for _, n := range counts[:len(counts)-1] {
		if n != "0" {
			t.Errorf("given up are %s, by history, also where there is room", counts)
		}
	}
	return lost
}

// bytesIn is how many bytes the files below a directory have.
func bytesIn(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return ignoreGone(err)
		}
		info, err := d.Info()
		if err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return ignoreGone(err)
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// ignoreGone: what is sent or given up goes while it is looked at.
func ignoreGone(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

func peakMemory(t *testing.T, pid int) int64 {
	t.Helper()
	n, err := memoryOf(pid)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// memoryOf is the most memory that a process ever had, bytes.
func memoryOf(pid int) (int64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for scan := bufio.NewScanner(f); scan.Scan(); {
		if rest, ok := strings.CutPrefix(scan.Text(), "VmHWM:"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return n << 10, err
		}
	}
	return 0, syscall.ENOENT
}
