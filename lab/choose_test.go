package lab

import (
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	catalogue "github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/lab/incident"
	"github.com/slowray/slowray/lab/server"
)

const (
	// incidentsEnv says which incidents TestIncidents injects:
	//
	//	          one of each sort, and those that depend on what changed since LAB_SINCE
	//	causes    one of each set of causes, and every control
	//	all       variants too, which differ in the server or in where the fault is; each alone
	incidentsEnv = "LAB_INCIDENTS"

	// sinceEnv is a revision of git. What changed since then, and what is not
	// committed, chooses incidents; without it, what is not committed.
	sinceEnv = "LAB_SINCE"

	// saveEnv is a directory for what slowray saw, for script/corpus.sh lab; by default
	// it is not kept.
	saveEnv = "LAB_SAVE"
)

// chooser says which incidents are injected.
type chooser struct {
	scope   string            // as of incidentsEnv
	changed map[string]string // files that changed, by their path in the repository → their text
	causes  map[string]string // causes → the incident that injects them
	sampled map[sort]bool
}

// sort is what incidents of the sample differ in.
type sort struct {
	servers server.Kind
	layer   catalogue.Layer // of the first cause; control, if it has none
	doubled bool            // under TLS: of these there is one sort
	alone   bool            // it needs the machine for itself: layers do not count then
}

const control catalogue.Layer = -1

func sortOf(i incident.Incident) sort {
	if i.Doubled {
		return sort{doubled: true}
	}
	s := sort{servers: i.Injected(i.Faults).Kind, alone: !i.Calm()}
	if causes := i.Causes(); s.alone || len(causes) == 0 {
		s.layer = control
	} else {
		s.layer = layers()[causes[0]]
	}
	return s
}

// layers says where each cause sits on a request's way.
var layers = sync.OnceValue(func() map[string]catalogue.Layer {
	layers := map[string]catalogue.Layer{}
	for _, c := range catalogue.Catalogue() {
		layers[string(c.ID)] = c.Layer
	}
	return layers
})

// skip says why an incident is left out, "" if it is not. It is asked once for each, in
// their order.
func (c *chooser) skip(i incident.Incident) string {
	if i.Unsteady != "" {
		return i.Unsteady + ": it is NOT judged"
	}
	if c.scope == "all" {
		return ""
	}
	if i.Doubled && c.sampled[sortOf(i)] {
		return "another one is injected under TLS: make test-incidents runs it"
	}
	if i.Doubled {
		c.sampled[sortOf(i)] = true
		return ""
	}
	key := strings.Join(i.Causes(), " ")
	first := c.causes[key]
	if key != "" && first == "" {
		c.causes[key] = i.Name
	}
	for file, text := range c.changed {
		if dependsOn(i, file, text) {
			return ""
		}
	}
	switch {
	case first != "":
		return "a variant of " + first + ": make test-incidents runs it"
	case c.scope == "causes":
		return ""
	case c.sampled[sortOf(i)]:
		return "it does not depend on what changed: make test-all runs it"
	}
	c.sampled[sortOf(i)] = true
	return ""
}

// dependsOn says whether an incident tests what a file has in it: the reader of one of
// its servers, one of its causes, or the incident itself. What all incidents depend on
// chooses none: the sample is for that.
func dependsOn(i incident.Incident, file, text string) bool {
	dir := path.Dir(file)
	if reader, ok := strings.CutPrefix(dir, "internal/sense/app/"); ok {
		return slices.ContainsFunc(i.Needs(), func(debian string) bool {
			return strings.HasPrefix(strings.ReplaceAll(debian, "-", ""), reader)
		})
	}
	if dir != "internal/cause" && !strings.HasPrefix(dir, "internal/cause/") && dir != "lab/incident" {
		return false
	}
	return slices.ContainsFunc(append(i.Causes(), i.Name), func(name string) bool { return strings.Contains(text, `"`+name+`"`) })
}

// changedFiles is the Go files that differ from a revision of git, with their text; those
// that are gone have none.
func changedFiles(since string) (map[string]string, error) {
	if since == "" {
		since = "HEAD"
	}
	out, err := exec.Command("git", "-C", "..", "diff", "--name-only", since, "--", "*.go").Output()
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSpace(name)
		text, _ := os.ReadFile(path.Join("..", name))
		files[name] = string(text)
	}
	return files, nil
}

func newChooser(t *testing.T) *chooser {
	t.Helper()
	c := &chooser{scope: os.Getenv(incidentsEnv), causes: map[string]string{}, sampled: map[sort]bool{}}
	switch c.scope {
	case "all", "causes":
	case "":
		var err error
		if c.changed, err = changedFiles(os.Getenv(sinceEnv)); err != nil && os.Getenv(sinceEnv) != "" {
			t.Fatalf("%s: %v", sinceEnv, err)
		}
	default:
		t.Fatalf("%s=%s: must be all, causes or nothing", incidentsEnv, c.scope)
	}
	return c
}

func TestChoice(t *testing.T) {
	chosen := func(scope string, changed map[string]string) []string {
		c := &chooser{scope: scope, changed: changed, causes: map[string]string{}, sampled: map[sort]bool{}}
		var names []string
		for _, i := range incident.All() {
			if c.skip(i) == "" {
				names = append(names, i.Name)
			}
		}
		return names
	}
	sample, causes, all := chosen("", nil), chosen("causes", nil), chosen("all", nil)
	if len(sample) < 45 || len(causes) <= len(sample) || len(all) <= len(causes) {
		t.Errorf("%d, %d and %d incidents", len(sample), len(causes), len(all))
	}
	if n := underTLS(sample); n != 1 {
		t.Errorf("%d incidents under TLS in the sample, want 1", n)
	}
	if n := underTLS(all); n != 13 {
		t.Errorf("%d incidents under TLS in all, want 13", n)
	}
	for file, want := range map[string][]string{
		"internal/sense/app/postgres/log.go":   {"postgres-lock-wait", "postgres-full-scan"},
		"internal/sense/app/tomcat/threads.go": {"tomcat-threads", "container-oom"},
		"internal/cause/conntrack_full.go":     {"conntrack-full", "conntrack-full-2000"},
	} {
		text, _ := os.ReadFile(path.Join("..", file))
		got := chosen("", map[string]string{file: string(text)})
		for _, name := range want {
			if !slices.Contains(got, name) {
				t.Errorf("%s: %s is not injected", file, name)
			}
		}
		if len(got) > len(sample)+10 {
			t.Errorf("%s: %d of %d incidents", file, len(got), len(all))
		}
	}
}

// underTLS counts those that are another one under TLS.
func underTLS(names []string) (n int) {
	for _, name := range names {
		if strings.HasSuffix(name, "-tls") {
			n++
		}
	}
	return n
}
