package catalogue

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/slowray/slowray/internal/cause"
)

func all() Catalogue { return New(cause.Catalogue(), Incidents()) }

// The pages that are committed are what the declarations say.
func TestPagesAreUpToDate(t *testing.T) {
	const dir = "../../docs/causes"
	c := all()
	want := c.Pages()
	have, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range have {
		if _, ok := want[filepath.Base(path)]; !ok {
			t.Errorf("%s: no such cause (run make docs)", path)
		}
	}
	for name, text := range want {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Errorf("%v (run make docs)", err)
		} else if string(got) != text {
			t.Errorf("%s is not what the declarations say (run make docs)", name)
		}
	}
}

// The words that only a person can write are there.
func TestEveryCauseIsDescribed(t *testing.T) {
	c := all()
	for i := range c.Causes {
		e := &c.Causes[i]
		var missing []string
		for what, there := range map[string]bool{"About": e.About != "", "See": len(e.Symptoms) > 0, "Known": len(e.Known) > 0,
			"Not": len(e.Not)+len(e.Controls) > 0 || e.Informational, "Fix": e.Fix != ""} {
			if !there {
				missing = append(missing, what)
			}
		}
		slices.Sort(missing)
		if len(missing) > 0 {
			t.Errorf("%s: its Doc lacks %q", e.ID, missing)
		}
		if e.NotInjected == "" && len(e.Incidents) == 0 {
			t.Errorf("%s: no incident injects it, and it does not say why", e.ID)
		}
		if e.NotInjected != "" && len(e.Incidents) > 0 {
			t.Errorf("%s: is said not to be injected (%s), but %s injects it", e.ID, e.NotInjected, e.Incidents[0].Name)
		}
		for _, s := range e.Symptoms {
			if !slices.Contains(cause.Symptoms(), s) {
				t.Errorf("%s: the symptom %q is not in the index", e.ID, s)
			}
		}
	}
}

// Every source of a reading is reported in words.
func TestSources(t *testing.T) {
	c := all()
	for i := range c.Causes {
		for _, n := range c.Causes[i].Needs {
			if n.Source == string(n.Kind) {
				t.Errorf("%s: where %q is read is not told (source.go)", c.Causes[i].ID, n.Kind)
			}
		}
	}
}

func TestMatchesItsSchema(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("../../schema/causes.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(all())
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
}

func TestFind(t *testing.T) {
	c := all()
	if e := c.Find("conntrack-full"); e == nil || e.ID != "conntrack-full" {
		t.Errorf("conntrack-full: %+v", e)
	}
	if e := c.Find("nothing"); e != nil {
		t.Errorf("nothing: %+v", e)
	}
}

// TestNothingDrivesATerminal: the pages are printed by slowray causes, and what is
// in them is read by people with a terminal.
func TestNothingDrivesATerminal(t *testing.T) {
	c := all()
	for i := range c.Causes {
		e := &c.Causes[i]
		for _, r := range e.Text(0) + string(e.ID) + e.Title {
			if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == utf8.RuneError) {
				t.Errorf("%s: character %U", e.ID, r)
			}
		}
	}
	if e := c.Find(cause.ID("\x1b[2J" + strings.Repeat("A", 64<<10))); e != nil {
		t.Errorf("found %s", e.ID)
	}
}
