package diagnose_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/prove"
	"github.com/slowray/slowray/internal/shell/shelltest"
)

// pasted are the lines that a person pastes, by what they are for.
func pasted(t *testing.T, o *observe.Observation) map[string]string {
	t.Helper()
	lines := map[string]string{}
	nth := map[cause.ID]int{}
	for _, f := range diagnose.Diagnose(context.Background(), o, diagnose.Saved).Findings {
		name := fmt.Sprintf("%s %d", f.Cause, nth[f.Cause])
		nth[f.Cause]++
		for what, list := range map[string]any{"fix": f.Fix.Commands, "persist": f.Fix.Persist, "prove": proving(&f), "lasting": prove.Lasting(f.Fix.Changes)} {
			var texts []string
			data, err := json.Marshal(list)
			if err == nil {
				err = json.Unmarshal(data, &texts)
			}
			if err != nil {
				t.Fatal(err)
			}
			for i, text := range texts {
				lines[fmt.Sprintf("%s, %s %d", name, what, i)] = text
			}
		}
	}
	return lines
}

func proving(f *cause.Finding) []any {
	if f.Prove == nil {
		return nil
	}
	return []any{f.Prove.Command}
}

// everyTenth is what -short tries of a long list.
func everyTenth(dirs []string) (few []string) {
	for i := 0; i < len(dirs); i += 10 {
		few = append(few, dirs[i])
	}
	return few
}

var chunk = regexp.MustCompile(`[A-Za-z0-9_.-]{3,}`)

// TestHostileNames puts hostile names into every string of every observation that
// has findings, and has shells take apart what people paste.
func TestHostileNames(t *testing.T) {
	dirs, err := filepath.Glob("testdata/corpus/*")
	if err != nil || len(dirs) == 0 {
		t.Fatal("no corpus", err)
	}
	if testing.Short() {
		dirs = everyTenth(dirs)
	}
	var all []string
	var pairs []shelltest.Pair
	reached, tried := map[string]bool{}, map[string]bool{} // by cause; lines that others have too
	for _, dir := range dirs {
		o, err := observe.Load(filepath.Join(dir, "observation.json.zst"))
		if err != nil {
			t.Fatal(err)
		}
		plain := pasted(t, o)
		all = slices.AppendSeq(all, maps.Values(plain))
		if len(plain) == 0 {
			continue
		}
		text := strings.Join(slices.Collect(maps.Values(plain)), "\n")
		list := shelltest.Strings(o)
		slices.Sort(list)
		for _, s := range list {
			if !slices.ContainsFunc(chunk.FindAllString(s, -1), func(c string) bool { return strings.Contains(text, c) }) {
				continue // no part of it is in any line
			}
			made := map[string]map[string]string{}
			for _, m := range shelltest.Mutations() {
				with := func(part string) map[string]string {
					if lines, ok := made[m.Put(s, part)]; ok {
						return lines
					}
					made[m.Put(s, part)] = pasted(t, shelltest.Replace(o, func(text string) string {
						if text == s {
							return m.Put(s, part)
						}
						if len(s) > 3 {
							return strings.ReplaceAll(text, s, m.Put(s, part))
						}
						return text
					}))
					return made[m.Put(s, part)]
				}
				harmless := with(m.Harmless)
				maps.DeleteFunc(harmless, func(where, line string) bool {
					key := strings.Fields(where)[0] + m.Name + line
					again := tried[key] || !strings.Contains(line, m.Harmless)
					tried[key] = true
					return again
				})
				if len(harmless) == 0 {
					continue
				}
				hostile := with(m.Hostile)
				for where, line := range harmless {
					reached[strings.Fields(where)[0]] = true
					pairs = append(pairs, shelltest.Pair{Where: filepath.Base(dir) + ": " + where, Harmless: line, Line: hostile[where], Mutation: &m})
				}
			}
		}
	}
	t.Logf("%d causes have lines with names of others: %s", len(reached), strings.Join(slices.Sorted(maps.Keys(reached)), " "))
	shelltest.Parse(t, all)
	shelltest.Check(t, pairs)
}
