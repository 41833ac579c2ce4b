package script_test

import (
	"bufio"
	"errors"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// progress runs a line of shell with script/progress.sh and gives what it printed to
// a pipe, and its exit status.
func progress(t *testing.T, line string) (printed string, status int) {
	t.Helper()
	out, err := exec.Command("sh", "-euc", ". ./progress.sh\n"+line).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		status = exit.ExitCode()
	}
	if strings.ContainsAny(string(out), "\r\x1b") {
		t.Errorf("not to a terminal: %q", out)
	}
	return string(out), status
}

func TestProgressOfWhatTakesLong(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	t.Parallel()
	for _, c := range []struct{ line, want string }{
		{`work() { echo one >&2; printf 'two\r5 %%' >&2; sleep 6; }; progress digging work`, `^(digging: \d+ s  5 %\n)+digging took \d+ s\n$`},
		{`work() { echo one >&2; echo two >&2; sleep 6; }; progress_of 7 digging work`, `^(digging: \d+ s  2 of 7\n)+digging took \d+ s\n$`},
	} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			printed, status := progress(t, c.line)
			if !regexp.MustCompile(c.want).MatchString(printed) || status != 0 {
				t.Errorf("exit status %d, %q, want %s", status, printed, c.want)
			}
		})
	}
}

// TestProgressOfWhatFails: all that the command said is printed but the names of
// packages that it compiled; nothing of a command that goes well and is quick.
func TestProgressOfWhatFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line, want string
		status     int
	}{
		{`work() { echo out; echo noise >&2; }; progress digging work`, "out\n", 0},
		{`work() { echo golang.org/x/sys/unix >&2; echo '# slowray' >&2; echo 'a.go:1:1: wrong' >&2; return 3; }; progress digging work; echo not reached`,
			"# slowray\na.go:1:1: wrong\ndigging failed after N s\n", 3},
		{`work() { false || return 4; }; progress digging work || echo "status $?"`, "digging failed after N s\nstatus 4\n", 0},
	} {
		printed, status := progress(t, c.line)
		printed = regexp.MustCompile(`\d+ s\n`).ReplaceAllString(printed, "N s\n")
		if printed != c.want || status != c.status {
			t.Errorf("exit status %d, %q, want %d, %q", status, printed, c.status, c.want)
		}
	}
}

// TestProgressLeavesNoPipeOpen: who reads what a script prints reads its end when the
// script ends, not when the sleep of the one that says how far it is does.
func TestProgressLeavesNoPipeOpen(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-euc", ". ./progress.sh\nprogress digging true\necho $$ ended")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	rest := bufio.NewReader(out)
	if _, err := rest.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := io.Copy(io.Discard, rest); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("the pipe was open for %v after that", took)
	}
}
