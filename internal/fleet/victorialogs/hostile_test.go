package victorialogs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// answering is a Target whose front answers what the test says, and how many lines it was
// sent.
func answering(t *testing.T, answer http.HandlerFunc) (target *Target, sent func() int) {
	t.Helper()
	n := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/insert/") {
			n++
			return
		}
		answer(w, r)
	}))
	t.Cleanup(srv.Close)
	target, err := Open(Scheme + strings.TrimPrefix(srv.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	target.settle = 0
	t.Cleanup(func() { target.Close() })
	return target, func() int { return n }
}

// What a server says is there of a batch that was sent before is believed only when it
// can be: else records come twice.
func TestAnswersThatCannotBeAreNotBelieved(t *testing.T) {
	position := func(p int) string { return fmt.Sprintf(`{"position":"%d"}`+"\n", p) }
	for name, x := range map[string]struct {
		answer string
		ok     bool
	}{
		"all of it":        {position(1) + position(2) + position(3), true},
		"nothing":          {"", true},
		"twice":            {strings.Repeat(position(1)+position(2)+position(3), 2), true},
		"others":           {position(1) + position(9), false},
		"more than asked":  {strings.Repeat(position(1), 8), false},
		"without an end":   {strings.Repeat(position(1), 1<<16), false},
		"a long line":      {`{"position":"1"}` + strings.Repeat(" ", 7*maxLine) + "\n" + position(2), false},
		"a page":           {"<!DOCTYPE html>\n", false},
		"no number":        {`{"position":"x"}` + "\n", false},
		"cut off":          {position(1) + `{"position":"2`, false},
		"a number of JSON": {`{"position":1}` + "\n", false},
	} {
		target, sent := answering(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, x.answer) })
		b := requests(1, 3, time.Now().UnixNano())
		b.Again = true
		if err := target.Send(t.Context(), b); (err == nil) != x.ok || err != nil && !fleet.Temporary(err) {
			t.Errorf("%s: %v", name, err)
		}
		if want := x.answer == ""; (sent() > 0) != want {
			t.Errorf("%s: %d inserts", name, sent())
		}
	}
}

// Heads without an end, redirects and texts for a terminal do no harm.
func TestServersThatDoNotBehave(t *testing.T) {
	target, _ := answering(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 2*maxHeader)) })
	b := requests(1, 1, 1e18)
	b.Again = true
	if err := target.Send(t.Context(), b); err == nil {
		t.Error("a head of megabytes was taken")
	}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer elsewhere.Close()
	target, _ = answering(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	})
	if err := target.Send(t.Context(), b); err == nil || fleet.Temporary(err) {
		t.Errorf("a redirect: %v", err)
	}
	target, _ = answering(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(500)
		io.WriteString(w, "\x1b[2J\x1b]0;x\a\xff\u202e")
	})
	if err := target.Send(t.Context(), b); err == nil || strings.ContainsAny(err.Error(), "\x1b\a\u202e") || !utf8.ValidString(err.Error()) {
		t.Errorf("%q", err)
	}
}

// FuzzPositions reads what a server says is there: positions of the batch, and nothing
// that was not in the answer.
func FuzzPositions(f *testing.F) {
	f.Add([]byte(`{"position":"17"}`+"\n"+`{"position":"18"}`+"\n"), uint64(17), 3)
	f.Add([]byte(`{"_time":"2026-01-01T00:00:00Z","position":"18446744073709551615"}`), uint64(1), 1)
	f.Add([]byte("null\n"), uint64(0), 1)
	f.Fuzz(func(t *testing.T, answer []byte, first uint64, count int) {
		count = min(max(count, 1), 1000)
		b := &fleet.Batch{First: fleet.Position(first), Last: fleet.Position(first) + fleet.Position(count-1), Count: count}
		budgettest.Within(t, len(answer), budgettest.Usual, func() {
			there, err := parsePositions(answer, b)
			if err != nil {
				return
			}
			if len(there) > count || len(there) > bytes.Count(answer, []byte("\n"))+1 {
				t.Errorf("%d positions of %d", len(there), count)
			}
			for p := range there {
				if p < b.First || p > b.Last || !bytes.Contains(answer, []byte(fmt.Sprint(uint64(p)))) {
					t.Errorf("%d is of no line", p)
				}
			}
		})
	})
}

// FuzzURL reads a URL. An error shows nothing that may be a password, and what is taken
// has fronts that are URLs of their own.
func FuzzURL(f *testing.F) {
	f.Add("victorialogs://me@a:9428,b/x?secure=1&account=1&project=2")
	f.Add("victorialogs://me:secret@a")
	f.Add("victorialogs://[::1]:1/%zz?%zz")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "password-file") {
			return // it would read any file of this machine
		}
		budgettest.Within(t, len(text), budgettest.Usual, func() {
			c, err := parse(text)
			if err != nil {
				return
			}
			if len(c.fronts) == 0 {
				t.Fatal("no front")
			}
			for _, front := range c.fronts {
				if _, err := http.NewRequest("POST", front+"/insert/jsonline", nil); err == nil && strings.ContainsAny(front[len("http://"):], " @") {
					t.Errorf("%q", front)
				}
			}
		})
	})
}

// FuzzLines writes what comes from watched hosts: each record is one line of JSON, with
// no name twice.
func FuzzLines(f *testing.F) {
	f.Add("db \"7\"", "rack\n", "r\\1", "GET /\x1b[31m\"\xff", "svc", int64(1e18), uint64(3))
	f.Add("", "", "", "", "", int64(-1), uint64(1<<63))
	f.Fuzz(func(t *testing.T, host, labelName, label, text, comm string, at int64, n uint64) {
		var l lines
		h := &fleet.Host{Name: host, ID: text, Labels: map[string]string{labelName: label}, Kernel: comm, CPUs: int(n), Addresses: []string{text}, Version: label}
		budgettest.Within(t, len(host)+len(labelName)+len(label)+len(text)+len(comm), budgettest.Cost{PerByte: 256, Fixed: 1 << 20, CPU: time.Second}, func() {
			r := store.Request{Why: store.Slow}
			r.Side, r.StartNS, r.Label, r.HTTP, r.BytesIn, r.Flags = observe.Called, at, text, int(n), n, observe.RequestFlags(uint32(n))
			r.Process.Comm, r.Process.Unit, r.Process.ContainerName = comm, host, label
			r.Local, r.Peer = netip.AddrPortFrom(netip.IPv6LinkLocalAllNodes().WithZone(label), 1), netip.AddrPort{}
			l.request(h, fleet.Position(n), &r)
			s := store.Second{At: at / 1e9, Process: r.Process}
			s.Endpoint = observe.Endpoint{Side: "served", Addr: text, Port: int(n), Requests: n}
			s.Endpoint.Total.AddN(at, n%1000)
			l.second(h, 1, &s)
			parent := cause.ID(label)
			l.finding(h, 1, &store.Finding{Start: time.Unix(0, at), Finding: cause.Finding{Title: text, Cause: cause.ID(comm), ConsequenceOf: &parent}})
			l.greeting(h, time.Unix(0, at))
		})
		records := slices.Collect(bytes.Lines(l.b))
		if len(records) != 4 {
			t.Fatalf("%d lines of 4", len(records))
		}
		for _, line := range records {
			var got map[string]string
			if err := json.Unmarshal(line, &got); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if keys := bytes.Count(line, []byte(`":"`)); labelName == "" && len(got) != keys && !strings.Contains(host+label+text+comm, `":`) {
				t.Errorf("%d names in %s", keys, line)
			}
		}
	})
}
