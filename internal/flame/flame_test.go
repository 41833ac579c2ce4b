package flame

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/google/pprof/profile"
	"pgregory.net/rapid"

	"github.com/slowray/slowray/internal/observe"
)

var update = flag.Bool("update", false, "write the golden files")

// outputs are all that can be written of stacks.
var outputs = map[string]func(io.Writer, *observe.Stacks, Options) error{
	"html": HTML, "svg": SVG, "folded": Folded, "pprof": Pprof, "text": Text,
	"diff.html": func(w io.Writer, s *observe.Stacks, o Options) error { return DiffHTML(w, Diff(s, s), o) },
	"diff.svg":  func(w io.Writer, s *observe.Stacks, o Options) error { return DiffSVG(w, Diff(s, s), o) },
	"slow.text": func(w io.Writer, s *observe.Stacks, o Options) error { return DiffText(w, SlowAgainstNormal(s), o) },
}

func write(t testing.TB, f func(io.Writer, *observe.Stacks, Options) error, s *observe.Stacks, o Options) string {
	t.Helper()
	var b bytes.Buffer
	if err := f(&b, s, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestGolden(t *testing.T) {
	local := time.Local
	time.Local = time.FixedZone("", 3600) // what is for a terminal is by the clock here; files are in UTC
	t.Cleanup(func() { time.Local = local })
	diff := func(f func(io.Writer, Pair, Options) error) func(io.Writer, *observe.Stacks, Options) error {
		return func(w io.Writer, s *observe.Stacks, o Options) error { return f(w, Diff(s, &later().Stacks), o) }
	}
	for name, c := range map[string]struct {
		write func(io.Writer, *observe.Stacks, Options) error
		o     Options
	}{
		"shop.txt":                        {Text, Options{}},
		"shop-processes.txt":              {Text, Options{Roots: RootProcess}},
		"shop-off-cpu.txt":                {Text, Options{Value: "off-cpu", Roots: RootComm, Width: 80, Top: 4}},
		"shop.folded":                     {Folded, Options{}},
		"shop-threads.folded":             {Folded, Options{Value: "off-cpu", Roots: RootThread}},
		"../../../docs/flame.svg":         {SVG, Options{Title: "A shop under load", Flame: true}},
		"../../../docs/flame-off-cpu.svg": {SVG, Options{Title: "A shop under load", Value: "off-cpu", Flame: true}},
		"../../../docs/flame-diff.svg":    {diff(DiffSVG), Options{Title: "A shop, before and after a release", Flame: true}},
		"diff.txt":                        {diff(DiffText), Options{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := write(t, c.write, &shop().Stacks, c.o)
			path := filepath.Join("testdata", name)
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("(-want +got, -update writes it)\n%s", d)
			}
		})
	}
}

// anyStacks draws stacks with all that can be wrong in them.
func anyStacks(t *rapid.T) *observe.Stacks {
	name := rapid.SampledFrom(append([]string{"a", "b", "c", "main", "std::vector<int>::at(unsigned long) const", "net/http.(*conn).serve"}, hostile...))
	s := &observe.Stacks{
		StartNS: rapid.Int64().Draw(t, "start"), WindowNS: rapid.Int64().Draw(t, "window"), Hz: rapid.IntRange(-1, 999).Draw(t, "hz"),
		Types: []observe.StackValue{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}, {Type: "off-cpu", Unit: "nanoseconds"}}[:rapid.IntRange(0, 3).Draw(t, "types")],
	}
	for range rapid.IntRange(0, 12).Draw(t, "frames") {
		s.Frames = append(s.Frames, observe.Frame{
			Name: name.Draw(t, "name"), Kind: rapid.SampledFrom([]observe.FrameKind{"kernel", "native", "go", "php", "", "odd"}).Draw(t, "kind"),
			Module: name.Draw(t, "module"), Line: rapid.IntRange(-1, 5).Draw(t, "line"), Inline: rapid.Bool().Draw(t, "inline"),
		})
	}
	for range rapid.IntRange(0, 20).Draw(t, "samples") {
		s.Samples = append(s.Samples, observe.StackSample{
			PID: rapid.IntRange(0, 3).Draw(t, "pid"), TID: rapid.IntRange(0, 3).Draw(t, "tid"), Comm: name.Draw(t, "comm"), Thread: name.Draw(t, "thread"),
			State: rapid.SampledFrom([]string{"", "blocked", "runnable"}).Draw(t, "state"), Slow: rapid.Bool().Draw(t, "slow"),
			Frames: rapid.SliceOfN(rapid.Int32Range(-1, 13), 0, 8).Draw(t, "stack"),
			Values: rapid.SliceOfN(rapid.OneOf(rapid.Int64Range(-2, 1000), rapid.Just(int64(math.MaxInt64))), 0, 4).Draw(t, "values"),
		})
	}
	return s
}

func TestTreeAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyStacks(t)
		m := SlowAgainstNormal(s).model()
		if rapid.Bool().Draw(t, "one") {
			m = newModel(byFunction, s)
		}
		for value := range m.types {
			for _, roots := range []Roots{RootComm, RootProcess, RootThread} {
				tr := m.tree(value, roots)
				if tr[0].total != m.sums()[value] {
					t.Fatalf("the root is %v, the samples are %v", tr[0].total, m.sums()[value])
				}
				for i, b := range tr {
					sum := b.self
					for _, c := range b.children {
						if tr[c].parent != int32(i) {
							t.Fatalf("branch %d has a child of %d", i, tr[c].parent)
						}
						for side := range sum {
							sum[side] = add(sum[side], tr[c].total[side])
						}
					}
					if sum != b.total {
						t.Fatalf("branch %d (%s) has %v, its parts %v", i, b.name, b.total, sum)
					}
				}
				for _, wait := range []bool{false, true} {
					var self int64
					for _, f := range tr.tally(m, 0, wait) {
						self = add(self, f.self[0])
					}
					if self > tr[0].total[0] {
						t.Fatalf("functions take %d themselves, all is %d", self, tr[0].total[0])
					}
				}
			}
		}
	})
}

// The order of samples and frames says nothing, and must not show.
func TestOrderDoesNotMatter(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	rapid.Check(t, func(t *rapid.T) {
		s := anyStacks(t)
		mixed := *s
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		place := r.Perm(len(s.Frames))
		mixed.Frames = make([]observe.Frame, len(s.Frames))
		for i, p := range place {
			mixed.Frames[p] = s.Frames[i]
		}
		mixed.Samples = slices.Clone(s.Samples)
		for i := range mixed.Samples {
			x := &mixed.Samples[i]
			x.Frames = slices.Clone(x.Frames)
			for j, f := range x.Frames {
				if f >= 0 && int(f) < len(place) {
					x.Frames[j] = int32(place[f])
				}
			}
		}
		r.Shuffle(len(mixed.Samples), func(i, j int) { mixed.Samples[i], mixed.Samples[j] = mixed.Samples[j], mixed.Samples[i] })
		for name, f := range outputs {
			var a, b bytes.Buffer
			if err := errors.Join(f(&a, s, Options{}), f(&b, &mixed, Options{})); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(a.Bytes(), b.Bytes()) {
				t.Fatalf("%s depends on the order of samples or frames:\n%s", name, cmp.Diff(a.String(), b.String()))
			}
		}
	})
}

func TestFoldedAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyStacks(t)
		if len(s.Types) == 0 {
			return
		}
		var b bytes.Buffer
		if err := Folded(&b, s, Options{Value: s.Types[0].Type}); err != nil {
			t.Fatal(err)
		}
		m := newModel(byFunction, s)
		// What the lines say, read as stackcollapse's readers do.
		var sum int64
		stacks := map[string]int64{}
		for line := range strings.Lines(b.String()) {
			at := strings.LastIndexByte(line, ' ')
			n, err := strconv.ParseInt(strings.TrimSpace(line[at:]), 10, 64)
			if err != nil || n <= 0 || at == 0 {
				t.Fatalf("line %q: %v", line, err)
			}
			if stacks[line[:at]] != 0 {
				t.Fatalf("twice the stack %q", line[:at])
			}
			stacks[line[:at]] = n
			sum = add(sum, n)
		}
		if want := m.sums()[0][0]; sum != want {
			t.Fatalf("lines add up to %d, samples to %d", sum, want)
		}
		for i := range m.samples {
			x := &m.samples[i]
			depth := 0
			for at := x.node; at > 0; at = m.nodes[at].parent {
				depth++
			}
			line := m.folded(x, "")
			if strings.Count(line, ";") != depth {
				t.Fatalf("%q: %d frames", line, depth)
			}
			if x.has(0) && stacks[line] == 0 {
				t.Fatalf("no line %q", line)
			}
		}
	})
}

func TestPprofAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyStacks(t)
		var b bytes.Buffer
		if err := Pprof(&b, s, Options{}); err != nil {
			t.Fatal(err)
		}
		p, err := profile.ParseData(b.Bytes()) // checks that it is valid
		if err != nil {
			t.Fatal(err)
		}
		m := newModel(byLine, s)
		sums := make([][2]int64, len(m.types))
		for _, x := range p.Sample {
			for i := range m.types {
				sums[i][0] = add(sums[i][0], x.Value[i])
			}
		}
		if d := cmp.Diff(m.sums(), sums); d != "" {
			t.Fatal(d)
		}
	})
}

func TestPprofSays(t *testing.T) {
	p, err := profile.ParseData([]byte(write(t, Pprof, &shop().Stacks, Options{Title: "a shop"})))
	if err != nil {
		t.Fatal(err)
	}
	if p.DefaultSampleType != "cpu" || len(p.SampleType) != 3 || p.DurationNanos != 10e9 || p.TimeNanos != 1_790_000_000_000_000_000 || p.Period != 10101010 {
		t.Errorf("%+v", p)
	}
	if !slices.Contains(p.Comments, "a shop") || !slices.Contains(p.Comments, "not complete: stacks without symbols in /opt/vendor/agent: 12") {
		t.Errorf("comments: %q", p.Comments)
	}
	i := slices.IndexFunc(p.Sample, func(s *profile.Sample) bool { return s.Location[0].Line[0].Function.Name == "io_schedule" })
	s := p.Sample[i]
	want := map[string][]string{"comm": {"mariadbd"}, "pid": {"900"}, "tid": {"977"}, "thread": {"one_connection"}, "state": {"blocked"}, "slow": {"true"}}
	if d := cmp.Diff(want, s.Label); d != "" {
		t.Errorf("labels (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]int64{0, 0, 3_900_000_000}, s.Value); d != "" {
		t.Errorf("values (-want +got):\n%s", d)
	}
	if got := s.Location[0].Mapping.File; got != "vmlinux" {
		t.Errorf("mapping %q", got)
	}
	for _, f := range p.Function {
		if f.Name == `App\Price::round` && f.Filename != "/srv/shop/src/Price.php" {
			t.Errorf("file %q", f.Filename)
		}
	}
}

// A function is one frame, whatever line of it was seen; pprof keeps lines.
func TestLinesOfAFunction(t *testing.T) {
	s := newStacks()
	s.on(1, "a", 3, "py:f@@x.py@10")
	s.on(1, "a", 2, "py:f@@x.py@30")
	if folded := write(t, Folded, &s.Stacks, Options{Value: "samples"}); folded != "a;f 5\n" {
		t.Errorf("%q", folded)
	}
	if svg := write(t, SVG, &s.Stacks, Options{}); !strings.Contains(svg, "x.py:10–30") {
		t.Errorf("no range of lines: %s", svg)
	}
	p, err := profile.ParseData([]byte(write(t, Pprof, &s.Stacks, Options{})))
	if err != nil || len(p.Location) != 2 {
		t.Errorf("%v, %v", p, err)
	}
}

func TestUnknownValue(t *testing.T) {
	for name, f := range outputs {
		var unknown *UnknownValue
		err := f(io.Discard, &shop().Stacks, Options{Value: "memory"})
		if !errors.As(err, &unknown) || err.Error() != "stacks: no values of type memory, only of samples, cpu, off-cpu" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFailedWriter(t *testing.T) {
	for name, f := range outputs {
		if err := f(full{}, &shop().Stacks, Options{}); !errors.Is(err, errFull) {
			t.Errorf("%s: error %v, want the writer's", name, err)
		}
	}
}

var errFull = errors.New("no space left")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestNothing(t *testing.T) {
	for name, f := range outputs {
		for _, s := range []*observe.Stacks{nil, {}, &newStacks().Stacks} {
			if got := write(t, f, s, Options{}); got == "" && name != "folded" {
				t.Errorf("%s of nothing is empty", name)
			}
		}
	}
	if text := write(t, Text, nil, Options{}); text != "No stack was seen\n" {
		t.Errorf("%q", text)
	}
}

func TestSlowAgainstNormalAddsUp(t *testing.T) {
	s := &shop().Stacks
	p := SlowAgainstNormal(s)
	for i := range s.Types {
		if sumOf(p.Before, i)+sumOf(p.After, i) != sumOf(s, i) {
			t.Errorf("%s: %v and %v are not %v", s.Types[i].Type, sumOf(p.Before, i), sumOf(p.After, i), sumOf(s, i))
		}
	}
	if !slices.ContainsFunc(s.Samples, func(x observe.StackSample) bool { return x.Slow }) {
		t.Error("the stacks themselves were changed")
	}
}

// The same work in twice the time is no change.
func TestDiffOfTheSame(t *testing.T) {
	twice := shop()
	for i := range twice.Samples {
		scale(&twice.Samples[i], 2)
	}
	var b bytes.Buffer
	if err := DiffSVG(&b, Diff(&shop().Stacks, &twice.Stacks), Options{}); err != nil {
		t.Fatal(err)
	}
	graph, _, _ := strings.Cut(b.String(), `<rect class="c-5" x="12"`) // without the legend
	for i := range 5 {
		for _, class := range []string{fmt.Sprintf(`class="c%d"`, i+1), fmt.Sprintf(`class="c-%d"`, i+1)} {
			if strings.Contains(graph, class) {
				t.Errorf("something is coloured %s", class)
			}
		}
	}
}

func TestChange(t *testing.T) {
	for _, c := range []struct{ before, after, least, most float64 }{
		{0, 0, 0, 0}, {0.2, 0.2, 0, 0}, {0, 0.1, 1, 1}, {0.1, 0, -1, -1}, {0.1, 0.11, 0, 0.05}, {0.1, 0.3, 0.5, 0.6}, {0, 0.0005, 0, 0.11},
	} {
		if got := change(c.before, c.after); got < c.least || got > c.most {
			t.Errorf("change(%v, %v) = %v, want %v to %v", c.before, c.after, got, c.least, c.most)
		}
	}
}

func TestShorter(t *testing.T) {
	for _, c := range []struct {
		kind       observe.FrameKind
		name, want string
	}{
		{"go", "github.com/a/b.(*T).M", "b.(*T).M"},
		{"java", "java.util.concurrent.locks.LockSupport.park(Object)", "LockSupport.park"},
		{"php", `App\Http\Kernel::handle`, "Kernel::handle"},
		{"native", "std::vector<int, std::allocator<int> >::push_back(int const&) const", "std::vector::push_back"},
		{"native", "void (anonymous namespace)::run<int>(int)", "run"},
		{"native", "operator new(unsigned long)", "operator new(unsigned long)"},
		{"native", "<T as core::fmt::Display>::fmt", "<T as core::fmt::Display>::fmt"},
		{"native", "[libc.so.6+0x1234]", "[libc.so.6+0x1234]"},
		{"native", "f(", "f("},
		{"kernel", "do_syscall_64", "do_syscall_64"},
	} {
		if got := shorter(c.name, c.kind); got != c.want {
			t.Errorf("shorter(%q) = %q, want %q", c.name, got, c.want)
		}
	}
}

func TestWaitsCountToWhoWaits(t *testing.T) {
	s := newStacks()
	s.off(1, "a", 5, "n:main | n:recv | k:do_syscall_64 | k:schedule")
	s.off(2, "kworker", 7, "k:worker_thread | k:schedule_timeout | k:schedule")
	m := newModel(byFunction, &s.Stacks)
	got := map[string]int64{}
	for _, f := range m.tree(2, RootComm).tally(m, 0, true) {
		if f.self[0] > 0 {
			got[m.functions[f.function].Name] = f.self[0]
		}
	}
	if d := cmp.Diff(map[string]int64{"recv": 5e6, "worker_thread": 7e6}, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// FuzzNames: no name leaves its place.
func FuzzNames(f *testing.F) {
	for _, name := range hostile {
		f.Add(name, name)
	}
	f.Fuzz(func(t *testing.T, name, other string) {
		s := newStacks()
		s.Frames = []observe.Frame{{Name: name, Kind: observe.FrameKind(other), Module: other, File: name, Line: 1}, {Name: other, Kind: observe.FrameKernel}}
		s.Samples = []observe.StackSample{
			{PID: 1, Comm: name, Thread: other, State: other, Frames: []int32{0, 1, 0}, Values: []int64{1, 2, 3}},
			{PID: 1, Comm: other, Frames: []int32{1}, Values: []int64{1, 2, 3}},
		}
		s.Losses, s.Notes = []observe.Loss{{What: name, Count: 1}}, []string{other}
		o := Options{Title: name, Subtitle: other}
		got := map[string]string{}
		for kind, f := range outputs {
			got[kind] = write(t, f, &s.Stacks, o)
		}
		for _, kind := range []string{"html", "diff.html"} {
			page := got[kind]
			if n := strings.Count(strings.ToLower(page), "<script"); n != 2 {
				t.Fatalf("%d script elements", n)
			}
			_, data, _ := strings.Cut(page, `<script type="application/json" id="data">`)
			data, _, _ = strings.Cut(data, "</script>")
			var p payload
			if err := json.Unmarshal([]byte(data), &p); err != nil {
				t.Fatal(err)
			}
			if want := clean(name); want != "" && p.Title != want {
				t.Fatalf("title %q, want %q", p.Title, want)
			}
		}
		for _, kind := range []string{"svg", "diff.svg"} {
			for d := xml.NewDecoder(strings.NewReader(got[kind])); ; {
				token, err := d.Token()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatalf("%s: %v", kind, err)
				}
				if start, ok := token.(xml.StartElement); ok && !slices.Contains([]string{"svg", "style", "g", "title", "rect", "text"}, start.Name.Local) {
					t.Fatalf("%s has an element %s", kind, start.Name.Local)
				}
			}
		}
		for _, kind := range []string{"html", "svg", "folded", "text", "slow.text"} {
			for _, r := range got[kind] {
				if unicode.IsControl(r) && r != '\n' || unicode.Is(unicode.Cf, r) {
					t.Fatalf("%s has the control character %U", kind, r)
				}
			}
		}
		if _, err := profile.ParseData([]byte(got["pprof"])); err != nil {
			t.Fatal(err)
		}
	})
}

func BenchmarkHTML(b *testing.B) {
	s := many(50_000)
	for b.Loop() {
		if err := HTML(io.Discard, &s.Stacks, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

// Of many losses the largest are reported, and that there are more.
func TestManyLosses(t *testing.T) {
	s := shop()
	for i := range 20 {
		s.Losses = append(s.Losses, observe.Loss{What: fmt.Sprintf("places in lib%d without a name", i), Count: int64(100 * i)})
	}
	text := write(t, Text, &s.Stacks, Options{})
	if strings.Count(text, "Not complete:") != 6 || !strings.Contains(text, "lib19 without a name: 1,900\n") || !strings.Contains(text, "Not complete: 16 more") {
		t.Error(text)
	}
}

// A process of which no stack is known is neither left out nor called unknown.
func TestNoStack(t *testing.T) {
	s := newStacks()
	s.on(1, "a", 3, "py:f@@x.py@10")
	s.Samples = append(s.Samples, observe.StackSample{PID: 2, Comm: "b", Values: []int64{6, 6, 0}})
	if text := write(t, Text, &s.Stacks, Options{Value: "samples"}); !strings.Contains(text, "b (2)  67 %, 6\n") || !strings.Contains(text, "[no stack]") {
		t.Error(text)
	}
	if svg := write(t, SVG, &s.Stacks, Options{Value: "samples"}); strings.Contains(svg, ">unknown<") {
		t.Error(svg)
	}
	if folded := write(t, Folded, &s.Stacks, Options{Value: "samples"}); folded != "a;f 3\nb 6\n" {
		t.Errorf("%q", folded)
	}
}
