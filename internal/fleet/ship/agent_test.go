package ship

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
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
	histories = 4
)

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
// told to end, and then until all is sent.
func beAgent(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	from, _ := strconv.Atoi(os.Getenv(agentFrom))
	shipping, cancel := context.WithCancel(context.Background())
	defer cancel()
	var shippers []*Shipper
	var stores []*store.Store
	var ended []chan struct{}
	for i := range histories {
		db, err := clickhouse.Open(os.Getenv(agentTo))
		if err != nil {
			return err
		}
		home := filepath.Join(dir, strconv.Itoa(i))
		if err := giveID(home, i); err != nil {
			return err
		}
		s, links, err := Prepare(home, Options{
			Targets: []Destination{{Target: db, Name: "clickhouse", Title: "clickhouse"}},
			Host:    func() fleet.Host { return fleet.Host{Name: "host-" + strconv.Itoa(i)} },
			Say:     func(text string) { fmt.Fprintf(os.Stderr, "%s history %d: %s\n", time.Now().Format("05.000"), i, text) },
			linger:  map[fleet.Stream]time.Duration{fleet.Requests: 50 * time.Millisecond}, timeout: 10 * time.Second, lastWait: time.Second,
		})
		if err != nil {
			return err
		}
		st, err := store.Open(home, store.Options{Segment: 2 * time.Second, Links: links})
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
	for n := from; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		now := time.Now()
		for range 40 {
			for _, st := range stores {
				r := numbered(n, now.UnixNano())
				st.AddRequest(&r)
			}
			n++
		}
		for _, st := range stores {
			s := numberedSecond(1+n%7, now.Unix())
			st.AddSecond(&s)
			if err := st.Sync(); err != nil {
				return err
			}
		}
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
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
	lives int
	cmd   *exec.Cmd
	lines chan string
}

func (a *agent) start() {
	a.t.Helper()
	a.lives++
	a.cmd = exec.Command(os.Args[0])
	a.cmd.Env = append(os.Environ(), agentDir+"="+a.dir, agentTo+"="+a.to, fmt.Sprintf("%s=%d", agentFrom, a.lives*1_000_000))
	a.cmd.Stderr = os.Stderr
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
