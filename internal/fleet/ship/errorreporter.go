package ship

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/fleet"
)

// errorReporter says of one target what begins to go wrong, what still does, and what works
// again: one line for each, however many attempts there are.
type errorReporter struct {
	title  string
	advice func(error) string // what to do about an error; may be nil
	say    func(string)
	again  time.Duration // after how long the same error is said again

	mu      sync.Mutex
	failing map[string]string    // errors, by what fails: a stream, or the greeting
	since   time.Time            // when the first of them began
	away    bool                 // it was said that an error that may pass goes on
	said    map[string]time.Time // permanent errors
	began   bool                 // it was said that the target takes something, or that it does again
	failed  uint64
	last    string // error, of all attempts
	lastAt  time.Time
}

// hello is what greetings are called; streams have their own names.
const hello = "hello"

// fails says that an attempt failed: once until all is well again, where the error
// may pass; otherwise once a minute.
func (t *errorReporter) fails(what string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed++
	if len(t.failing) == 0 {
		t.since = time.Now()
	}
	text := oneLine(err)
	if t.advice != nil {
		if what := t.advice(err); what != "" {
			text += ": " + what
		}
	}
	t.last, t.lastAt = text, time.Now()
	t.failing[what] = text
	if fleet.Temporary(err) {
		if !t.away {
			t.away = true
			t.say(fmt.Sprintf("%s: %s; what is recorded waits on disk", t.title, text))
		}
		return
	}
	if last, ok := t.said[text]; ok && time.Since(last) < t.again {
		return
	}
	if len(t.said) > 100 {
		clear(t.said)
	}
	t.said[text] = time.Now()
	t.say(fmt.Sprintf("%s: %s (this does not fix itself; what is recorded waits on disk)", t.title, text))
}

// works says that an attempt was well: the first time, so that who has just set it up knows,
// and when all are after some were not.
func (t *errorReporter) works(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, was := t.failing[what]; !was {
		if !t.began && len(t.failing) == 0 && what != hello {
			t.began = true
			t.say(t.title + ": takes what is recorded")
		}
		return
	}
	delete(t.failing, what)
	if len(t.failing) == 0 {
		clear(t.said)
		t.away, t.began = false, true
		t.say(fmt.Sprintf("%s: takes records again, after %s", t.title, figure.Seconds(time.Since(t.since).Seconds())))
	}
}

// note says something that is said once.
func (t *errorReporter) note(text string) { t.say(t.title + ": " + text) }

// failingFor is for how long nothing has gone on; 0 where it does.
func (t *errorReporter) failingFor() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.failing) == 0 {
		return 0
	}
	return time.Since(t.since)
}

// tell tells why nothing goes on, of whatever fails, and what failed last.
func (t *errorReporter) tell(x *Status) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x.Failures, x.LastError, x.LastAt = t.failed, t.last, t.lastAt
	for _, what := range slices.Sorted(maps.Keys(t.failing)) {
		x.Error = t.failing[what]
		return
	}
}
