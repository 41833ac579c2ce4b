package doctor

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/slowray/slowray/internal/observe"
)

// Each of slowray's objects for the kernel is tried.
func TestEveryObjectIsTried(t *testing.T) {
	sources, err := filepath.Glob("../bpf/*.bpf.c")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no programs: %v", err)
	}
	for _, path := range sources {
		object := strings.TrimSuffix(filepath.Base(path), ".bpf.c")
		if !slices.ContainsFunc(probes, func(p probe) bool { return p.object == object }) {
			t.Errorf("%s: no probe tries it", object)
		}
	}
}

// What could not be read takes its causes with it, and only those.
func TestLostCauses(t *testing.T) {
	var c Checkup
	c.read(&observe.Observation{Gaps: []observe.Gap{
		{Kind: observe.KindConntrack, Because: "no such file"},
		{Kind: observe.KindNginx, Subject: "/var/log/nginx/error.log", Because: "is a pipe", Partial: true},
	}})
	if want := []string{"conntrack-full", "conntrack-forgot"}; !slices.Equal(c.Causes.NotChecked, want) {
		t.Errorf("not checked: %v, want %v", c.Causes.NotChecked, want)
	}
	if c.Causes.Checked != c.Causes.Known-2 || c.OK() {
		t.Errorf("%+v, all well: %v", c.Causes, c.OK())
	}
	states := map[observe.Kind]State{}
	for _, r := range c.Readings {
		states[r.Kind] = r.State
		if r.Kind == observe.KindConntrack && !slices.Contains(r.Lost, "conntrack-full") {
			t.Errorf("lost without conntrack: %v", r.Lost)
		}
	}
	for kind, want := range map[observe.Kind]State{observe.KindConntrack: Missing, observe.KindNginx: Partly, observe.KindRequests: Works} {
		if states[kind] != want {
			t.Errorf("%s: %s, want %s", kind, states[kind], want)
		}
	}
}

// On this host all is tried, and what is reported keeps to the contract.
func TestCheck(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: -short: this host is NOT tried")
	}
	c, err := Check(t.Context(), time.Second, nil, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	schema, err := jsonschema.NewCompiler().Compile("../../schema/doctor.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(v); err != nil {
		t.Error(err)
	}
	var out bytes.Buffer
	if err := c.Text(&out, 80); err != nil || !strings.Contains(out.String(), "causes can be checked here") {
		t.Errorf("%v: %s", err, out.String())
	}
	if os.Geteuid() != 0 {
		t.Skip("SKIP: needs root: what works with rights is NOT tested")
	}
	if len(c.Price.Readers) == 0 || c.Price.Readers[0].CPUShare <= 0 {
		t.Errorf("the readers cost nothing: %+v", c.Price.Readers)
	}
	if len(c.Price.Programs) == 0 {
		t.Errorf("no price of a program: %s", c.Price.Because)
	}
	listed := map[string]bool{}
	for _, p := range c.Price.Programs {
		if listed[p.Name] {
			t.Errorf("%s is listed twice", p.Name)
		}
		listed[p.Name] = true
	}
	for _, p := range c.Parts {
		if p.State == Missing && p.Object == "request" {
			t.Errorf("%s: %v", p.Name, p.Because)
		}
	}
}
