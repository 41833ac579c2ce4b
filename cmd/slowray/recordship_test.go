package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/store"
)

// logsServer takes lines as VictoriaLogs does, and answers its question which
// positions are there. Now and then it fails, before it has stored something or
// after.
type logsServer struct {
	mu      sync.Mutex
	rng     *rand.Rand
	down    bool
	streams map[string]map[uint64]logsLine
	order   map[string][]uint64
	twice   int
	wrong   string
	asked   int
}

type logsLine struct {
	at       string // _time
	requests uint64
	label    string
}

var positionRange = regexp.MustCompile(`stream="([a-z]+)".* position:range\[(\d+), (\d+)\]`)

func (l *logsServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	l.mu.Lock()
	defer l.mu.Unlock()
	fault := l.rng.IntN(10)
	if err != nil || l.down || fault == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if strings.HasPrefix(r.URL.Path, "/select/") {
		l.asked++
		form, _ := url.ParseQuery(string(body))
		m := positionRange.FindStringSubmatch(form.Get("query"))
		if m == nil {
			l.wrong = "query: " + form.Get("query")
			return
		}
		from, _ := strconv.ParseUint(m[2], 10, 64)
		to, _ := strconv.ParseUint(m[3], 10, 64)
		for p := from; p <= to; p++ {
			if _, ok := l.streams[m[1]][p]; ok {
				fmt.Fprintf(w, "{\"position\":\"%d\"}\n", p)
			}
		}
		return
	}
	zip, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		l.wrong = err.Error()
		return
	}
	for scan := bufio.NewScanner(zip); scan.Scan(); {
		var line map[string]string
		if err := json.Unmarshal(scan.Bytes(), &line); err != nil {
			l.wrong = err.Error() + " in " + scan.Text()
			continue
		}
		s := line["stream"]
		if s == "hosts" {
			continue
		}
		p, _ := strconv.ParseUint(line["position"], 10, 64)
		n, _ := strconv.ParseUint(line["requests"], 10, 64)
		if l.streams[s] == nil {
			l.streams[s] = map[uint64]logsLine{}
		}
		if _, ok := l.streams[s][p]; ok {
			l.twice++
		}
		l.streams[s][p] = logsLine{line["_time"], n, line["label.rack"] + "/" + line["host"]}
		l.order[s] = append(l.order[s], p)
	}
	if fault == 1 {
		w.WriteHeader(http.StatusBadGateway) // it has stored it all the same
	}
}

// TestShipperIsKilled kills an agent that sends again and again, while what it sends
// to fails and is away: in the end each record of the history is there once.
func TestShipperIsKilled(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIP: needs root, to record requests: what arrives from a killed agent is NOT tested")
	}
	kills := 3
	if testing.Short() {
		kills = 2
	}
	if text := os.Getenv(killsVariable); text != "" {
		var err error
		if kills, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s: %v", killsVariable, err)
		}
	}
	l := &logsServer{rng: rand.New(rand.NewPCG(1, 2)), streams: map[string]map[uint64]logsLine{}, order: map[string][]uint64{}}
	srv := httptest.NewServer(l)
	defer srv.Close()
	dir := t.TempDir()
	load := runLoad(t)
	args := []string{"--window", "5s", "--to", "victorialogs://" + strings.TrimPrefix(srv.URL, "http://"), "--label", "rack=r1", "--host", "db-7"}
	for n := range kills {
		run := startRecorder(t, dir, args...)
		time.Sleep(1100*time.Millisecond + rand.N(900*time.Millisecond))
		l.mu.Lock()
		l.down = n%2 == 1 && !l.down
		l.mu.Unlock()
		if err := run.cmd.Process.Kill(); err != nil { // SIGKILL
			t.Fatal(err)
		}
		_ = run.cmd.Wait()
	}
	l.mu.Lock()
	l.down = false
	l.rng = rand.New(rand.NewPCG(3, 4))
	l.mu.Unlock()
	last := startRecorder(t, dir, args...)
	wait := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		newest := ""
		for _, line := range l.streams["seconds"] {
			newest = max(newest, line.at)
		}
		at, err := time.Parse(time.RFC3339, newest)
		return err == nil && at.After(last.began)
	}
	for end := time.Now().Add(30 * time.Second); !wait(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the seconds of the last agent do not arrive")
		}
	}
	_ = last.cmd.Process.Signal(os.Interrupt)
	_ = last.cmd.Wait()

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.twice > 0 || l.wrong != "" {
		t.Errorf("%d lines came twice; %s", l.twice, l.wrong)
	}
	for s, order := range l.order {
		for i := range order[1:] {
			if order[i+1] <= order[i] {
				t.Errorf("%s: %d came after %d", s, order[i+1], order[i])
				break
			}
		}
	}
	// What the history has of the time before the last agent is all there.
	r, err := store.OpenReader(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	here, there := map[string]uint64{}, map[string]uint64{}
	err = r.Points(store.Query{To: last.began.Add(-time.Second)}, time.Second, func(s *store.Second) bool {
		here[time.Unix(s.At, 0).UTC().Format("15:04:05")] += s.Endpoint.Requests
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range l.streams["seconds"] {
		at, _ := time.Parse(time.RFC3339, line.at)
		there[at.Format("15:04:05")] += line.requests
		if line.label != "r1/db-7" {
			t.Fatalf("label and host are %q", line.label)
		}
	}
	for at, n := range here {
		if there[at] != n {
			t.Errorf("%s: %d requests here, %d there", at, n, there[at])
		}
	}
	if len(here) == 0 {
		t.Error("there is no history")
	}
	t.Logf("%d kills: %d seconds, %d requests of %d arrived, asked %d times for positions", kills, len(l.streams["seconds"]), len(l.streams["requests"]), load.between(time.Time{}, time.Now()), l.asked)
}

// runSlowray runs slowray as a process of its own.
func runSlowray(t *testing.T, args ...string) (out, errs string, status int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), beSlowray+"=1")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run()
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

func TestShipFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--to ftp://x":                                 "\"ftp://x\" names no target",
		"--to victorialogs://u:secret@h":               "takes no password",
		"--to victorialogs://h --to-buffer 1":          "--to-buffer 1: must be at least 16M",
		"--to victorialogs://h --label =x":             "a key begins with a letter",
		"--to victorialogs://h --label rack=":          "rack: has no value",
		"--to victorialogs://h --label 1=x":            "a key begins with a letter",
		"--to victorialogs://h --host a\x1bb":          "--host: has something that cannot be printed",
		"--to-history":                                 "for --to, which is missing",
		"--host a":                                     "for --to, which is missing",
		"--to victorialogs://h --to victorialogs://h/": "is given twice",
	} {
		out, errs, code := runSlowray(t, append([]string{"record", "--listen", "off", "--dir", t.TempDir()}, strings.Fields(args)...)...)
		if code != 2 || !strings.Contains(errs, want) || strings.Count(strings.TrimSpace(errs), "\n") > 0 || strings.Contains(errs, "secret") {
			t.Errorf("%s: status %d, %q, %q", args, code, out, errs)
		}
	}
}
