package store

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
)

var historyToWrite = flag.String("history", "", "write testdata/history/NAME as this version records it")

// contents is what a history holds, a line each. The version that recorded it wrote
// them from what it was given, cut to microseconds, not from what it read back.
type contents struct {
	Requests, Seconds, Findings, Windows []string
}

func (c *contents) request(r *Request) {
	c.Requests = append(c.Requests, fmt.Sprintf("%d %d µs %v %v %s %s %v %v why %d weight %v http %d in %d out %d followed %t retrans %d flags %v",
		r.StartNS/1e3, r.TotalNS()/1e3, r.Side, r.Status, r.Process.Comm, r.Process.Unit, r.Local, r.Peer, r.Why, r.Weight, r.HTTP, r.BytesIn, r.BytesOut, r.Followed, r.Retrans, r.Flags.Names())+ends(r.Process.Workload, &r.PeerWorkload))
}

func (c *contents) second(s *Second) {
	e := &s.Endpoint
	line := fmt.Sprintf("%d %s:%d %s requests %d ok %d errors %d recorded %d", s.At, e.Addr, e.Port, s.Process.Comm, e.Requests, e.OK, e.Errors, e.Recorded)
	c.Seconds = append(c.Seconds, line+ends(s.Process.Workload, e.Workload))
}

// ends are who both ends are; versions before slowray.log/2 did not know.
func ends(own observe.Workload, peer *observe.Workload) string {
	text := ""
	if own != (observe.Workload{}) {
		text += fmt.Sprintf(" of %+v", own)
	}
	if peer != nil && *peer != (observe.Workload{}) {
		text += fmt.Sprintf(" peer %+v", *peer)
	}
	return strings.ReplaceAll(text, " Service:}", "}") // those written before 2026-11-29 do not have the field
}

func (c *contents) finding(start time.Time, f *cause.Finding) {
	c.Findings = append(c.Findings, fmt.Sprintf("%s %s: %s", start.UTC().Format(time.RFC3339), f.Cause, f.Title))
}

func (c *contents) window(start time.Time) {
	c.Windows = append(c.Windows, start.UTC().Format(time.RFC3339))
}

// contentsOf reads a history, all of it.
func contentsOf(t *testing.T, dir string) (c contents) {
	t.Helper()
	r, err := OpenReader(dir)
	must(t, err)
	defer r.Close()
	must(t, r.Requests(Query{}, func(r *Request) bool { c.request(r); return true }))
	must(t, r.Points(Query{From: noon, To: noon.Add(time.Minute)}, time.Second, func(s *Second) bool { c.second(s); return true }))
	slices.Sort(c.Seconds)
	findings, err := r.Findings(time.Time{}, time.Time{})
	must(t, err)
	for _, f := range findings {
		c.finding(f.Start, &f.Finding)
	}
	windows, err := r.Observations(time.Time{}, time.Time{})
	must(t, err)
	for _, w := range windows {
		o, err := observe.Load(w.Path)
		must(t, err)
		c.window(o.Window.Start)
	}
	if skipped := r.Skipped(); len(skipped) > 0 {
		t.Errorf("skipped: %v", skipped)
	}
	return c
}

// writeHistory records a history as it is right after kill -9: half in files, half in logs.
func writeHistory(t *testing.T, name string) {
	var c contents
	tr := newTraffic(1)
	dir := filepath.Join(t.TempDir(), "history")
	for half := range 2 {
		s := openAt(t, dir, Options{}, &clock{t: noon.Add(time.Minute)})
		begin := noon.Add(time.Duration(half) * 30 * time.Second)
		for i := range 12 {
			var r Request
			tr.next(&r, begin.UnixNano()+int64(i)*1e6)
			if i == 5 {
				r.Flags, r.Retrans, r.Why, r.Weight = observe.FlagTimeout, 1, Slow, 1
			}
			if i%3 > 0 {
				r.Process.Workload = observe.Workload{Namespace: "shop", Pod: "cart-7d9f8b6c5d-x2x4z", Container: "web", Kind: "Deployment", Name: "cart", Node: "node-7", Zone: "b"}
			}
			if i%4 > 1 {
				r.PeerWorkload = observe.Workload{Namespace: "shop", Pod: fmt.Sprint("db-", i), Kind: "StatefulSet", Name: "db", Node: "node-9", Zone: "a", Service: "db"}
			}
			s.AddRequest(&r)
			r = stored(r)
			c.request(&r)
		}
		for i := range 4 {
			sec := tr.second(i%2, begin.Unix()+int64(i/2), 20)
			if i%2 > 0 {
				sec.Process.Workload = observe.Workload{Namespace: "shop", Pod: "cart-7d9f8b6c5d-x2x4z", Container: "web", Kind: "Deployment", Name: "cart", Node: "node-7", Zone: "b"}
				sec.Endpoint.Workload = &observe.Workload{Namespace: "shop", Kind: "Service", Name: "db"}
			}
			s.AddSecond(&sec)
			c.second(&sec)
		}
		f := cause.Finding{Cause: "blocked-on-disk", Title: "Threads wait for the disk", Weight: 0.5}
		o := &observe.Observation{Schema: observe.SchemaObservation, Version: "test", Window: observe.Window{Start: begin, Seconds: 10}}
		must(t, s.AddObservation(o, []cause.Finding{f}))
		c.finding(begin, &f)
		c.window(begin)
		must(t, s.Sync())
		if half == 1 {
			must(t, os.CopyFS(name, os.DirFS(dir)))
		}
		must(t, s.Close())
	}
	text, err := json.MarshalIndent(c, "", "\t")
	must(t, err)
	must(t, os.WriteFile(name+".json", append(text, '\n'), 0o644))
}

// TestUpgrade: this version reads what each version before has recorded, goes on from
// what it had not yet put into files, and loses nothing. A change of a format needs a
// history of its own here: go test ./internal/store -run TestUpgrade -history DATE.
func TestUpgrade(t *testing.T) {
	if *historyToWrite != "" {
		writeHistory(t, filepath.Join("testdata/history", *historyToWrite))
	}
	recorded, err := filepath.Glob("testdata/history/*.json")
	if must(t, err); len(recorded) < 2 {
		t.Fatalf("%d histories", len(recorded))
	}
	for _, path := range recorded {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".json"), func(t *testing.T) {
			var want contents
			text, err := os.ReadFile(path)
			must(t, err)
			must(t, json.Unmarshal(text, &want))
			slices.Sort(want.Seconds)
			dir := filepath.Join(t.TempDir(), "history")
			must(t, os.CopyFS(dir, os.DirFS(strings.TrimSuffix(path, ".json"))))
			if diff := gocmp.Diff(want, contentsOf(t, dir)); diff != "" {
				t.Fatalf("read: %s", diff)
			}
			s := openAt(t, dir, Options{}, &clock{t: noon.Add(2 * time.Hour)})
			if st := s.Stats(); st.Recovered != 17 || st.Torn != 0 {
				t.Errorf("%d entries of the logs are kept, want 17; %d bytes are torn", st.Recovered, st.Torn)
			}
			r := numbered(1)
			r.StartNS = noon.Add(time.Hour).UnixNano()
			s.AddRequest(&r)
			got := stored(r)
			want.request(&got)
			must(t, s.Sync())
			must(t, s.keep())
			must(t, s.Close())
			if logs, err := openLogs(homeAt(t, dir).Root); err != nil || len(logs) > 0 {
				t.Errorf("%d logs are left: %v", len(logs), err)
			}
			if diff := gocmp.Diff(want, contentsOf(t, dir)); diff != "" {
				t.Errorf("gone on with: %s", diff)
			}
		})
	}
}

// TestMergesFilesOfAnotherVersion: also those whose row groups are large enough to be
// copied as they are.
func TestMergesFilesOfAnotherVersion(t *testing.T) {
	dir := t.TempDir()
	home := homeAt(t, dir)
	want := numbered(7)
	var row laterRequest
	row.set(&want, new(Words))
	second := noon.Unix()
	for i := range uint64(2) {
		seg := segment{kind: kindRequests, low: 1 + i, high: 1 + i, first: second, last: second}
		must(t, publish(home, &seg, func(w *parquet.GenericWriter[laterRequest]) error {
			_, err := w.Write(slices.Repeat([]laterRequest{row}, copyRows))
			return err
		}))
	}
	s := openAt(t, dir, Options{}, &clock{t: noon.Add(26 * time.Hour)})
	must(t, s.keep())
	must(t, s.Close())
	if list, _, err := segments(home.Root, kindRequests); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	n := 0
	for _, r := range readAll(t, dir, Query{}) {
		if r == stored(want) {
			n++
		}
	}
	if n != 2*copyRows {
		t.Errorf("%d requests", n)
	}
}

// laterRequest is a request as a later version might store it.
type laterRequest struct {
	requestRow
	Pod  string `parquet:"pod,dict"`
	Hops int64  `parquet:"hops"`
}

// TestDowngrade: a version reads the files of a later one as far as it knows their
// columns, and leaves alone what it does not know. What the later one had not yet put
// into files is set aside when its logs are of another format (TestLogOfAnotherVersion).
func TestDowngrade(t *testing.T) {
	dir := t.TempDir()
	home := homeAt(t, dir)
	want := numbered(7)
	var row laterRequest
	row.set(&want, new(Words))
	row.Pod, row.Hops = "cart-5d4f", 3
	second := noon.Unix()
	seg := segment{kind: kindRequests, low: 1, high: 1, first: second, last: second}
	must(t, publish(home, &seg, func(w *parquet.GenericWriter[laterRequest]) error {
		w.SetKeyValueMetadata("slowray.schema", "slowray.requests/2")
		_, err := w.Write([]laterRequest{row})
		return err
	}))
	unknown := filepath.Join("pods", "2026-11-22", "120000-120000.1.parquet")
	must(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(unknown)), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, unknown), []byte("of a later version"), 0o600))

	sameRequests(t, readAll(t, dir, Query{}), []Request{stored(want)})
	c := &clock{t: noon.Add(26 * time.Hour)} // the files of the day become one
	s := openAt(t, dir, Options{}, c)
	next := numbered(8)
	s.AddRequest(&next)
	must(t, s.Sync())
	must(t, s.keep())
	must(t, s.Close())
	sameRequests(t, readAll(t, dir, Query{}), []Request{stored(want), stored(next)})
	// What it merges it has written anew: the columns that it does not know are gone.
	if list, _, err := segments(home.Root, kindRequests); err != nil || len(list) != 1 || list[0].low != 1 || list[0].high != 2 {
		t.Errorf("%+v, %v", list, err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, unknown)); err != nil || string(text) != "of a later version" {
		t.Errorf("%q, %v", text, err)
	}
}
