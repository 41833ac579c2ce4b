package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slowray/slowray/lab/incident"
)

// testWindow is how long slowray looks at each incident: less than the default,
// because there are many.
const testWindow = 6 * time.Second

// buildSlowray builds the program under test.
func buildSlowray(t *testing.T) string {
	t.Helper()
	exe := filepath.Join(t.TempDir(), "slowray")
	build := exec.Command("go", "build", "-o", exe, "../cmd/slowray")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return exe
}

// incidentTries is how often an incident is injected alone: as it is declared, and, where
// that does not agree, once more with what hurts measured.
const incidentTries = 2

// TestIncidents injects incidents and controls for real and lets slowray look: it must
// find what was measured to hurt, first what hurts most, and nothing else. [incidentsEnv]
// says which of them. At first a single fault is taken for what hurts, since measuring
// that takes half of the time; a run that does not agree is reported in full, and has
// another one with everything measured. Calm incidents are injected several at a time at first,
// and those that do not agree there are injected alone like all others.
func TestIncidents(t *testing.T) {
	needLab(t)
	slowray := buildSlowray(t)
	choose := newChooser(t)
	alone := choose.scope == "all"
	options := Options{Slowray: []string{slowray}, Window: testWindow, Brief: true, Declared: !alone, Save: os.Getenv(saveEnv)}
	// Calm incidents, by how quick they are. Who has the lock may inject.
	calm := map[bool]*several{true: {options: options}, false: {options: options}}
	var turn sync.Mutex
	for _, i := range incident.All() {
		t.Run(i.Name, func(t *testing.T) {
			if why := choose.skip(i); why != "" {
				t.Skip("SKIP: " + why)
			}
			if i.Calm() && !alone {
				several := calm[i.Quick]
				several.waiting = append(several.waiting, i.Name)
				t.Parallel() // when all others are done, and all that are calm are known
				turn.Lock()
				defer turn.Unlock()
				if several.agrees(i.Name) {
					return
				}
			}
			for try := 1; try <= incidentTries; try++ {
				var out bytes.Buffer
				opt := options
				opt.Out, opt.Declared = &out, options.Declared && try == 1
				result, err := Run(context.Background(), i.Name, opt)
				if err != nil {
					t.Fatalf("%v\n%s", err, out.String())
				}
				if result.OK {
					return
				}
				fmt.Fprintf(os.Stderr, "%s, try %d: injected and found do not agree:\n%s", i.Name, try, out.String())
			}
			t.Errorf("injected and found do not agree, %d times", incidentTries)
		})
	}
}

// atATime is how many calm incidents are injected at the same time.
const atATime = 4

// several is calm incidents that are injected together.
type several struct {
	options Options
	waiting []string        // calm incidents that have not been injected yet, in their order
	done    map[string]bool // incidents that have been injected with others → whether they agreed
}

// agrees injects the incident together with those that come next, if it has not
// been injected yet, and says whether injected and found agree.
func (s *several) agrees(name string) bool {
	if s.done == nil {
		s.done = map[string]bool{}
	}
	for _, done := s.done[name]; !done && len(s.waiting) > 0; _, done = s.done[name] {
		some := s.waiting[:min(atATime, len(s.waiting))]
		s.waiting = s.waiting[len(some):]
		var out bytes.Buffer
		opt := s.options
		opt.Out = &out
		results, err := RunSeveral(context.Background(), some, opt)
		for _, i := range some {
			s.done[i] = false
		}
		disagree := err != nil
		for _, r := range results {
			s.done[r.Incident] = r.OK
			disagree = disagree || !r.OK
		}
		if disagree {
			fmt.Fprintf(os.Stderr, "%s, at the same time: injected and found do not agree in all of them (those are injected again, alone): %v\n%s", strings.Join(some, ", "), err, out.String())
		}
	}
	return s.done[name]
}
