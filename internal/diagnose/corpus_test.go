package diagnose

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/observe/observetest"
)

var (
	update = flag.Bool("update", false, "write the reports of the corpus anew")
	from   = flag.String("from", "", "take over what slowray lab run --save kept in this directory, redacted")
)

// minCorpus is how many observations there are at least: a corpus that was lost
// would agree with anything.
const minCorpus = 200

// plainHost is a busy host without a fault. What is ruled out or not checked there is left out of
// the other reports where the words are the same: most of each would be
// that.
const plainHost = "testdata/corpus/fixture-healthy-busy-host"

func load(t *testing.T, dir string) *observe.Observation {
	t.Helper()
	o, err := observe.Load(filepath.Join(dir, "observation.json.zst"))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// takeOver adds what the lab saved, a file NAME-SEED-LOOK.json.zst for each look,
// to the corpus, as lab-NAME-LOOK.
func takeOver(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.json.zst"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no saved observations (%v)", dir, err)
	}
	for _, file := range files {
		parts := strings.Split(strings.TrimSuffix(filepath.Base(file), ".json.zst"), "-")
		if len(parts) < 3 {
			t.Fatalf("%s: not NAME-SEED-LOOK.json.zst", file)
		}
		o, err := observe.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		if o, err = observe.Redact(o); err != nil {
			t.Fatal(err)
		}
		name := strings.Join(slices.Delete(parts, len(parts)-2, len(parts)-1), "-")
		save(t, filepath.Join("testdata/corpus", "lab-"+name), o)
	}
}

func save(t *testing.T, dir string, o *observe.Observation) {
	t.Helper()
	file := filepath.Join(dir, "observation.json.zst")
	err := os.MkdirAll(dir, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	observetest.Save(t, file, o)
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
}

// byLines is a report as JSON with a line for each element of its lists: short,
// and a diff of it names what is different.
func byLines(t *testing.T, r Report) []byte {
	t.Helper()
	var fields map[string]json.RawMessage
	text, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	b.WriteString("{")
	for i, name := range slices.Sorted(maps.Keys(fields)) {
		if i > 0 {
			b.WriteString(",\n")
		}
		fmt.Fprintf(&b, "%q: ", name)
		var list []json.RawMessage
		if json.Unmarshal(fields[name], &list) != nil || len(list) == 0 {
			b.Write(fields[name])
			continue
		}
		for j, element := range list {
			b.WriteString([]string{"[\n", ",\n"}[min(j, 1)])
			b.Write(element)
		}
		b.WriteString("]")
	}
	b.WriteString("}\n")
	return b.Bytes()
}

// toShared is a command, in JSON, that writes to a file with a name that others know
// beforehand, in a directory of everybody's.
var toShared = regexp.MustCompile(`[^"]*(\\u003e|tee|-o) */(tmp|var/tmp|dev/shm)/[^"]*`)

// TestCorpus judges every saved observation and compares the whole report, ruled
// out and not checked included, with the one that was committed. A change that is
// meant is taken over with -update, and stands in the diff of the commit.
func TestCorpus(t *testing.T) {
	if *from != "" {
		takeOver(t, *from)
	}
	dirs, err := filepath.Glob("testdata/corpus/*")
	if err != nil || len(dirs) < minCorpus {
		t.Fatalf("%d observations in the corpus, want at least %d (%v)", len(dirs), minCorpus, err)
	}
	plain := judge(load(t, plainHost))
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("meant? script/corpus.sh reports, and read the diff; after a new fixture: script/corpus.sh fixtures")
		}
	})
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			r := judge(load(t, dir))
			if dir != plainHost {
				r.RuledOut = slices.DeleteFunc(r.RuledOut, func(u Excluded) bool { return slices.Contains(plain.RuledOut, u) })
				r.NotChecked = slices.DeleteFunc(r.NotChecked, func(u Excluded) bool { return slices.Contains(plain.NotChecked, u) })
			}
			got := byLines(t, r)
			if line := toShared.Find(got); line != nil {
				t.Errorf("a command writes where another user can put a link: %s", line)
			}
			file := filepath.Join(dir, "report.json")
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// changing is what commands that change something begin with, after who runs another program.
var changing = regexp.MustCompile(`^(?:nsenter \S+ |ip netns exec \S+ |until )*(?:sysctl -w|echo |printf |kill |renice|ionice -c|chrt|taskset|prlimit|for |kubectl -n \S+ (?:set|scale|rollout|patch|apply)|docker |systemctl (?:re)?start|mount -o|fsfreeze|cpupower frequency-set|ethtool -[A-Z]|ip link set|ip (?:-6 )?route del|tc \S+ del|nft (?:add|insert|delete)|iptables-\S+ -t \S+ -[A-KM-Z] |mariadb .*SET GLOBAL|(?:runuser .* )?psql .*(?:ALTER SYSTEM|pg_reload_conf|pg_terminate_backend)|(?:redis|valkey)-cli .*CONFIG SET|# )`)

// TestLooks: each command that a report prints is known to change something or to only look,
// which is no fix.
func TestLooks(t *testing.T) {
	dirs, err := filepath.Glob("testdata/corpus/*")
	if err != nil || len(dirs) == 0 {
		t.Fatal("no corpus", err)
	}
	for _, dir := range dirs {
		text, err := os.ReadFile(filepath.Join(dir, "report.json"))
		if err != nil {
			t.Fatal(err)
		}
		var r Report
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatal(err)
		}
		for i := range r.Findings {
			for _, c := range r.Findings[i].Fix.Commands {
				line, _ := c.Parts()
				if changes := changing.MatchString(c.String()) && !strings.HasPrefix(line, "kill -QUIT"); changes == c.Reads() {
					t.Errorf("%s: a fix and a look, or none of them: %s", filepath.Base(dir), c)
				}
			}
		}
	}
}
