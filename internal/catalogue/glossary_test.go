package catalogue_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// glossary is what slowray does not say, and what it says instead: the words of ss, perf
// and kubectl, in what it prints, in docs, comments and identifiers.
var glossary = []struct{ not, but string }{
	{`(?i)\b(is|are|was|were|been) told( among)?\b`, "is reported, is listed under"},
	{`(?i)\bbeside\b`, "next to, alongside, in addition to"},
	{`(?i)\bfor want of\b`, "because … ran out, without"},
	{`(?i)\bdear(er|est)?\b`, "expensive, costs more"},
	{`(?i)\bsoft interrupts?\b`, "softirqs"},
	{`(?i)\b(collectors? of garbage|collecting (of )?garbage|collects? garbage)\b`, "garbage collector, GC pauses"},
	{`(?i)\btakes? up connections\b`, "accepts connections"},
	{`(?i)\bpromises no more memory\b`, "the commit limit is reached"},
	{`(?i)\bwhoever needs one has to free some\b`, "allocations stall in direct reclaim"},
	{`(?i)\bis ready and waits for a CPU\b`, "waits on the run queue (runnable)"},
	{`(?i)\bsent again\b`, "retransmitted"},
	{`(?i)\bthrown away\b`, "dropped"},
	{`(?i)\btime of a request\b`, "request latency"},
	{`(?i)\bwhere (the|its) time goes\b`, "time breakdown"},
	{`(?i)\bmend(s|ed|ing)?\b`, "fix, repair"},
	{`(?i:\bplant(s|ed|ing)? (an|the|this|each|one) (incident|fault))|\bPlant\b`, "inject an incident"},
	{`(?i)\bmakes no step\b`, "is stuck"},
	{`(?i)\bname servers?\b`, "nameserver"},
	{`(?i)\bworks on one slow command\b`, "is blocked by one slow command"},
	{`(?i)\bgives way to others\b`, "low CPU weight (cpu.shares)"},
	{`(?i)\bmay run on few of the CPUs\b`, "pinned to too few CPUs"},
	{`(?i)\b[Nn]o further process or thread may be started\b`, "pids limit reached"},
	{`(?i)\bdid not come about\b`, "were not established"},
	{`(?i)\bready to run, without a CPU\b`, "waiting on the run queue"},
	{`(?i)\b99(th)? (of|in) 100\b`, "p99"},
	{`\b(teller|[Gg]uardian|Rarely|Spare|Patient|Hurry)\b`, "errorReporter, watchdog, SampleInterval, SkipUnwinder, LowPower, RaisePriority"},
}

// kept are the places of those words that are part of a contract: keys and values of
// JSON, names of incidents and of programs, and this list itself.
var kept = regexp.MustCompile(`"(mend|guardian|teller|told_apart_from)"|json:"(mend|guardian)|batch-beside|"by"`)

// TestGlossary: the left column is nowhere in the tree.
func TestGlossary(t *testing.T) {
	root := filepath.Join("..", "..")
	out, err := exec.Command("git", "-C", root, "ls-files").Output()
	if err != nil {
		t.Skipf("SKIP: no git here: words are NOT tested: %v", err)
	}
	var avoided []*regexp.Regexp
	var all []string
	for _, g := range glossary {
		avoided = append(avoided, regexp.MustCompile(g.not))
		all = append(all, "(?:"+g.not+")")
	}
	any := regexp.MustCompile(strings.Join(all, "|"))
	read := 0
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSpace(name)
		if !isProse(name) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			continue // removed, and not committed yet
		}
		read++
		if !any.Match(text) {
			continue // nearly all
		}
		for n, line := range strings.Split(string(text), "\n") {
			line = kept.ReplaceAllString(line, "")
			for i, re := range avoided {
				if found := re.FindString(line); found != "" {
					t.Errorf("%s:%d: %q: say %s", name, n+1, found, glossary[i].but)
				}
			}
		}
	}
	if read < 1000 {
		t.Errorf("only %d files were read", read)
	}
}

// isProse says whether people read a file: not recordings, fixtures, and what is written
// by programs.
func isProse(name string) bool {
	if strings.Contains(name, "testdata/") || strings.Contains(name, "_bpfel") || strings.HasSuffix(name, "glossary_test.go") || name == "CHANGELOG.md" || strings.HasPrefix(name, "docs/scoreboard") {
		return false
	}
	switch filepath.Ext(name) {
	case ".go", ".c", ".h", ".js", ".css", ".html", ".md", ".py", ".sh", ".yml", ".service", "":
		return true
	}
	return false
}
