package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/alert"
	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/answer"
	"github.com/slowray/slowray/internal/fleet/memory"
	"github.com/slowray/slowray/internal/shell"
	"github.com/slowray/slowray/internal/store"
)

// beFleetAlerter has the test binary watch a fleet and send alerts, to be killed.
const beFleetAlerter = "SLOWRAY_TEST_FLEETALERTER"

// A fault takes faultFor of each faultEvery seconds, at first after faultFrom: on all
// hosts, or on one.
const (
	faultFrom, faultEvery, faultFor = 1000, 240, 60
	faults                          = 4
	fleetHosts                      = 5
)

// faultyFleet is a fleet whose seconds from began on are always the same.
func faultyFleet(began time.Time) *memory.Archive {
	a := new(memory.Archive)
	for h := range fleetHosts {
		host := fmt.Sprint("web-", h)
		for s := 0; s < faultFrom+faults*faultEvery; s += 60 {
			_ = a.Hello(context.Background(), &fleet.Host{Name: host, Addresses: []string{"10.0.0.1"}}, began.Add(time.Duration(s)*time.Second))
		}
		serve(a, host, "nginx", 80, began, faultFrom+faults*faultEvery, 20, func(s, i int) time.Duration {
			d := time.Millisecond + time.Duration((s*7+i*13+h*5)%20)*20*time.Microsecond
			if n := s - faultFrom; n >= 0 && n%faultEvery < faultFor && (n/faultEvery%2 == 0 || h == 0) {
				d += 80 * time.Millisecond
			}
			return d
		})
	}
	return a
}

// fleetAlerterMain judges up to the second that each line of its standard input says.
func fleetAlerterMain(at, dir string) {
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	var began, now int64
	_, err := fmt.Sscan(at, &began, &now)
	check(err)
	a := faultyFleet(time.Unix(began, 0))
	c := &fleetWatchCmd{Alerts: filepath.Join(dir, "rules.yaml"), AlertsDir: filepath.Join(dir, "state")}
	c.From = "memory://test/shop"
	clock := func() time.Time { return time.Unix(now, 0) }
	alerts, err := c.alerts(context.Background(), a, clock, func(string) {})
	check(err)
	w := answer.NewWatcher(a, nil)
	check(alerts.learn(context.Background(), w, clock()))
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		_, err := fmt.Sscan(lines.Text(), &now)
		check(err)
		events, err := w.Step(context.Background(), clock())
		check(err)
		alerts.step(w, events)
		fmt.Println(now)
	}
	select {} // until it is killed
}

// alertTaker is a webhook that is away at times, and knows messages that come twice.
type alertTaker struct {
	mu    sync.Mutex
	away  bool
	got   map[string]bool
	order []alert.Message
}

func (k *alertTaker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var m alert.Message
	if err := json.NewDecoder(r.Body).Decode(&m); k.away || err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	if !k.got[m.Delivery] {
		k.got[m.Delivery] = true
		k.order = append(k.order, m)
	}
}

// TestFleetAlertsKilled: faults of a fleet, while who watches it is killed (SIGKILL) at any
// moment and the receiver is away half of the time: each begins once and ends once.
func TestFleetAlertsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	dir, err := os.MkdirTemp("/var/lib", "slowray-test-fleetalert-")
	if err != nil {
		t.Skipf("no directory of root's own: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	k := &alertTaker{got: map[string]bool{}}
	srv := httptest.NewServer(k)
	defer srv.Close()
	if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte("for: 5s\nresolve_after: 40s\nreceivers: [{name: hook, webhook: {url: '"+srv.URL+"'}}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	began := time.Now().Unix()/60*60 - faultFrom
	now := began + faultFrom - 40
	var child *exec.Cmd
	var in io.WriteCloser
	var out *bufio.Reader
	start := func() {
		child = exec.Command("/proc/self/exe")
		child.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d,%s", beFleetAlerter, began, now, dir))
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
	for now < began+faultFrom+faults*faultEvery {
		now++
		fmt.Fprintln(in, now)
		if _, err := out.ReadString('\n'); err != nil {
			t.Fatalf("it died: %v", err)
		}
		if r.IntN(30) == 0 {
			fmt.Fprintln(in, now+1) // in the middle of which it dies, or afterwards
			time.Sleep(time.Duration(r.IntN(10)) * time.Millisecond)
			kill()
			kills++
			now++
			start()
		}
		if r.IntN(20) == 0 {
			k.mu.Lock()
			k.away = !k.away
			k.mu.Unlock()
		}
	}
	k.mu.Lock()
	k.away = false
	k.mu.Unlock()
	phase := map[string][]alert.Kind{}
	var last map[string]alert.Message
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		clear(phase)
		last = map[string]alert.Message{}
		over := 0
		k.mu.Lock()
		for i := range k.order {
			m := k.order[i]
			phase[m.ID] = append(phase[m.ID], m.Kind)
			last[m.ID] = m
			if m.Kind == alert.End {
				over++
			}
		}
		k.mu.Unlock()
		if over >= faults {
			break
		}
	}
	t.Logf("%d kills", kills)
	if len(phase) != faults {
		t.Errorf("%d incidents of %d", len(phase), faults)
	}
	wide := 0
	for id, kinds := range phase {
		m := last[id]
		if kinds[0] != alert.Begin || kinds[len(kinds)-1] != alert.End || slices.Contains(kinds[1:], alert.Begin) || slices.Index(kinds, alert.End) != len(kinds)-1 {
			t.Errorf("%s: %v", m.Title, kinds)
		}
		if m.Host != "fleet shop" || !slices.Contains(m.Hosts, "web-0") || len(m.Services) != 1 || m.Services[0].Name != "nginx:80" || m.Severity != alert.Critical {
			t.Errorf("%+v", m)
		}
		if m.HostCount == fleetHosts {
			wide++
		}
		if m.Ended != nil && m.Ended.Sub(m.Began) > (faultFor+30)*time.Second {
			t.Errorf("%s: lasted for %s", m.Title, m.Ended.Sub(m.Began))
		}
	}
	if wide != faults/2 {
		t.Errorf("%d incidents are of all hosts, %d are", wide, faults/2)
	}
}

func TestFleetName(t *testing.T) {
	for url, want := range map[string]string{
		"clickhouse://u:secret@ch-1:8123,ch-2/shop?x=1": "fleet shop", "clickhouse://ch-1": "fleet", "": "fleet", "clickhouse://h/a/b/": "fleet a/b",
	} {
		if got := fleetName(url); got != want || strings.Contains(got, "secret") {
			t.Errorf("%q: %q, want %q", url, got, want)
		}
	}
}

// flaky is an archive that is away for some questions.
type flaky struct {
	fleet.Archive
	mu          sync.Mutex
	asked       int
	from, until int // these are not answered
}

func (f *flaky) Points(ctx context.Context, q fleet.Question, step time.Duration, give func(*fleet.Point) bool) error {
	f.mu.Lock()
	f.asked++
	away := f.asked >= f.from && f.asked < f.until
	f.mu.Unlock()
	if away {
		return errors.New("connection refused")
	}
	return f.Archive.Points(ctx, q, step, give)
}

// TestFleetWatchArchiveAway: an archive that is away is said once, and that it answers again.
func TestFleetWatchArchiveAway(t *testing.T) {
	a := fleetInMemory(t)
	now := time.Now()
	if err := a.Hello(context.Background(), &fleet.Host{Name: "a", Addresses: []string{"10.0.0.1"}}, now); err != nil {
		t.Fatal(err)
	}
	serve(a, "a", "nginx", 80, now.Add(-2*time.Minute), 120, 5, func(int, int) time.Duration { return time.Millisecond })
	const learned = 6 // questions, at most, until it watches
	away := &flaky{Archive: a, from: learned + 1, until: learned + 4}
	archives["memory"] = func(string) (fleet.Archive, error) { return away, nil }
	_, messages, status := slowrayOut("fleet", "watch", "--for", "8s")
	if status != exitNothing || strings.Count(messages, "connection refused; trying again") != 1 || strings.Count(messages, "the archive answers again") != 1 {
		t.Errorf("status %d: %s", status, messages)
	}
}

// TestFleetAlertCause: what the host at fault found itself becomes the alert's cause, with
// the command by which to go on.
func TestFleetAlertCause(t *testing.T) {
	began := time.Now().Add(-20 * time.Minute).Truncate(time.Minute)
	a := faultyFleet(began)
	second := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	const fault = faultFrom + faultEvery // on web-0
	a.AddFinding("web-0", &store.Finding{Start: second(fault), End: second(fault + 30), Finding: cause.Finding{
		Cause: "fsync-bound", Title: "Requests wait for fsync", Verdict: cause.Supported, Role: cause.RoleCause, Confidence: 0.9,
		Subject: cause.Subject{Kind: "process", Comm: "nginx", Port: 80}, Impact: cause.Impact{Share: 0.9, Of: "slow time", Text: "90 % of the slow time"},
		Evidence: []cause.Evidence{}, Fix: cause.Fix{Text: "a faster disk", Commands: []shell.Command{}},
	}})
	w := answer.NewWatcher(a, nil)
	if err := w.Learn(t.Context(), second(fault-5)); err != nil {
		t.Fatal(err)
	}
	f := &fleetAlerts{archive: a, known: map[string]alert.FleetHarm{}, asked: map[string]int{}, ctx: t.Context()}
	for s := fault; s < fault+55; s++ {
		if _, err := w.Step(t.Context(), second(s)); err != nil {
			t.Fatal(err)
		}
		f.ask(w.Open(), w.Judged())
		f.running.Wait()
	}
	open := w.Open()
	if len(open) != 1 {
		t.Fatalf("%d incidents are open", len(open))
	}
	h := f.harm(&open[0], w.Judged())
	if h.Finding == nil || h.Finding.Cause != "fsync-bound" || h.Title != "nginx:80 on web-0: Requests wait for fsync" || !slices.Contains(h.Next, "ssh web-0 sudo slowray why --port 80") {
		t.Errorf("%+v", h)
	}
	if n := f.asked[open[0].ID]; n < 1 || n > 2 {
		t.Errorf("asked %d times", n)
	}
}
