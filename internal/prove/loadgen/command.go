package loadgen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Command is a load generator with its arguments, as a person would type it.
type Command struct {
	Line string
	argv []string // nil when it takes a shell to run it
	tool string   // known by its program's name, or empty
	at   int      // index in argv of the argument that holds the duration, 0: none
}

// shellWords are what only a shell understands.
const shellWords = "|&;<>()$`\\\n*?[]{}~#"

// Parse takes a command line apart. Quotes are understood; what needs a shell is
// left to sh.
func Parse(line string) (Command, error) {
	c := Command{Line: strings.TrimSpace(line)}
	if c.Line == "" {
		return c, errors.New("the load is an empty command")
	}
	argv, err := words(c.Line)
	if err != nil {
		return c, fmt.Errorf("the load %q: %w", line, err)
	}
	if strings.ContainsAny(unquoted(c.Line), shellWords) || strings.Contains(argv[0], "=") {
		return c, nil
	}
	c.argv = argv
	start := generator(argv)
	if start < 0 {
		return c, nil
	}
	c.tool = filepath.Base(argv[start])
	c.at = durationAt(argv, start, flags[c.tool])
	return c, nil
}

// wrappers run what follows them.
var wrappers = map[string]bool{"nsenter": true, "ip": true, "sudo": true, "nice": true, "taskset": true, "chrt": true, "setpriv": true, "env": true, "stdbuf": true}

// generator is where in argv the load generator's own name is, -1 if nowhere. It
// is looked for beyond the first word only after a program that runs others.
func generator(argv []string) int {
	for i, word := range argv {
		if _, ok := flags[filepath.Base(word)]; ok {
			return i
		}
		if !wrappers[filepath.Base(argv[0])] {
			return -1
		}
	}
	return -1
}

// flag is the flag of a generator for how long it runs.
type flag struct {
	names  []string // "-d": the next word; "-d5s" too for one letter; "--duration=5s" too for the long ones
	whole  bool     // only whole seconds
	suffix string   // of the figure
}

// flags of the generators that can be known. vegeta's attack is in a pipe with its
// report, which takes a shell: it runs as it is.
var flags = map[string]flag{
	"wrk":      {[]string{"-d", "--duration"}, true, "s"},
	"wrk2":     {[]string{"-d", "--duration"}, true, "s"},
	"hey":      {[]string{"-z"}, false, "s"},
	"ab":       {[]string{"-t"}, true, ""},
	"oha":      {[]string{"-z"}, false, "s"},
	"k6":       {[]string{"-d", "--duration"}, false, "s"},
	"sysbench": {[]string{"--time"}, true, ""},
}

// durationAt finds the word of argv that holds the duration.
func durationAt(argv []string, start int, f flag) int {
	for i := start + 1; i < len(argv); i++ {
		for _, name := range f.names {
			switch {
			case argv[i] == name && i+1 < len(argv):
				return i + 1
			case strings.HasPrefix(argv[i], name+"="), len(name) == 2 && strings.HasPrefix(argv[i], name) && len(argv[i]) > 2 && argv[i][2] >= '0' && argv[i][2] <= '9':
				return i
			}
		}
	}
	return 0
}

// Adjustable says whether the command takes how long to run.
func (c *Command) Adjustable() bool { return c.at > 0 }

// closedLoops are generators whose clients wait for each answer before they ask
// again; wrk2 (also under the name of wrk), vegeta and k6 ask at their own pace, as
// oha, hey and sysbench do when they are given one.
var closedLoops = []string{"wrk", "ab", "hey", "oha", "sysbench"}

// Closed says that the command is known to be a closed loop.
func (c *Command) Closed() bool {
	paced := slices.ContainsFunc(c.argv, func(a string) bool {
		return (c.tool == "oha" || c.tool == "hey") && strings.HasPrefix(a, "-q") || c.tool == "wrk" && strings.HasPrefix(a, "-R") || strings.HasPrefix(a, "--rate")
	})
	return slices.Contains(closedLoops, c.tool) && !paced
}

// For is the command with another duration, rounded up to what its flag can hold;
// the same command when it cannot be known.
func (c *Command) For(d time.Duration) Command {
	if !c.Adjustable() {
		return *c
	}
	f := flags[c.tool]
	seconds := d.Seconds()
	if f.whole {
		seconds = math.Ceil(seconds)
	}
	value := strconv.FormatFloat(max(seconds, 0.1), 'f', -1, 64) + f.suffix
	made := *c
	made.argv = append([]string(nil), c.argv...)
	word := made.argv[c.at]
	switch name, _, long := strings.Cut(word, "="); {
	case slices.Contains(f.names, made.argv[c.at-1]): // the word is the duration, whatever it begins with
	case long && strings.HasPrefix(word, "-"):
		value = name + "=" + value
	case strings.HasPrefix(word, "-"):
		value = word[:2] + value
	}
	made.argv[c.at] = value
	made.Line = strings.Join(made.argv, " ")
	return made
}

// maxOutput bounds what is kept of a generator's output, in bytes: its end.
const maxOutput = 1 << 20

// Output is what a command printed.
type Output struct {
	Text    string
	Elapsed time.Duration
}

// Run runs the command until it ends or ctx does; then all its processes are
// ended. An exit status other than 0 is an error only where it printed nothing
// that is understood: k6 has one of its own for thresholds.
func (c *Command) Run(ctx context.Context) (Result, Output, error) {
	argv := c.argv
	if argv == nil {
		argv = []string{"/bin/sh", "-c", c.Line}
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	out := &tail{}
	cmd.Stdout, cmd.Stderr = out, out
	// A group of its own, so that all of it can be ended; and it does not outlive
	// slowray, also when that is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	runtime.LockOSThread() // Pdeathsig goes by thread
	defer runtime.UnlockOSThread()
	began := time.Now()
	err := cmd.Run()
	o := Output{Text: out.String(), Elapsed: time.Since(began)}
	if ctx.Err() != nil {
		return Result{}, o, ctx.Err()
	}
	result, unread := Read(o.Text)
	if unread == nil {
		return result, o, nil
	}
	if err != nil {
		return Result{}, o, fmt.Errorf("the load %q: %w%s", c.Line, err, lastLine(o.Text))
	}
	if !errors.Is(unread, ErrUnknown) {
		return Result{}, o, unread
	}
	return Result{}, o, ErrUnknown
}

// lastLine is the last line of an output, to tell why it failed.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	last := strings.TrimSpace(lines[len(lines)-1])
	if last == "" {
		return ""
	}
	if len(last) > 200 {
		last = last[:200] + "…"
	}
	return ": " + strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, last)
}

// tail keeps the end of what is written.
type tail struct{ buf bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	t.buf.Write(p)
	if over := t.buf.Len() - 2*maxOutput; over > 0 {
		t.buf.Next(over + maxOutput)
	}
	return len(p), nil
}

func (t *tail) String() string { return t.buf.String() }

// words splits a line as a shell would, without expanding anything.
func words(line string) ([]string, error) {
	var all []string
	var word strings.Builder
	in, quote := false, rune(0)
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, in = r, true
		case r == ' ' || r == '\t' || r == '\n':
			if in {
				all = append(all, word.String())
				word.Reset()
			}
			in = false
		default:
			word.WriteRune(r)
			in = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a quote (%c) is not closed", quote)
	}
	if in {
		all = append(all, word.String())
	}
	if len(all) == 0 || all[0] == "" {
		return nil, errors.New("names no program")
	}
	return all, nil
}

// unquoted is the line without what is quoted; in double quotes a shell still
// expands variables, so that those stay.
func unquoted(line string) string {
	var out strings.Builder
	quote := rune(0)
	for _, r := range line {
		switch {
		case quote == 0 && (r == '\'' || r == '"'):
			quote = r
		case r == quote:
			quote = 0
		case quote == 0, quote == '"' && strings.ContainsRune("$`\\", r):
			out.WriteRune(r)
		}
	}
	return out.String()
}
