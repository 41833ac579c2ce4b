package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/observe/observetest"
	"github.com/slowray/slowray/internal/store"
)

// noon is when the history of these tests begins: three windows of a minute, the
// first two with one fault and the third with another, and after half an hour
// one more.
var noon = func() time.Time {
	y, m, d := time.Now().AddDate(0, 0, -2).Date()
	return time.Date(y, m, d, 12, 0, 0, 0, time.Local)
}()

func testHistory(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "history")
	s, err := store.Open(dir, store.Options{MaxAge: 100 * 365 * 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"nginx-throughput-S0", "nginx-throughput-S0", "cpu-saturated", "cpu-saturated"} {
		o, err := observe.Load("../../internal/diagnose/testdata/" + name + ".slowray")
		if err != nil {
			t.Fatal(err)
		}
		o.Window.Start, o.Window.Seconds = noon.Add(time.Duration(i)*time.Minute).UTC(), 59
		if i == 3 {
			o.Window.Start = noon.Add(30 * time.Minute).UTC()
			o.Stacks = &observe.Stacks{WindowNS: 4e9, Hz: 97, Types: []observe.StackValue{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}},
				Frames:  []observe.Frame{{Name: "inner", Kind: observe.FramePython}, {Name: "outer", Kind: observe.FramePython}},
				Samples: []observe.StackSample{{PID: 7, Comm: "app", Frames: []int32{0, 1}, Values: []int64{40, 4e8}}}}
			o.Waits = &observe.WaitGraph{Shares: []observe.WaitShare{{PID: 7, ThreadNS: 2e9, Chain: observe.WaitChain{Hops: []observe.WaitHop{
				{Process: observe.WaitProcess{PID: 7, Comm: "app"}, TID: 8, Stack: []string{"book"}, Syscall: "futex", Kind: observe.WaitLock, Wants: observe.WantsRelease}}}}}}
		}
		if err := s.AddObservation(o, diagnose.Diagnose(t.Context(), o, diagnose.Saved).Findings); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		r := store.Request{Process: observe.Identity{Comm: "app\x1b[31m"}, Why: store.Sampled}
		r.Side, r.StartNS, r.PID, r.Seq, r.Weight = observe.Served, noon.Add(time.Duration(i)*time.Second).UnixNano(), 7, 1, 1
		r.Local, r.Peer = netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("10.0.0.2:4000")
		r.Requests, r.Status, r.HTTP = 1, observe.StatusOK, 200
		r.Ledger[observe.Server] = int64(i+1) * int64(10*time.Millisecond)
		if i == 9 {
			r.Side, r.Local, r.Peer = observe.Called, r.Peer, r.Local
		}
		s.AddRequest(&r)
		sec := store.Second{At: r.StartNS / 1e9, Endpoint: observe.Endpoint{Side: "served", Addr: "10.0.0.1", Port: 80, Comm: "app", Requests: 1}}
		s.AddSecond(&sec)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// slowray runs slowray and gives what it wrote.
func slowray(t *testing.T, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	if status := run(args, &out, &errs); status != want {
		t.Fatalf("%q: status %d, want %d: %s", args, status, want, errs.String())
	}
	return out.String(), errs.String()
}

func TestWhyAt(t *testing.T) {
	dir := testHistory(t)
	at := func(minute, second int) string {
		return noon.Add(time.Duration(minute)*time.Minute + time.Duration(second)*time.Second).Format("2006-01-02 15:04:05")
	}
	windows, err := filepath.Glob(filepath.Join(dir, "observations", "*", "*"))
	if err != nil || len(windows) != 4 {
		t.Fatalf("%q, %v", windows, err)
	}
	// One window is judged as the file is.
	live, _ := slowray(t, exitFindings, "replay", windows[0], "--json")
	for _, command := range []string{"why", "replay"} {
		got, said := slowray(t, exitFindings, command, "--at", at(0, 30), "--dir", dir, "--json")
		if got != live || !strings.Contains(said, "the window from") {
			t.Errorf("%s --at differs from replaying the window (%s)", command, said)
		}
	}
	// What may last can be proved now, also where several windows are judged together.
	for _, length := range []string{"1s", "2m"} {
		if text, _ := slowray(t, exitFindings, "why", "--at", at(0, 0), "--for", length, "--dir", dir); !strings.Contains(text, "\n   prove     slowray prove ") {
			t.Errorf("for %s: no command to prove it with:\n%s", length, text)
		}
	}
	// In the second between two windows the nearer one answers.
	slowray(t, exitFindings, "why", "--at", at(1, 59), "--dir", dir)
	// After the last one, too, which is said.
	if _, said := slowray(t, exitFindings, "why", "--at", at(3, 2), "--dir", dir); !strings.Contains(said, "nothing was watched at") || !strings.Contains(said, "12:03:02; the nearest window is the one from") {
		t.Errorf("%q", said)
	}

	text, said := slowray(t, exitFindings, "why", "--at", at(0, 0), "--for", "31m", "--dir", dir, "--json")
	if !strings.Contains(said, "nothing was recorded from") {
		t.Errorf("the gap of half an hour is not told: %s", said)
	}
	schema, err := jsonschema.NewCompiler().Compile("../../schema/report.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(doc); err != nil {
		t.Error(err)
	}
	var r diagnose.Report
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	seen := map[string]observe.Over{}
	for _, f := range r.Findings {
		if f.Over != nil {
			seen[string(f.Cause)] = *f.Over
		}
	}
	if o := seen["conntrack-full"]; o.Windows != 2 || o.Of != 4 || !o.Onset.Equal(noon) || !o.End.Equal(noon.Add(time.Minute+59*time.Second)) {
		t.Errorf("conntrack-full: %+v", o)
	}
	if o := seen["cpu-saturated"]; o.Windows != 2 || !o.Onset.Equal(noon.Add(2*time.Minute)) || !o.End.Equal(noon.Add(30*time.Minute+59*time.Second)) {
		t.Errorf("cpu-saturated: %+v", o)
	}
	plain, _ := slowray(t, exitFindings, "why", "--at", at(0, 0), "--for", "3m", "--dir", dir)
	if !strings.Contains(plain, "3 windows, 177 s watched") || !strings.Contains(plain, "in 2 of 3 windows") {
		t.Errorf("the text does not tell of the windows:\n%s", plain)
	}

	saved := filepath.Join(t.TempDir(), "saved")
	slowray(t, exitFindings, "why", "--at", at(2, 10), "--dir", dir, "--save", saved)
	if _, err := os.Stat(saved); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"there is no window of", []string{"why", "--at", at(10, 0), "--dir", dir}},
		{"go from", []string{"why", "--at", at(10, 0), "--dir", dir}},
		{"nothing listened on TCP port 9", []string{"why", "--at", at(0, 30), "--dir", dir, "--port", "9"}},
		{"no process with pid 99999999", []string{"why", "--at", at(0, 30), "--dir", dir, "--pid", "99999999"}},
		{"slowray record keeps one", []string{"why", "--at", at(0, 30), "--dir", dir + "x"}},
		{"is no time", []string{"why", "--at", "soon", "--dir", dir}},
		{"--save goes with one window", []string{"why", "--at", at(0, 0), "--for", "3m", "--dir", dir, "--save", saved}},
		{"give a FILE, or a time", []string{"replay"}},
		{"give two windows", []string{"compare", "--at", at(0, 30)}},
	} {
		if _, said := slowray(t, exitFailed, c.args...); !strings.Contains(said, c.want) || strings.Count(said, "\n") > 2 {
			t.Errorf("%q: %q, want %q", c.args, said, c.want)
		}
	}
}

func TestCompareAt(t *testing.T) {
	dir := testHistory(t)
	stamp := func(minute int) string {
		return noon.Add(time.Duration(minute)*time.Minute + 30*time.Second).UTC().Format(time.RFC3339)
	}
	windows, _ := filepath.Glob(filepath.Join(dir, "observations", "*", "*"))
	want, _ := slowray(t, exitFindings, "compare", windows[0], windows[2])
	for _, args := range [][]string{
		{"compare", "--at", stamp(0), "--at", stamp(2), "--dir", dir},
		{"compare", windows[0], "--at", stamp(2), "--dir", dir},
	} {
		if got, _ := slowray(t, exitFindings, args...); got != want {
			t.Errorf("%q differs from comparing the files:\n%s", args, got)
		}
	}
}

func TestRequestsAt(t *testing.T) {
	dir := testHistory(t)
	at := noon.UTC().Format(time.RFC3339)
	lines := func(args ...string) (n int) {
		t.Helper()
		out, said := slowray(t, exitNothing, append([]string{"requests", "--at", at, "--dir", dir, "--format", "json"}, args...)...)
		for line := range strings.Lines(out) {
			if !json.Valid([]byte(line)) {
				t.Errorf("%q", line)
			}
			n++
		}
		if !strings.Contains(said, "which stand for") {
			t.Errorf("%q", said)
		}
		return n
	}
	for _, c := range []struct {
		want int
		args []string
	}{
		{10, nil}, {4, []string{"--for", "4s"}}, {3, []string{"--limit", "3"}}, {5, []string{"--slow", "60ms"}},
		{9, []string{"--side", "served"}}, {1, []string{"--side", "called"}}, {10, []string{"--port", "80"}}, {10, []string{"--port", "80,81"}},
		{0, []string{"--port", "81"}}, {0, []string{"--pid", "8"}}, {9, []string{"--peer", "10.0.0.2"}},
	} {
		if got := lines(c.args...); got != c.want {
			t.Errorf("%v: %d requests, want %d", c.args, got, c.want)
		}
	}
	out, _ := slowray(t, exitNothing, "requests", "--at", at, "--dir", dir)
	if strings.Contains(out, "\x1b[31m") {
		t.Error("the name of a process drives the terminal")
	}
	if _, said := slowray(t, exitFailed, "requests", "--at", noon.AddDate(0, -1, 0).Format("2006-01-02 15:04"), "--dir", dir); !strings.Contains(said, "the history in") {
		t.Errorf("%q", said)
	}
}

func TestFlameAt(t *testing.T) {
	dir := testHistory(t)
	file := filepath.Join(t.TempDir(), "out.folded")
	// Whole stacks where they were recorded.
	_, said := slowray(t, exitNothing, "flame", "--at", noon.Add(30*time.Minute+10*time.Second).Format(time.RFC3339), "--dir", dir, "-o", file)
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), "outer") || !strings.Contains(string(text), ";inner") || strings.Contains(said, "only the functions") {
		t.Errorf("%s, %v, %s", text, err, said)
	}
	// Else the functions, which is said.
	_, said = slowray(t, exitNothing, "flame", "--at", noon.Add(2*time.Minute+10*time.Second).Format(time.RFC3339), "--dir", dir, "-o", file)
	if !strings.Contains(said, "only the functions") {
		t.Errorf("%q", said)
	}
	// Of what used little, and of what serves nobody, no function is known: that is said too.
	if out, _ := slowray(t, exitNothing, "flame", "--at", noon.Add(2*time.Minute+10*time.Second).Format(time.RFC3339), "--dir", dir); !strings.Contains(strings.Join(strings.Fields(out), " "), "of this CPU time it is only known which process used it") {
		t.Errorf("%s", out)
	}
	// Off the CPU, what threads were seen waiting for.
	_, said = slowray(t, exitNothing, "flame", "--off-cpu", "--at", noon.Add(30*time.Minute+10*time.Second).Format(time.RFC3339), "--dir", dir, "-o", file)
	if text, err = os.ReadFile(file); err != nil || string(text) != "app;book;futex_[k];lock: waits for its release_[k] 2000000000\n" || strings.Contains(said, "only the functions") {
		t.Errorf("%q, %v, %s", text, err, said)
	}
	if out, _ := slowray(t, exitNothing, "flame", "--off-cpu", "--at", noon.Add(30*time.Minute+10*time.Second).Format(time.RFC3339), "--dir", dir, "--pid", "7"); !strings.Contains(out, "waits for its release") || strings.Contains(out, "at least 1ms") {
		t.Errorf("%s", out)
	}
	if _, said := slowray(t, exitFailed, "flame", "--off-cpu", "--at", noon.Add(10*time.Second).Format(time.RFC3339), "--dir", dir); !strings.Contains(said, "no thread of a service was seen waiting") {
		t.Errorf("%q", said)
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"--slow is for what is recorded now", []string{"--slow", "10ms"}},
		{"--min is for what is recorded now", []string{"--off-cpu", "--min", "2ms"}},
		{"no whole stacks off the CPU", []string{"--off-cpu", "--diff", "a.pb.gz"}},
		{"were seen waiting", []string{"--off-cpu", "--pid", "12345678"}},
		{"were found computing", []string{"--pid", "12345678"}},
	} {
		args := append([]string{"flame", "--at", noon.Add(30*time.Minute + 10*time.Second).Format(time.RFC3339), "--dir", dir}, c.args...)
		if _, said := slowray(t, exitFailed, args...); !strings.Contains(said, c.want) {
			t.Errorf("%v: %q", c.args, said)
		}
	}
}

func TestByteSize(t *testing.T) {
	for text, want := range map[string]int64{"16M": 16 << 20, "2G": 2 << 30, "1T": 1 << 40, "33554432": 32 << 20, "65536K": 64 << 20} {
		if got, err := byteSize(text); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "G", "2g", "2GB", "-1G", "1M", "0", "9999999T", "2 G", "1.5G", "GG2", "2KM"} {
		if got, err := byteSize(text); err == nil {
			t.Errorf("%q: %d, want an error", text, got)
		}
	}
}

// A window that cannot be read costs a range no other.
func TestDamagedWindow(t *testing.T) {
	dir := testHistory(t)
	windows, err := filepath.Glob(filepath.Join(dir, "observations", "*", "*"))
	if err != nil || len(windows) != 4 {
		t.Fatalf("%q, %v", windows, err)
	}
	if err := os.WriteFile(windows[1], []byte("\x1b[31mgarbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	at := noon.Format("2006-01-02 15:04:05")
	for _, args := range [][]string{{"why"}, {"flame", "-o", filepath.Join(t.TempDir(), "x.html")}} {
		var out, errs bytes.Buffer
		run(append(args, "--at", at, "--for", "3m", "--dir", dir), &out, &errs)
		if n := strings.Count(errs.String(), "slowray: not read: "); n != 1 {
			t.Errorf("%q: %d windows are reported: %s", args, n, errs.String())
		}
	}
	if out, _ := slowray(t, exitFindings, "why", "--at", at, "--for", "3m", "--dir", dir); !strings.Contains(out, "2 windows") {
		t.Errorf("the others are not judged:\n%s", out)
	}
	_, said := slowray(t, exitFailed, "why", "--at", noon.Add(90*time.Second).Format("2006-01-02 15:04:05"), "--dir", dir)
	if strings.Count(strings.TrimSpace(said), "\n") > 1 || strings.Contains(said, "\x1b") {
		t.Errorf("%q", said)
	}
}

// A container that was started anew is the same by its name.
func TestContainerStartedAnew(t *testing.T) {
	dir := t.TempDir()
	var windows []store.Window
	for i, id := range []string{strings.Repeat("a", 64), strings.Repeat("b", 64)} {
		o := &observe.Observation{Schema: observe.SchemaObservation, Window: observe.Window{Start: noon.Add(time.Duration(i) * time.Minute), Seconds: 59},
			Processes: []observe.Process{{PID: 10 + i, Comm: "app", Container: id}}, Containers: []observe.Container{{ID: id, Name: "web"}}}
		path := filepath.Join(dir, id)
		observetest.Save(t, path, o)
		windows = append(windows, store.Window{Path: path})
	}
	r, _, err := judgeWindows(t.Context(), &streams{io.Discard, io.Discard}, windows, observe.Filter{Container: "web"})
	if err != nil || r.History.Windows != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestPortThatBeganLater: what began to listen within a window has answered there, and is judged.
func TestPortThatBeganLater(t *testing.T) {
	o := observe.Observation{Endpoints: []observe.Endpoint{{Side: observe.Served.String(), Port: 4675}, {Side: observe.Called.String(), Port: 5432}}}
	if err := filtered(&o, observe.Filter{Port: 4675}); err != nil || o.Filter.Port != 4675 {
		t.Errorf("%v, port %d", err, o.Filter.Port)
	}
	if err := filtered(&o, observe.Filter{Port: 5432}); err == nil {
		t.Error("a port that is called elsewhere is taken for a service")
	}
}
