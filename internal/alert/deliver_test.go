package alert

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// beAlerter has the test binary be a process that sends alerts, to be killed.
const beAlerter = "SLOWRAY_TEST_ALERTER"

func TestMain(m *testing.M) {
	if at, dir, ok := strings.Cut(os.Getenv(beAlerter), " "); ok {
		alerterMain(at, dir)
	}
	os.Exit(m.Run())
}

// alerterMain takes seconds of its standard input: a line for each, with the names of who
// suffers.
func alerterMain(at, dir string) {
	now, err := time.Parse(time.RFC3339, at)
	if err != nil {
		panic(err)
	}
	c, err := Load(filepath.Join(dir, "rules.yaml"))
	if err != nil {
		panic(err)
	}
	a, err := New(Options{Config: c, Dir: filepath.Join(dir, "state"), Host: "db-1", Page: "http://127.0.0.1:7788/", Say: func(string) {}, firstWait: time.Millisecond, lastWait: 20 * time.Millisecond,
		Now: func() time.Time { return now }})
	if err != nil {
		panic(err)
	}
	go a.Run(context.Background())
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		at, who, _ := strings.Cut(lines.Text(), " ")
		var e event
		if err := e.at.UnmarshalText([]byte(at)); err != nil {
			panic(err)
		}
		for name := range strings.FieldsSeq(who) {
			e.harms = append(e.harms, Harm{name, 0.5, "half of its requests fail"})
		}
		a.takeIn(e) // seconds come one by one: none waits
		fmt.Println(at)
	}
	select {} // until it is killed
}

// taker is a receiver that is away from time to time.
type taker struct {
	mu    sync.Mutex
	away  bool
	got   map[string]*Message // by delivery
	order []*Message          // as they came first
	twice int
}

func (k *taker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.away {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	var m Message
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil || r.Header.Get("Slowray-Delivery") != m.Delivery {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if k.got[m.Delivery] != nil {
		k.twice++
		return
	}
	k.got[m.Delivery] = &m
	k.order = append(k.order, &m)
}

func write(t testing.TB, name, text string) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// ownDir is a directory that only root can change, as the rules must be in.
func ownDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/lib", "slowray-test-alert-")
	if err != nil {
		t.Skipf("no directory of root's own: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TestKilledAndAway: 40 incidents, one after the other, while the process is killed (SIGKILL) at any moment
// and the receiver is away half of the time: each begins once and ends once, for a receiver that
// leaves out what it has seen.
func TestKilledAndAway(t *testing.T) {
	dir := ownDir(t)
	k := &taker{got: map[string]*Message{}}
	srv := httptest.NewServer(k)
	defer srv.Close()
	write(t, filepath.Join(dir, "rules.yaml"), "for: 0s\nresolve_after: 20s\nreceivers: [{name: hook, webhook: {url: '"+srv.URL+"'}}]\n")
	r := rand.New(rand.NewPCG(1, 2))
	now := begin
	var child *exec.Cmd
	var in io.WriteCloser
	var out *bufio.Reader
	start := func() {
		child = exec.Command("/proc/self/exe")
		child.Env = append(os.Environ(), beAlerter+"="+now.Format(time.RFC3339)+" "+dir)
		child.Stderr = os.Stderr
		in, _ = child.StdinPipe()
		p, _ := child.StdoutPipe()
		out = bufio.NewReader(p)
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
	}
	kill := func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}
	start()
	t.Cleanup(func() { kill() })
	kills := 0
	second := func(who string) {
		now = now.Add(time.Second)
		fmt.Fprintf(in, "%s %s\n", now.Format(time.RFC3339), who)
		if _, err := out.ReadString('\n'); err != nil {
			t.Fatalf("the alerter died: %v", err)
		}
		if r.IntN(12) == 0 {
			time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond)
			kill()
			kills++
			start()
		}
		if r.IntN(20) == 0 {
			k.mu.Lock()
			k.away = !k.away
			k.mu.Unlock()
		}
	}
	const incidents = 40
	for i := range incidents {
		for range 5 {
			second(fmt.Sprintf("svc-%d:80", i))
		}
		// Longer than a restart may put the end off.
		now = now.Add(10 * time.Minute)
		for range 5 {
			second("")
		}
	}
	k.mu.Lock()
	k.away = false
	k.mu.Unlock()
	phase := map[string][]Kind{}
	deadline := time.Now().Add(20 * time.Second)
	for {
		clear(phase)
		k.mu.Lock()
		for _, m := range k.order {
			phase[m.ID] = append(phase[m.ID], m.Kind)
		}
		twice := k.twice
		k.mu.Unlock()
		over := 0
		for _, kinds := range phase {
			if slices.Contains(kinds, End) {
				over++
			}
		}
		if over >= incidents || time.Now().After(deadline) {
			t.Logf("%d kills, %d messages came twice and were known by their delivery", kills, twice)
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if len(phase) != incidents {
		t.Errorf("%d incidents of %d", len(phase), incidents)
	}
	for id, kinds := range phase {
		if kinds[0] != Begin || kinds[len(kinds)-1] != End || slices.Index(kinds, End) != len(kinds)-1 || slices.Contains(kinds[1:], Begin) {
			t.Errorf("%s: %v", id, kinds)
		}
	}
}

// TestKeptBeforeSent: a sender that waits for its turn while a message is queued sees it only
// once it is on the disk. A kill right after it was sent would begin its incident again.
func TestKeptBeforeSent(t *testing.T) {
	dir := t.TempDir()
	a, err := New(Options{Config: rules(t, "for: 0s\n"+oneHook), Dir: dir, Host: "h", Say: func(text string) { t.Error(text) }})
	if err != nil {
		t.Fatal(err)
	}
	defer a.box.close()
	const turn = 5 * time.Millisecond // a mutex goes by turns once somebody has waited for 1 ms
	var both sync.WaitGroup
	a.mu.Lock()
	both.Go(func() { a.takeIn(event{at: begin, harms: []Harm{{Service: "svc:80", Share: 0.1}}}) })
	time.Sleep(turn)
	both.Go(func() {
		a.mu.Lock()
		m := a.box.next("hook", time.Now())
		text, err := os.ReadFile(filepath.Join(dir, stateName))
		a.mu.Unlock()
		if m != nil && (err != nil || !strings.Contains(string(text), m.Delivery)) {
			t.Errorf("%s could be sent before it was kept: %v", m.Kind, err)
		}
	})
	time.Sleep(turn)
	a.mu.Unlock()
	a.mu.Lock() // who waits longest is woken, comes too late, and has it go by turns
	time.Sleep(turn)
	a.mu.Unlock()
	both.Wait()
}

// TestRecorderNeverWaits: what there is no room for is left out and counted, also while
// somebody waits for the disk.
func TestRecorderNeverWaits(t *testing.T) {
	a := &Alerter{events: make(chan event, 1)}
	a.mu.Lock() // as keep does while it writes
	defer a.mu.Unlock()
	done := make(chan struct{})
	go func() {
		for range 3 {
			a.put(event{})
		}
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the recorder waits for the disk")
	}
	if n := a.lost.Load(); n != 2 {
		t.Errorf("%d were left out, want 2", n)
	}
}

// TestRestartAfterALittle: harm that had not lasted when slowray ended is not told of for the
// time in which nobody looked.
func TestRestartAfterALittle(t *testing.T) {
	dir, c := ownDir(t), rules(t, "for: 30s\n"+oneHook)
	box, err := openOutbox(dir)
	if err != nil {
		t.Fatal(err)
	}
	box.Incidents.Open = []*open{{Incident: Incident{ID: "a", Severity: Warning, Began: begin, Title: "nginx:80: all fail"}, Seen: begin.Add(5 * time.Second), Hold: c.ResolveAfter}}
	if err := box.save(); err != nil {
		t.Fatal(err)
	}
	box.close()
	now := begin.Add(10 * time.Minute)
	a, err := New(Options{Config: c, Dir: dir, Host: "h", Say: func(string) {}, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer a.box.close()
	a.box.Incidents.harm(now, nil)
	if len(a.box.Incidents.Open) != 0 || len(a.box.Waiting["hook"]) != 0 {
		t.Errorf("open %+v, waiting %+v", a.box.Incidents.Open, a.box.Waiting)
	}
}

// TestOnlyRootsRules: rules and programs that others could have changed are refused.
func TestOnlyRootsRules(t *testing.T) {
	dir := ownDir(t)
	name := write(t, filepath.Join(dir, "rules.yaml"), oneHook)
	if _, err := Load(name); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(name); err == nil {
		t.Error("a file that everybody can write is taken")
	}
	if err := os.Chmod(name, 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(name, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(name); err == nil {
			t.Error("a file of another user is taken")
		}
	}
	if _, err := Load(write(t, filepath.Join(t.TempDir(), "rules.yaml"), strings.Repeat("#", maxConfig+1))); err == nil {
		t.Error("a file without an end is read")
	}
}

// TestCommandThatForks: a command that takes too long ends with all that it has started, and
// one that leaves something behind has done its work: it is not run again.
func TestCommandThatForks(t *testing.T) {
	dir := ownDir(t)
	for text, want := range map[string]bool{
		"#!/bin/sh\nsleep 60 & echo $! >\"$1\"\nwait\n": false,
		"#!/bin/sh\nsleep 60 & echo $! >\"$1\"\n":       true,
	} {
		program, pidFile := write(t, filepath.Join(dir, "hook"), text), filepath.Join(dir, "pid")
		if err := os.Chmod(program, 0o755); err != nil {
			t.Fatal(err)
		}
		r := &Receiver{Command: &CommandLine{program, pidFile}, patience: 3 * time.Second}
		began := time.Now()
		err := r.send(t.Context(), &Message{Kind: Test})
		if (err == nil) != want || time.Since(began) > 8*time.Second {
			t.Errorf("%q: %v after %s", text, err, time.Since(began))
		}
		pid, err := os.ReadFile(pidFile)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(pid)))
		if err != nil {
			t.Fatal(err)
		}
		there := func() string { // whoever adopts it reaps it
			state, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n))
			if strings.Contains(string(state), ") Z ") {
				return ""
			}
			return string(state)
		}
		for end := time.Now().Add(10 * time.Second); !want && there() != "" && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		if state := there(); !want && state != "" {
			t.Errorf("%q: what it started is still there: %s", text, state)
		}
		_ = syscall.Kill(n, syscall.SIGKILL)
	}
}

// TestRefresh: Alertmanager, which forgets alerts when it is started, hears what goes on when
// slowray starts, and when it takes a message after it was away.
func TestRefresh(t *testing.T) {
	got := make(chan string, 100)
	var away atomic.Bool
	manager := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away.Load() {
			w.WriteHeader(http.StatusBadGateway)
			got <- "away"
			return
		}
		text, _ := io.ReadAll(r.Body)
		got <- string(text)
	}))
	defer manager.Close()
	c := rules(t, "for: 0s\nreceivers: [{name: am, alertmanager: {url: '"+manager.URL+"'}}]\n")
	c.Receivers[0].Alertmanager.url = manager.URL
	a, err := New(Options{Config: c, Dir: t.TempDir(), Host: "db-1", Say: func(string) {}, firstWait: time.Millisecond, lastWait: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	a.box.Incidents.Open = []*open{{Incident: Incident{ID: "goes-on", Began: begin}, Seen: time.Now(), Hold: Duration(time.Hour), Fired: true, To: []string{"am"}}}
	ctx, stop := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() { a.Run(ctx) })
	defer ended.Wait()
	defer stop()
	next := func(want string) {
		t.Helper()
		for text := "away"; ; {
			select {
			case text = <-got:
			case <-time.After(30 * time.Second): // half of refreshEvery
				t.Fatalf("Alertmanager did not hear of %q", want)
			}
			if text != "away" {
				if !strings.Contains(text, want) {
					t.Errorf("%s, want %s", text, want)
				}
				return
			}
		}
	}
	next(`"incident":"goes-on"`)
	away.Store(true)
	a.events <- event{at: time.Now(), harms: []Harm{{Service: "svc:80", Share: 0.1}}}
	if text := <-got; text != "away" {
		t.Errorf("%s while it is away", text)
	}
	away.Store(false)
	next("svc:80")
	next(`"incident":"goes-on"`)
}

// TestSaysWhatWasSent: of each message that a receiver took there is a line.
func TestSaysWhatWasSent(t *testing.T) {
	k := &taker{got: map[string]*Message{}}
	hook := httptest.NewServer(k)
	defer hook.Close()
	said := make(chan string, 1)
	c := &Config{Receivers: []Receiver{{Name: "team", Webhook: &Endpoint{url: hook.URL}, patience: time.Second}}}
	a, err := New(Options{Config: c, Dir: t.TempDir(), Host: "db-1", Say: func(string) {}, Sent: func(text string) { said <- text }})
	if err != nil {
		t.Fatal(err)
	}
	a.box.add("team", &Message{Schema: Schema, Delivery: "one", Kind: Begin, At: time.Now(), Incident: Incident{Title: "It is slow"}})
	ctx, stop := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() { a.Run(ctx) })
	select {
	case text := <-said:
		if !strings.HasPrefix(text, "alerts: team took: ") || !strings.Contains(text, "It is slow") {
			t.Error(text)
		}
	case <-time.After(10 * time.Second):
		t.Error("nothing was said")
	}
	stop()
	ended.Wait()
}
