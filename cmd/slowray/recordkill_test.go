package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/commandline"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/stalltest"
	"github.com/slowray/slowray/internal/store"
)

// killsVariable is how often the recorder is killed: 50 takes three minutes.
const killsVariable = "SLOWRAY_KILLS"

// load makes requests at a steady pace and notes when each was answered: the
// truth that the history is held against.
type load struct {
	port int
	mu   sync.Mutex
	at   []int64 // ns since 1970, in order, nearly
}

// runLoad makes some 400 requests a second until the test ends.
func runLoad(t *testing.T) *load {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	address, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	l := &load{}
	l.port, _ = strconv.Atoi(address.Port())
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			ticker := time.NewTicker(10 * time.Millisecond)
			defer ticker.Stop()
			for {
				select {
				case <-stop:
					client.CloseIdleConnections()
					return
				case <-ticker.C:
				}
				resp, err := client.Get(srv.URL)
				if err != nil {
					continue
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				l.mu.Lock()
				l.at = append(l.at, time.Now().UnixNano())
				l.mu.Unlock()
			}
		})
	}
	t.Cleanup(func() {
		close(stop)
		clients.Wait()
		srv.Close()
	})
	return l
}

// between counts the requests that were answered in a time.
func (l *load) between(from, to time.Time) (n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range l.at {
		if at >= from.UnixNano() && at < to.UnixNano() {
			n++
		}
	}
	return n
}

// life is one run of the recorder.
type life struct {
	cmd    *exec.Cmd
	said   bytes.Buffer // its standard error; to be read when it has ended
	lines  chan recordEvent
	began  time.Time
	killed time.Time
}

// startRecorder runs slowray record as a process of its own, until it records.
func startRecorder(t *testing.T, dir string, args ...string) *life {
	t.Helper()
	l := &life{lines: make(chan recordEvent, 1000)}
	l.cmd = exec.Command(os.Args[0], append([]string{"record", "--json", "--listen", "off", "--dir", dir}, args...)...)
	l.cmd.Env = append(os.Environ(), beSlowray+"=1")
	l.cmd.Stderr = io.MultiWriter(os.Stderr, &l.said)
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.cmd.Process.Kill() })
	go func() {
		defer close(l.lines)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			var e recordEvent
			if err := json.Unmarshal(scan.Bytes(), &e); err != nil {
				t.Errorf("%q: %v", scan.Text(), err)
			}
			l.lines <- e
		}
	}()
	for late := time.After(hung); ; {
		select {
		case e, ok := <-l.lines:
			switch {
			case ok && e.Event == "trouble": // of alerts, which are sent already
				continue
			case !ok || e.Event != "begin":
				t.Fatalf("the recorder began with %+v", e)
			}
		case <-late:
			t.Fatal("the recorder does not begin")
		}
		l.began = time.Now()
		return l
	}
}

// The fsyncs of a recorder, as strace counts them: of each second, and at its end, for
// which it has 650 ms (see commandline) and needs less than half of them itself.
const (
	secondFsyncs = 4
	endFsyncs    = 22
	endSpare     = 350 * time.Millisecond
)

// TestRecorderIsKilled kills the recorder again and again under load: each time
// it loses two seconds at most, and what the machine and its disk took of them, nothing
// is corrupt, and what was stored before stays.
func TestRecorderIsKilled(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIP: needs root, to record requests: what a killed recorder leaves is NOT tested")
	}
	kills := 4
	if testing.Short() {
		kills = 1
	}
	if text := os.Getenv(killsVariable); text != "" {
		var err error
		if kills, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s: %v", killsVariable, err)
		}
	}
	dir := t.TempDir()
	requests := runLoad(t)
	stalls := stalltest.Start(t)
	var lives []*life
	var total uint64
	for n := range kills {
		l := startRecorder(t, dir, "--window", "5s")
		time.Sleep(2300*time.Millisecond + rand.N(1200*time.Millisecond))
		l.killed = time.Now()
		if err := l.cmd.Process.Kill(); err != nil { // SIGKILL
			t.Fatal(err)
		}
		_ = l.cmd.Wait()
		lives = append(lives, l)
		after := storedRequests(t, dir, requests.port, lives[0].began.Add(-time.Minute), time.Now())
		if after < total {
			t.Fatalf("kill %d: %d requests are stored, there were %d before", n+1, after, total)
		}
		total = after
	}
	// The last one ends in order, and then there is no log left to recover.
	l := startRecorder(t, dir, "--window", "5s")
	time.Sleep(1500 * time.Millisecond)
	l.killed = time.Now()
	_ = l.cmd.Process.Signal(syscall.SIGTERM)
	err := l.cmd.Wait()
	ended := time.Now()
	away, fsync := stalls.Between(l.killed, ended)
	// On a slow disk it ends amid what it stores, and says so.
	slow := away+endFsyncs*fsync > endSpare && l.cmd.ProcessState.ExitCode() == commandline.ExitFailed &&
		strings.HasSuffix(l.said.String(), "slowray: ended before it was done, as asked\n")
	if err != nil && !slow {
		t.Errorf("ended by SIGTERM: %v; a CPU was away for %s, an fsync took %s\n%s", err, away, fsync, l.said.String())
	}
	if took := ended.Sub(l.killed); took > 3*time.Second {
		t.Errorf("it took %s to end", took)
	}
	lives = append(lives, l)

	var worst time.Duration
	for n, l := range lives {
		// A second is reported as a whole: it may reach before the beginning.
		from := l.began.Truncate(time.Second)
		stored := storedRequests(t, dir, requests.port, from, l.killed.Add(time.Second))
		all := requests.between(l.began, l.killed)
		if most := requests.between(from.Add(-time.Second), l.killed.Add(2*time.Second)); stored > most {
			t.Errorf("life %d: %d requests stored, %d were made", n+1, stored, most)
		}
		away, fsync := stalls.Between(l.killed.Add(-2*time.Second), l.killed)
		most := 2*time.Second + away + secondFsyncs*fsync
		if least := requests.between(l.began, l.killed.Add(-most)); stored < least {
			t.Errorf("life %d: %d requests stored of %d in %s: more than %s are lost; a CPU was away for %s, an fsync took %s", n+1, stored, all, l.killed.Sub(l.began), most, away, fsync)
		}
		for lost := time.Duration(0); lost < 4*time.Second; lost += 50 * time.Millisecond {
			if stored >= requests.between(l.began, l.killed.Add(-lost)) {
				worst = max(worst, lost)
				break
			}
		}
	}
	t.Logf("%d kills: at most %s lost, %d requests stored of %d made in all, also while no recorder ran", kills, worst, total, requests.between(time.Time{}, time.Now()))
	checkHistory(t, dir, requests.port)
}

// storedRequests is how many requests the seconds of a time have.
func storedRequests(t *testing.T, dir string, port int, from, to time.Time) (n uint64) {
	t.Helper()
	r, err := store.OpenReader(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	err = r.Points(store.Query{From: from, To: to, Port: port, Side: observe.Served}, time.Second, func(s *store.Second) bool {
		n += s.Endpoint.Requests
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// checkHistory reads all there is.
func checkHistory(t *testing.T, dir string, port int) {
	t.Helper()
	r, err := store.OpenReader(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	kept := 0
	err = r.Requests(store.Query{Port: port}, func(q *store.Request) bool {
		if q.TotalNS() <= 0 || q.Weight == 0 {
			t.Errorf("a request of %d ns that stands for %d", q.TotalNS(), q.Weight)
		}
		kept++
		return true
	})
	if err != nil || kept == 0 {
		t.Errorf("%d requests kept, %v", kept, err)
	}
	windows, err := r.Observations(time.Time{}, time.Time{})
	if err != nil {
		t.Error(err)
	}
	for _, w := range windows {
		if _, err := observe.Load(w.Path); err != nil {
			t.Error(err)
		}
	}
	if _, err := r.Findings(time.Time{}, time.Time{}); err != nil {
		t.Error(err)
	}
	if skipped := r.Skipped(); len(skipped) > 0 {
		t.Errorf("not readable: %v", skipped)
	}
	if !slices.IsSortedFunc(windows, func(a, b store.Window) int { return a.Start.Compare(b.Start) }) {
		t.Error("windows are out of order")
	}
}
