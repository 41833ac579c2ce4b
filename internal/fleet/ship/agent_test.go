package ship

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/clickhouse"
	"github.com/slowray/slowray/internal/store"
)

// Environment of the test binary as an agent: the directory of its histories, where it
// sends them to, and its first number.
const (
	agentDir  = "SHIP_TEST_AGENT"
	agentTo   = "SHIP_TEST_AGENT_TO"
	agentFrom = "SHIP_TEST_AGENT_FROM"
	agentPlan = "SHIP_TEST_AGENT_PLAN"
	histories = 4
)

// plan is how much an agent records.
type plan struct {
	Histories int
	Requests  int           // of each history in a tick
	Endpoints int           // that do something in each second, of each history
	Tick      time.Duration // how long it takes
	Ticks     int           // then it records no more; 0: until it is asked to end
	First     int64         // s since 1970: when the first tick claims to be, and each one a second later; 0: now
	Sync      int           // ticks after which all is made durable
	Segment   time.Duration // of the stores
	Buffer    int64         // of the last history, bytes; 0: the default
}

// always is an agent that records all the time.
var always = plan{Histories: histories, Requests: 40, Endpoints: 1, Tick: 20 * time.Millisecond, Sync: 1, Segment: 2 * time.Second}

func TestMain(m *testing.M) {
	if dir := os.Getenv(agentDir); dir != "" {
		if err := beAgent(dir); err != nil {
			fmt.Fprintln(os.Stderr, "agent:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// beAgent records numbered requests into some histories and sends them, until it is
// asked to end, and then until all is sent.
func beAgent(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	from, _ := strconv.Atoi(os.Getenv(agentFrom))
	var p plan
	if err := json.Unmarshal([]byte(os.Getenv(agentPlan)), &p); err != nil {
		return err
	}
	shipping, cancel := context.WithCancel(context.Background())
	defer cancel()
	var shippers []*Shipper
	var stores []*store.Store
	var ended []chan struct{}
	for i := range p.Histories {
		db, err := clickhouse.Open(os.Getenv(agentTo))
		if err != nil {
			return err
		}
		home := filepath.Join(dir, strconv.Itoa(i))
		if err := giveID(home, i); err != nil {
			return err
		}
		opt := Options{
			Targets: []Destination{{Target: db, Name: "clickhouse", Title: "clickhouse"}},
			Host:    func() fleet.Host { return fleet.Host{Name: "host-" + strconv.Itoa(i)} },
			Say:     func(text string) { fmt.Fprintf(os.Stderr, "%s history %d: %s\n", time.Now().Format("05.000"), i, text) },
			linger:  map[fleet.Stream]time.Duration{fleet.Requests: 50 * time.Millisecond}, timeout: 10 * time.Second, lastWait: time.Second,
		}
		if i == p.Histories-1 && p.Buffer != 0 {
			opt.Buffer, opt.bound = p.Buffer, 50*time.Millisecond
		}
		s, links, err := Prepare(home, opt)
		if err != nil {
			return err
		}
		st, err := store.Open(home, store.Options{Segment: p.Segment, Links: links})
		if err != nil {
			return err
		}
		done := make(chan struct{})
		go func() {
			s.Run(shipping, st)
			close(done)
		}()
		shippers, stores, ended = append(shippers, s), append(stores, st), append(ended, done)
	}
	fmt.Println("began")
	for tick := range p.ticks() {
		if ctx.Err() != nil {
			break
		}
		if err := p.record(stores, from, tick); err != nil {
			return err
		}
		time.Sleep(p.Tick)
	}
	if p.Ticks != 0 {
		fmt.Println("recorded")
		<-ctx.Done()
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var left int64
		for _, s := range shippers {
			left += s.Status()[0].Bytes
		}
		if left == 0 {
			break
		}
	}
	cancel()
	for i, st := range stores {
		<-ended[i]
		if err := st.Close(); err != nil {
			return err
		}
		fmt.Printf("history %d: %+v\n", i, shippers[i].Status()[0])
	}
	return nil
}

// ticks are the ticks of a plan.
func (p *plan) ticks() iter.Seq[int] {
	return func(yield func(int) bool) {
		for tick := 0; (p.Ticks == 0 || tick < p.Ticks) && yield(tick); tick++ {
		}
	}
}

// record records what happens in a tick, in all histories.
func (p *plan) record(stores []*store.Store, from, tick int) error {
	at := time.Now()
	if p.First != 0 {
		at = time.Unix(p.First+int64(tick), 0)
	}
	for _, st := range stores {
		for k := range p.Requests {
			r := numbered(from+tick*p.Requests+k, at.UnixNano()+int64(k)*1e6)
			st.AddRequest(&r)
		}
		for k := range p.Endpoints {
			s := numberedSecond(1+tick%7, at.Unix())
			s.Endpoint.Port += k
			st.AddSecond(&s)
		}
		if tick%p.Sync == p.Sync-1 || tick == p.Ticks-1 {
			if err := st.Sync(); err != nil {
				return err
			}
		}
	}
	return nil
}

// giveID gives a history an ID that is the same in each test: by it a shard is chosen.
func giveID(home string, i int) error {
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(home, idName), fmt.Appendf(nil, "%08x-0000-4000-8000-000000000000\n", i), 0o600)
}

// agent is a process that records and sends.
type agent struct {
	t     *testing.T
	dir   string
	to    string
	plan  plan
	lives int
	cmd   *exec.Cmd
	lines chan string
	said  lockedBuffer // what it says went wrong
}

// lockedBuffer is what a process writes, for others to read meanwhile.
type lockedBuffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

func (a *agent) start() {
	a.t.Helper()
	a.lives++
	a.cmd = exec.Command(os.Args[0])
	text, err := json.Marshal(&a.plan)
	if err != nil {
		a.t.Fatal(err)
	}
	a.cmd.Env = append(os.Environ(), agentDir+"="+a.dir, agentTo+"="+a.to, fmt.Sprintf("%s=%d", agentFrom, a.lives*1_000_000), agentPlan+"="+string(text))
	a.cmd.Stderr = io.MultiWriter(os.Stderr, &a.said)
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		a.t.Fatal(err)
	}
	if err := a.cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	cmd := a.cmd
	a.t.Cleanup(func() { _ = cmd.Process.Kill() })
	a.lines = make(chan string, 100)
	go func(lines chan string) {
		defer close(lines)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			lines <- scan.Text()
		}
	}(a.lines)
	select {
	case line := <-a.lines:
		if line != "began" {
			a.t.Fatalf("the agent says %q", line)
		}
	case <-time.After(20 * time.Second):
		a.t.Fatal("the agent does not begin")
	}
}

// kill ends the agent with SIGKILL.
func (a *agent) kill() {
	a.t.Helper()
	if err := a.cmd.Process.Kill(); err != nil {
		a.t.Fatal(err)
	}
	_ = a.cmd.Wait()
}

// finish lets the agent send all that is left, and gives what it says at the end.
func (a *agent) finish() string {
	a.t.Helper()
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		a.t.Fatal(err)
	}
	var said []string
	for line := range a.lines {
		said = append(said, line)
	}
	if err := a.cmd.Wait(); err != nil {
		a.t.Fatalf("the agent ended with %v", err)
	}
	return strings.Join(said, "\n")
}
