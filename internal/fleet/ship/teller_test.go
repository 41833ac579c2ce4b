package ship

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/fleet"
)

// TestTellerSaysWhatToDo: next to what goes wrong, once, and in the status too.
func TestTellerSaysWhatToDo(t *testing.T) {
	var said []string
	missing := fleet.Permanent(errors.New("h: no such table"))
	tell := errorReporter{title: "clickhouse://h/slowray", say: func(line string) { said = append(said, line) }, again: sayAgain, failing: map[string]string{}, said: map[string]time.Time{}}
	tell.advice = func(err error) string {
		if errors.Is(err, missing) {
			return "make the tables"
		}
		return ""
	}
	tell.fails("seconds", missing)
	tell.fails("requests", missing)
	tell.fails("findings", errors.New("h: away"))
	want := []string{
		"clickhouse://h/slowray: h: no such table: make the tables (this does not fix itself; what is recorded waits on disk)",
		"clickhouse://h/slowray: h: away; what is recorded waits on disk",
	}
	if !slices.Equal(said, want) {
		t.Errorf("said %q, want %q", said, want)
	}
	if tell.failingFor() <= 0 {
		t.Error("it fails, and for no time")
	}
	var x Status
	tell.works("findings")
	tell.tell(&x)
	if !strings.HasSuffix(x.Error, ": make the tables") {
		t.Errorf("status %+v", x)
	}
	tell.works("seconds")
	tell.works("requests")
	tell.works("seconds")
	if n := len(said); n != 3 || !strings.HasPrefix(said[2], "clickhouse://h/slowray: takes records again, after ") {
		t.Errorf("said %q", said)
	}
	if d := tell.failingFor(); d != 0 {
		t.Errorf("it works, and fails for %s", d)
	}
}

// TestTellerSaysOnceThatItWorks: of the first batch that is taken, not of a greeting.
func TestTellerSaysOnceThatItWorks(t *testing.T) {
	var said []string
	tell := errorReporter{title: "clickhouse://h/slowray", say: func(line string) { said = append(said, line) }, again: sayAgain, failing: map[string]string{}, said: map[string]time.Time{}}
	tell.works(hello)
	if len(said) > 0 {
		t.Errorf("said %q of a greeting", said)
	}
	tell.works("seconds")
	tell.works("requests")
	tell.works("seconds")
	if !slices.Equal(said, []string{"clickhouse://h/slowray: takes what is recorded"}) {
		t.Errorf("said %q", said)
	}
}
