package export

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/collector/pdata/pprofile"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/record"
)

// stacksOf are two programs on the CPU, and one that waits.
func stacksOf() (on, off *observe.Stacks) {
	frames := []observe.Frame{
		{Name: "tcp_sendmsg", Kind: observe.FrameKernel}, {Name: "handle", Kind: observe.FrameGo, Module: "/srv/app", File: "main.go", Line: 12},
		{Name: "main.main", Kind: observe.FrameGo, Module: "/srv/app", File: "main.go", Line: 40},
	}
	on = &observe.Stacks{StartNS: 1_790_000_000_000_000_000, WindowNS: 1e10, Hz: 100, Frames: frames,
		Types: []observe.StackValue{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}},
		Samples: []observe.StackSample{
			{PID: 7, TID: 8, Comm: "app", Thread: "worker", Frames: []int32{0, 1, 2}, Values: []int64{30, 3e8}},
			{PID: 7, TID: 9, Comm: "app", Thread: "worker", Frames: []int32{1, 2}, Values: []int64{12, 12e7}},
			{PID: 9, Comm: "redis", Values: []int64{5, 5e7}},
			{PID: 9, Comm: "redis", Values: []int64{0, 0}},
		}}
	off = &observe.Stacks{StartNS: on.StartNS, WindowNS: on.WindowNS, Frames: frames[:1], Types: []observe.StackValue{{Type: "off-cpu", Unit: "nanoseconds"}},
		Samples: []observe.StackSample{{PID: 7, Comm: "app", Frames: []int32{0}, Values: []int64{4e9}, State: "blocked"}}}
	return on, off
}

// profileLines is what is in a message, as the Collector reads it: a line for each sample.
func profileLines(p pprofile.Profiles) (lines []string) {
	d := p.Dictionary()
	text := func(i int32) string { return d.StringTable().At(int(i)) }
	attributes := func(indices []int32) string {
		var list []string
		for _, i := range indices {
			a := d.AttributeTable().At(int(i))
			list = append(list, text(a.KeyStrindex())+"="+a.Value().AsString())
		}
		return strings.Join(list, ",")
	}
	for _, r := range p.ResourceProfiles().All() {
		service, _ := r.Resource().Attributes().Get("service.name")
		for _, s := range r.ScopeProfiles().All() {
			for _, one := range s.Profiles().All() {
				for _, x := range one.Samples().All() {
					var stack []string
					for _, l := range d.StackTable().At(int(x.StackIndex())).LocationIndices().All() {
						at := d.LocationTable().At(int(l))
						line := at.Lines().At(0)
						f := d.FunctionTable().At(int(line.FunctionIndex()))
						stack = append(stack, fmt.Sprintf("%s(%s:%d %s %s)", text(f.NameStrindex()), text(f.FilenameStrindex()), line.Line(),
							text(d.MappingTable().At(int(at.MappingIndex())).FilenameStrindex()), attributes(at.AttributeIndices().AsRaw())))
					}
					lines = append(lines, fmt.Sprintf("%s %s/%s %d/%s %s %v %s", service.AsString(), text(one.SampleType().TypeStrindex()), text(one.SampleType().UnitStrindex()),
						one.Period(), text(one.PeriodType().TypeStrindex()), attributes(x.AttributeIndices().AsRaw()), x.Values().AsRaw(), strings.Join(stack, ";")))
				}
			}
		}
	}
	return lines
}

var wantProfiles = []string{
	"web samples/count 10000000/cpu process.pid=7,thread.id=8,thread.name=worker [30] tcp_sendmsg(:0  profile.frame.type=kernel);handle(main.go:12 /srv/app profile.frame.type=go);main.main(main.go:40 /srv/app profile.frame.type=go)",
	"web samples/count 10000000/cpu process.pid=7,thread.id=9,thread.name=worker [12] handle(main.go:12 /srv/app profile.frame.type=go);main.main(main.go:40 /srv/app profile.frame.type=go)",
	"web off-cpu/nanoseconds 0/ process.pid=7,slowray.thread.state=blocked [4000000000] tcp_sendmsg(:0  profile.frame.type=kernel)",
	"redis samples/count 10000000/cpu process.pid=9 [5] ",
}

// TestSendProfiles: whole stacks arrive as they are, by HTTP and by gRPC, each item of the
// dictionary once.
func TestSendProfiles(t *testing.T) {
	for _, scheme := range []string{"http", "grpc"} {
		to := newReceiver(t)
		on, off := stacksOf()
		who := map[int]observe.Identity{7: {Unit: "web.service"}}
		n, err := SendProfiles(t.Context(), Options{Version: "v1", Host: "web1"}, strings.Replace(to.url, "http", scheme, 1), "", who, on, nil, off)
		if err != nil || n != 3 || len(to.profile) != 1 {
			t.Fatalf("%s: %d profiles, %v", scheme, n, err)
		}
		if got := profileLines(to.profile[0]); !slices.Equal(got, wantProfiles) {
			t.Errorf("%s: got\n%s\nwant\n%s", scheme, strings.Join(got, "\n"), strings.Join(wantProfiles, "\n"))
		}
		d := to.profile[0].Dictionary()
		if d.LocationTable().Len() != 4 || d.FunctionTable().Len() != 4 || d.MappingTable().Len() != 2 || d.StackTable().Len() != 4 || d.LinkTable().Len() != 1 {
			t.Errorf("%s: %d locations, %d functions, %d mappings, %d stacks", scheme, d.LocationTable().Len(), d.FunctionTable().Len(), d.MappingTable().Len(), d.StackTable().Len())
		}
	}
	if n, err := SendProfiles(t.Context(), Options{}, "http://127.0.0.1:1", "", nil); n != 0 || err != nil {
		t.Errorf("nothing: %d, %v", n, err)
	}
	to := newReceiver(t)
	to.answer = func(string) (int, []byte) { return 404, nil }
	on, _ := stacksOf()
	if _, err := SendProfiles(t.Context(), Options{}, to.url, "", nil, on); err == nil || !strings.Contains(err.Error(), "profiles: status 404") {
		t.Errorf("a collector without profiles: %v", err)
	}
}

// TestPushProfiles: a window's profile and waits are sent where that was asked for, and
// nowhere else; a collector that knows no profiles keeps nothing else from arriving.
func TestPushProfiles(t *testing.T) {
	window := func() *record.Window {
		w := windowOf(findingOf("blocked-on-disk", "nginx", 80))
		w.Observation = &observe.Observation{Window: observe.Window{Start: time.Unix(1_790_000_000, 0), Seconds: 60},
			Processes:  []observe.Process{{PID: 7, Comm: "app", Unit: "web.service", Container: "0123456789ab"}},
			Kubernetes: &observe.Kubernetes{Pods: []observe.Pod{{Namespace: "shop", Name: "cart-1", Kind: "Deployment", Owner: "cart", Containers: []observe.PodContainer{{ID: "0123456789ab", Name: "web"}}}}},
			Profile: &observe.Profile{Hz: 100, Samples: 40, Processes: []observe.ProfileProcess{{PID: 7, Comm: "app", Samples: 40, Looked: 40,
				Functions: []observe.ProfileFunction{{Frame: observe.Frame{Name: "work", Kind: observe.FrameNative, Module: "/srv/app"}, Self: 30, Own: 30, Total: 40}}}}},
		}
		return w
	}
	to := newReceiver(t)
	x := fed(1, 1, Options{Version: "v1", Host: "web1"})
	pushing(t, x, to.url, func(o *PushOptions) { o.Profiles = true })
	x.Window(window())
	to.does("a profile", func() bool { return len(to.profile) == 1 && len(to.logs) > 0 })
	want := []string{"cart samples/count 10000000/cpu process.pid=7 [30] work(:0 /srv/app profile.frame.type=native)", "cart samples/count 10000000/cpu process.pid=7 [10] "}
	if got := profileLines(to.profile[0]); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if s, _ := x.PushStats(); s.Sent[profileSignal] != 1 || s.Dropped[profileSignal] != 0 {
		t.Errorf("%+v", s)
	}

	refusing := newReceiver(t)
	refusing.answer = func(path string) (int, []byte) {
		if strings.Contains(path, "profiles") {
			return 404, nil
		}
		return 200, nil
	}
	y := fed(1, 1, Options{Version: "v1", Host: "web1"})
	pushing(t, y, refusing.url, func(o *PushOptions) { o.Profiles = true })
	y.Window(window())
	refusing.does("metrics and findings", func() bool { return len(refusing.metrics) > 0 && len(refusing.logs) > 0 })
	if s, _ := y.PushStats(); s.Dropped[profileSignal] != 1 || s.Dropped[findingSignal] != 0 || !strings.Contains(s.Last, "404") {
		t.Errorf("%+v", s)
	}

	none := newReceiver(t)
	z := fed(1, 1, Options{Version: "v1", Host: "web1"})
	stop := pushing(t, z, none.url, nil)
	z.Window(window())
	stop()
	if len(none.profile) != 0 || len(none.logs) == 0 {
		t.Errorf("%d profiles were sent without the flag", len(none.profile))
	}
}

// TestLargestSamples: what is too much for a message is left out from the small end, and
// names that are no text do no harm.
func TestLargestSamples(t *testing.T) {
	s := &observe.Stacks{Types: []observe.StackValue{{Type: "off-cpu", Unit: "nanoseconds"}}, Frames: []observe.Frame{{Name: "a\xff\x1b[2J"}, {}}}
	for i := range mostSamples + 50 {
		s.Samples = append(s.Samples, observe.StackSample{PID: i, Comm: "x", Frames: []int32{0, 1, 7, -1}, Values: []int64{int64(i)}})
	}
	data, n := fed(1, 0, Options{}).profiles([]*observe.Stacks{s}, nil)
	got := data.ResourceProfiles[0].ScopeProfiles[0].Profiles[0].Samples
	if n != 1 || len(got) != mostSamples || got[len(got)-1].Values[0] != 50 {
		t.Errorf("%d profiles, %d samples, the last of %v", n, len(got), got[len(got)-1].Values)
	}
	for _, text := range data.Dictionary.StringTable {
		if !utf8.ValidString(text) || strings.Contains(text, "\x1b") {
			t.Errorf("%q", text)
		}
	}
}
