package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	profilespb "go.opentelemetry.io/proto/otlp/profiles/v1development"
	"google.golang.org/protobuf/proto"

	"github.com/slowray/slowray/internal/flame"
	"github.com/slowray/slowray/internal/observe"
)

// TestReadStacks: what is written as pprof is read back, but for what it has
// no place for.
func TestReadStacks(t *testing.T) {
	want := &observe.Stacks{
		StartNS: 1e18, WindowNS: 1e9, Hz: 99,
		Types: []observe.StackValue{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}},
		Frames: []observe.Frame{
			{Name: "leaf", Kind: observe.FrameKernel, Module: "vmlinux"},
			{Name: "handle", Kind: observe.FramePython, File: "/srv/app.py", Line: 7},
			{Name: "main", Kind: observe.FrameNative, Module: "app"},
		},
		Samples: []observe.StackSample{{PID: 7, TID: 8, Comm: "app", Thread: "worker", Frames: []int32{0, 1, 2}, Values: []int64{3, 30}, State: "blocked", Slow: true}},
	}
	var b bytes.Buffer
	if err := flame.Pprof(&b, want, flame.Options{}); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "a.pb.gz")
	if err := os.WriteFile(name, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := readStacks(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	takeKinds(got, want)
	if diff := cmp.Diff(framesOf(want), framesOf(got)); diff != "" {
		t.Error(diff)
	}
	got.Frames, got.Samples[0].Frames = want.Frames, want.Samples[0].Frames
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := os.WriteFile(name, []byte("not a profile"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readStacks(t.Context(), name); err == nil {
		t.Error("nonsense was read")
	}
}

func framesOf(s *observe.Stacks) (out []observe.Frame) {
	for _, f := range s.Samples[0].Frames {
		out = append(out, s.Frames[f])
	}
	return out
}

func TestWithin(t *testing.T) {
	of := &requestTimes{times: map[worker]*workTimes{
		{1, 2}: {slow: united([]span{{100, 200}, {150, 250}}), all: united([]span{{300, 310}, {100, 200}, {150, 250}, {240, 260}})},
		{5, 0}: {all: united([]span{{10, 20}})},
	}}
	for _, c := range []struct {
		pid, tid    int
		from, to    uint64
		slow, other int64
	}{
		{1, 2, 0, 1000, 150, 20},
		{1, 2, 120, 130, 10, 0},
		{1, 2, 245, 305, 5, 15},
		{1, 2, 250, 250, 0, 0},
		{1, 2, 260, 300, 0, 0},
		{1, 3, 0, 1000, 0, 0},
		{5, 9, 15, 30, 0, 5},
	} {
		if slow, other := of.Within(c.pid, c.tid, c.from, c.to); slow != c.slow || other != c.other {
			t.Errorf("%+v: %d, %d", c, slow, other)
		}
	}
}

func TestFlameFormats(t *testing.T) {
	for name, want := range map[string]string{"a.html": ".html", "A.SVG": ".svg", "x.folded": ".folded", "p.pb.gz": ".pb.gz", "p.gz": "", "html": "", "a.png": ""} {
		got := ""
		if i := flameFormat(name); i >= 0 {
			got = flameFormats[i].ending
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestFlameSendsProfiles: whole stacks of this host reach a collector, and one that cannot
// be reached is an error.
func TestFlameSendsProfiles(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs root, to load BPF programs")
	}
	var got profilespb.ProfilesData
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		zip, err := gzip.NewReader(r.Body)
		if err != nil || r.URL.Path != "/v1development/profiles" {
			t.Errorf("%s: %v", r.URL.Path, err)
			return
		}
		body, err := io.ReadAll(zip)
		if err == nil {
			err = proto.Unmarshal(body, &got)
		}
		if err != nil {
			t.Error(err)
		}
	}))
	stop := make(chan struct{})
	go func() { // something uses the CPU
		for n := uint64(1); ; n = n*6364136223846793005 + 1 {
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	defer close(stop)
	args := []string{"flame", "--pid", fmt.Sprint(os.Getpid()), "--for", "500ms", "--hz", "400", "--experimental-otlp-profiles"}
	if _, messages, status := slowrayOut(append(args, collector.URL)...); status != exitNothing || !strings.Contains(messages, "1 profile sent") {
		t.Fatalf("status %d: %s", status, messages)
	}
	samples, own := 0, false
	for _, r := range got.ResourceProfiles {
		for _, a := range r.Resource.Attributes {
			own = own || a.Key == "process.executable.name" && strings.HasPrefix("slowray.test", a.Value.GetStringValue()[:7])
		}
		for _, p := range r.ScopeProfiles[0].Profiles {
			for _, x := range p.Samples {
				samples += len(got.Dictionary.StackTable[x.StackIndex].LocationIndices)
			}
		}
	}
	if !own || samples < 10 || !slices.ContainsFunc(got.Dictionary.StringTable, func(s string) bool { return strings.Contains(s, "TestFlameSendsProfiles") }) {
		t.Errorf("own process: %v, %d frames: %v", own, samples, got.Dictionary.StringTable)
	}
	collector.Close()
	if _, messages, status := slowrayOut(append(args, collector.URL)...); status != exitFailed || !strings.Contains(messages, "connection refused") {
		t.Errorf("status %d: %s", status, messages)
	}
}
