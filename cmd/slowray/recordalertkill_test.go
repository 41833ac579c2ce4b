package main

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/alert"
)

// killPoint is how far a message has come when the recorder is killed.
type killPoint int

const (
	undelivered killPoint = iota // it has left the recorder, and does not arrive
	unanswered                   // the receiver has it, and the recorder does not know
	away                         // it fails again and again: an outage
	killPoints
)

// hung is when the test gives up: no limit that anything has to keep.
const hung = 5 * time.Minute

// alertGate is the way to a receiver. The first message of each begin and of each end stops
// there until it is released.
type alertGate struct {
	alertReceiver
	plan func(step int) killPoint

	mu       sync.Mutex
	steps    []string // begins and ends, as they came
	released int      // of steps
	tries    int      // of the step that stops
}

func (g *alertGate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	incident, over, err := g.about(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	stops, point := g.comes(fmt.Sprint(incident, over))
	status := 0
	switch {
	case stops && point == away:
		status = g.outage()
	case !stops || point == unanswered:
		status = g.take(r, body)
	}
	if stops {
		g.mu.Lock()
		g.tries++
		g.mu.Unlock()
	}
	if stops && point != away {
		<-r.Context().Done() // the recorder is killed
		return
	}
	w.WriteHeader(status)
}

// comes says whether a message stops, and where.
func (g *alertGate) comes(news string) (stops bool, point killPoint) {
	g.mu.Lock()
	defer g.mu.Unlock()
	step := slices.Index(g.steps, news)
	if step < 0 {
		step, g.steps = len(g.steps), append(g.steps, news)
	}
	point = g.plan(g.released)
	outage := point == away && len(g.steps) > g.released // of all that is sent
	return step >= g.released || outage, point
}

func (g *alertGate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.released, g.tries = g.released+1, 0
}

func (g *alertGate) tried() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tries
}

// tally counts begins and ends.
type tally struct {
	mu           sync.Mutex
	begun, ended map[string]int // by incident
}

func newTally() tally { return tally{begun: map[string]int{}, ended: map[string]int{}} }

func (y *tally) counts() (begun, ended map[string]int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	return maps.Clone(y.begun), maps.Clone(y.ended)
}

// TestRecordAlertsKilled: three services fail, one after the other, and are well again. At
// the begin and at the end of each incident the recorder is killed (SIGKILL) while of its three
// receivers one has not got the message, one has it and has not said so, and one is away, also
// for the next recorder: each is each of these once. Each incident begins and ends once at each
// of them.
func TestRecordAlertsKilled(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIP: needs root, to record requests: alerts of a recorder that is killed are NOT tested")
	}
	if testing.Short() {
		t.Skip("SKIP: -short: alerts of a recorder that is killed are NOT tested")
	}
	program, err := exec.LookPath("prometheus-alertmanager")
	if err != nil {
		t.Skip("SKIP: there is no prometheus-alertmanager (Debian's package of that name): alerts of a recorder that is killed are NOT tested")
	}
	pager := &pagerDuty{tally: newTally(), open: map[string]bool{}}
	manager := startAlertmanager(t, program)
	hook := &signedHook{tally: newTally(), deliveries: map[string]int{}}
	var gates []*alertGate
	var urls []any
	for n, to := range []alertReceiver{pager, manager, hook} {
		g := &alertGate{alertReceiver: to, plan: func(step int) killPoint { return killPoint((step/2 + step%2 + n) % int(killPoints)) }}
		srv := httptest.NewServer(g)
		t.Cleanup(srv.Close) // after the recorder has ended
		gates, urls = append(gates, g), append(urls, srv.URL)
	}

	shops := make([]*shop, 3)
	routes := ""
	for n := range shops {
		shops[n] = openShop(t)
		routes += fmt.Sprintf("- {cause: error-answers, service: '*:%s', to: [pager, manager, hook]}\n", shops[n].port)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"pager.key": routingKey, "hook.key": hookSecret,
		// What other tests do to their servers meanwhile is sent to nobody.
		"alerts.yaml": "for: 0s\nresolve_after: 1s\nroutes:\n" + routes + fmt.Sprintf("receivers:\n"+
			"- {name: pager, timeout: 1h, pagerduty: {url: '%[1]s/v2/enqueue', routing_key_file: %[4]s/pager.key}}\n"+
			"- {name: manager, timeout: 1h, alertmanager: {url: '%[2]s'}}\n"+
			"- {name: hook, timeout: 1h, webhook: {url: '%[3]s', secret_file: %[4]s/hook.key}}\n", append(urls, dir)...),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	start := func() *life {
		return startRecorder(t, filepath.Join(dir, "history"), "--window", "5s", "--alerts", filepath.Join(dir, "alerts.yaml"))
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, g := range gates {
				begun, ended := g.counts()
				t.Logf("%T: begun %v, ended %v, %d released of %v", g.alertReceiver, begun, ended, g.released, g.steps)
			}
		}
	})
	recorder := start()
	for step := range 2 * len(shops) { // begin, end, begin, …
		over := step%2 == 1
		shops[step/2].fails.Store(!over)
		for _, g := range gates {
			soon(t, hung, fmt.Sprintf("step %d at %T", step, g.alertReceiver), func() bool { return g.tried() > 0 })
		}
		var gone *alertGate
		for _, g := range gates {
			if g.plan(step) == away {
				gone = g
			}
		}
		if gone.alertReceiver == manager {
			manager.stop(t)
		}
		if err := recorder.cmd.Process.Kill(); err != nil { // SIGKILL
			t.Fatal(err)
		}
		_ = recorder.cmd.Wait()
		for _, g := range gates {
			if g != gone {
				g.release()
			}
		}
		before := gone.tried()
		recorder = start()
		soon(t, hung, "the next recorder tries in vain", func() bool { return gone.tried() > before })
		if gone.alertReceiver == manager {
			manager.start(t)
		}
		gone.release()
		for _, g := range gates {
			soon(t, hung, fmt.Sprintf("step %d has come to %T", step, g.alertReceiver), func() bool {
				begun, ended := g.counts()
				return len(begun) == step/2+1 && len(ended) == (step+1)/2
			})
		}
		begun, ended := pager.counts()
		maps.DeleteFunc(begun, func(id string, _ int) bool { return ended[id] > 0 })
		soon(t, hung, fmt.Sprintf("Alertmanager holds what goes on: %v", begun), func() bool { return slices.Equal(manager.holds(), slices.Collect(maps.Keys(begun))) })
	}
	var left *alert.Status
	soon(t, hung, "all is sent", func() bool {
		if left, err = alert.ReadStatus(filepath.Join(dir, "alerts")); err != nil {
			t.Fatal(err)
		}
		waiting := 0
		for _, n := range left.Waiting {
			waiting += n
		}
		return waiting == 0
	})
	_ = recorder.cmd.Process.Signal(syscall.SIGTERM)
	_ = recorder.cmd.Wait()

	once := map[string]int{}
	if len(hook.order) != len(shops) {
		t.Fatalf("%d incidents of %d services", len(hook.order), len(shops))
	}
	for n, m := range hook.order {
		once[m.ID] = 1
		if !slices.ContainsFunc(m.Services, func(s alert.Service) bool { return strings.HasSuffix(s.Name, ":"+shops[n].port) }) {
			t.Errorf("incident %d is of %+v", n, m.Services)
		}
	}
	for _, g := range gates {
		if begun, ended := g.counts(); !maps.Equal(begun, once) || !maps.Equal(ended, once) {
			t.Errorf("%T: begun %v, ended %v, want of each one", g.alertReceiver, begun, ended)
		}
	}
	for name, c := range left.Counts {
		if c.Refused+c.GivenUp > 0 {
			t.Errorf("%s: %+v", name, c)
		}
	}
	// A begin and an end were not answered: only these come twice, with the same delivery.
	twice := 0
	for delivery, n := range hook.deliveries {
		if twice += n - 1; n > 2 {
			t.Errorf("delivery %s came %d times", delivery, n)
		}
	}
	if twice != 2 || hook.unsigned > 0 || pager.again < 2 {
		t.Errorf("%d messages came twice to the webhook, want 2, %d had no good signature; PagerDuty left out %d, want 2 at least", twice, hook.unsigned, pager.again)
	}
}

// shop is a service, a process of its own, that fails when it is to, with a client.
type shop struct {
	port  string
	fails atomic.Bool
}

func openShop(t *testing.T) *shop {
	at := freeAddress(t)
	server := exec.Command(os.Args[0])
	server.Env = append(os.Environ(), beServer+"="+at)
	server.Stderr = os.Stderr
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	s := &shop{}
	_, s.port, _ = net.SplitHostPort(at)
	stop := make(chan struct{})
	var client sync.WaitGroup
	client.Go(func() {
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
				path := "/"
				if s.fails.Load() {
					path = "/fail"
				}
				if r, err := http.Get("http://" + at + path); err == nil {
					r.Body.Close()
				}
			}
		}
	})
	t.Cleanup(func() { close(stop); client.Wait(); _ = server.Process.Kill(); _ = server.Wait() })
	return s
}

// freeAddress is one that nobody listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
