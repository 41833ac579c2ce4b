package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/slowray/slowray/internal/catalogue"
	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/commandline"
)

// docCommand is a command that a page shows.
type docCommand struct {
	at   string // file:line
	args []string
	// prose is whether it stands in a sentence, where "slowray fleet" names a group.
	prose bool
}

func (c *docCommand) String() string { return c.at + ": slowray " + strings.Join(c.args, " ") }

var (
	fence  = regexp.MustCompile("^\\s*```(\\w*)")
	inline = regexp.MustCompile("`([^`]+)`")
	// slowrayWord is how a command in a page begins. What follows is a command, a flag,
	// a comment or nothing: else it is a line that slowray prints.
	slowrayWord = regexp.MustCompile(`^(sudo (-\w+ )*)?(bin/)?slowray( +([a-z-]|#)|$)`)
	assignment  = regexp.MustCompile(`^[A-Z_]+=\S* +`)
)

// shellBlocks are the fenced blocks that may have commands: those without a language, too.
var shellBlocks = []string{"", "sh", "bash", "console"}

// placeholders are what stands for words in capitals.
var placeholders = map[string]string{
	"PID": "1", "N": "1", "ID": "1", "CAUSE": "network-loss", "NAME": "conntrack-full",
	"FILE": "f", "DIR": ".", "D": ".", "T": "12:03", "URL": "clickhouse://ch-1:8123/slowray",
}

// shellWords splits a line into the words of its commands, as sh does with quotes; of
// a pipe or a list each is a command by itself.
func shellWords(line string) (commands [][]string) {
	var words []string
	var word strings.Builder
	inWord, quote := false, rune(0)
	end := func() {
		if inWord {
			words = append(words, word.String())
		}
		word.Reset()
		inWord = false
	}
	next := func() {
		end()
		if len(words) > 0 {
			commands = append(commands, words)
		}
		words = nil
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case r == ' ':
			end()
		case r == '#' && !inWord:
			next()
			return commands
		case strings.ContainsRune("|;&", r):
			next()
		case r == '>' || r == '<': // the file that follows is no argument; nothing else is left of the line
			next()
			return commands
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	next()
	return commands
}

// commandsOf are the slowray commands of a page, and the targets of make in it.
func commandsOf(file, text string) (commands []docCommand, targets map[string]string) {
	targets = map[string]string{}
	add := func(line int, s string, prose bool) {
		at := fmt.Sprintf("%s:%d", file, line)
		for _, words := range shellWords(assignment.ReplaceAllString(s, "")) {
			if words[0] == "make" {
				for _, w := range words[1:] {
					if !strings.Contains(w, "=") {
						targets[w] = at
					}
				}
			}
			if !slowrayWord.MatchString(strings.Join(words, " ")) {
				continue
			}
			args := words[slices.IndexFunc(words, func(w string) bool { return strings.HasSuffix(w, "slowray") })+1:]
			commands = append(commands, docCommand{at, args, prose})
		}
	}
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		m := fence.FindStringSubmatch(lines[i])
		if m == nil {
			for _, span := range inline.FindAllStringSubmatch(lines[i], -1) {
				add(i+1, span[1], true)
			}
			continue
		}
		from := i + 1
		for i++; i < len(lines) && fence.FindString(lines[i]) == ""; i++ {
		}
		if !slices.Contains(shellBlocks, m[1]) {
			continue
		}
		block := lines[from:min(i, len(lines))]
		// Where a block has prompts, all else in it is output.
		prompts := slices.ContainsFunc(block, func(l string) bool { return strings.HasPrefix(l, "$ ") })
		for k := 0; k < len(block); k++ {
			line, at := block[k], from+k+1
			for strings.HasSuffix(line, "\\") && k+1 < len(block) {
				k++
				line = strings.TrimSuffix(line, "\\") + block[k]
			}
			command, prompt := strings.CutPrefix(line, "$ ")
			if prompt || !prompts {
				add(at, command, false)
			}
		}
	}
	return commands, targets
}

// pages are README.md, what stands next to it, and all of docs.
func pages(t *testing.T) map[string]string {
	t.Helper()
	root := filepath.Join("..", "..")
	all := map[string]string{}
	read := func(path string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.ToSlash(name)] = string(text)
	}
	for _, name := range []string{"README.md", "CONTRIBUTING.md", "SECURITY.md"} {
		read(filepath.Join(root, name))
	}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" {
			read(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// filled is the command with words in the places of its placeholders.
func (c *docCommand) filled() []string {
	var args []string
	for _, w := range c.args {
		if w == "…" || w == "..." {
			continue
		}
		if p, ok := placeholders[w]; ok {
			if w == "ID" && slices.Contains([]string{"causes", "prove"}, c.args[0]) {
				p = placeholders["CAUSE"]
			}
			w = p
		} else if flag, value, ok := strings.Cut(w, "="); ok && placeholders[value] != "" {
			w = flag + "=" + placeholders[value]
		}
		args = append(args, w)
	}
	return args
}

// check says what is wrong with a command, by the command line itself and the lists of
// what can be named on it.
func (c *docCommand) check() error {
	var line cli
	var out, errs bytes.Buffer
	args := joinNegative(c.filled())
	parsed, status := commandline.Parse(newParser(&line, &out, &errs), args, "")
	if parsed == nil && status != exitNothing && !(c.prose && mentioned(newParser(&line, &out, &out).Model.Node, args)) {
		return fmt.Errorf("%s\n\t%s", c, strings.TrimSpace(errs.String()))
	}
	all := catalogue.New(cause.Catalogue(), catalogue.Incidents())
	for _, id := range append([]string{line.Causes.ID, line.Prove.Cause}, line.Tune.Skip...) {
		if id != "" && all.Find(cause.ID(id)) == nil {
			return fmt.Errorf("%s\n\tthere is no cause %s", c, id)
		}
	}
	for _, name := range append([]string{line.Lab.Demo.Name, line.Lab.Shell.Name}, line.Lab.Lab.Run.Names...) {
		if name != "" && !slices.ContainsFunc(catalogue.Incidents(), func(i catalogue.Incident) bool { return i.Name == name }) {
			return fmt.Errorf("%s\n\tthe lab has no incident %s", c, name)
		}
	}
	return nil
}

// mentioned is whether a sentence may name a command so: with its flags, and without
// their values and what else it takes.
func mentioned(n *kong.Node, args []string) bool {
	for len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		i := slices.IndexFunc(n.Children, func(c *kong.Node) bool { return c.Name == args[0] })
		if i < 0 {
			return false
		}
		n, args = n.Children[i], args[1:]
	}
	for _, w := range args {
		if !slices.ContainsFunc(slices.Concat(n.AllFlags(false)...), func(f *kong.Flag) bool { return "--"+f.Name == w }) {
			return false
		}
	}
	return true
}

// A page whose commands are wrong is found out.
func TestWrongCommandsOfDocsAreFound(t *testing.T) {
	t.Chdir(docsDir(t))
	for _, text := range []string{
		"```sh\nsudo bin/slowray why --prot 80\n```",
		"```\nslowray prove conntrack-ful --apply\n```",
		"```\n$ sudo slowray requests --slow fast\noutput\n```",
		"```\nsudo slowray why \\\n  --nonsense\n```",
		"```\nslowray man | slowray replya f\n```",
		"Run `slowray fleet init` and `slowray fleet initialise`.",
		"What `slowray why --sav` wrote",
		"```\nbin/slowray lab demo no-such-incident\n```",
		"```\nslowray undo --forget\n```",
		"```\nSLOWRAY_TOKEN=x slowray page --dri copy # comment\n```",
	} {
		commands, _ := commandsOf("a page", text)
		if !slices.ContainsFunc(commands, func(c docCommand) bool { return c.check() != nil }) {
			t.Errorf("nothing is wrong with %q: %v", text, commands)
		}
	}
	for _, text := range []string{
		"```\n$ slowray top\nslowray takes 0.2 % of the CPU\n```",
		"```sql\nslowray nonsense\n```",
		"`slowray fleet` has `slowray fleet why`; `slowray.service` is a unit; `slowray why --save` writes",
		"```\nslowray flame --diff 'a b' > out # slowray nonsense\n```",
	} {
		commands, _ := commandsOf("a page", text)
		for _, c := range commands {
			if err := c.check(); err != nil {
				t.Error(err)
			}
		}
	}
}

// docsDir is a directory with the files that pages name.
func docsDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	recorded, err := filepath.Abs("../../internal/diagnose/testdata/nginx-throughput-S0.slowray")
	if err != nil {
		t.Fatal(err)
	}
	observation, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile("../../docs/tcprt.md")
	if err != nil {
		t.Fatal(err)
	}
	var tcprt []byte
	for line := range bytes.Lines(log) {
		if bytes.HasPrefix(line, []byte("V6 R ")) {
			tcprt = append(tcprt, line...)
		}
	}
	for name, data := range map[string][]byte{"f": observation, "A": observation, "B": observation, "rt-network-log0": tcprt} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// shortForms are what is added to the commands that look at this host, so that they
// end soon. Flags that say where or how long to look, or where to write, are left out.
var shortForms = map[string][]string{
	"why": {"--for=1s"}, "requests": {"--for=1s"}, "top": {"--once", "--every=1s"}, "drops": {"--for=1s"},
	"flame": {"--for=1s"}, "wait": {fmt.Sprint(os.Getpid())}, "doctor": nil,
}

var leftOut = []string{"--for", "--every", "--once", "--port", "--pid", "--peer", "--unit", "--container", "--save", "--redact", "--limit"}

// runnable is the form in which a command is run here: as it stands where it only
// reads files that are there, else for a moment, as root. Nothing where it is not.
func (c *docCommand) runnable() (args []string, root bool) {
	args = c.filled()
	if len(args) == 0 && c.prose { // slowray itself
		return nil, false
	}
	if slices.Contains(args, "--help") || slices.Contains(args, "--version") {
		return args, false
	}
	name, rest := "why", args
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name, rest = args[0], args[1:]
	}
	here := func(path string) bool { _, err := os.Stat(path); return err == nil }
	switch name {
	case "causes", "completion", "man", "help", "version":
		return args, false
	case "replay", "compare":
		files := slices.DeleteFunc(slices.Clone(rest), func(w string) bool { return strings.HasPrefix(w, "-") })
		if len(files) == 0 || slices.Contains(rest, "--at") || slices.ContainsFunc(files, func(f string) bool { return !here(f) }) {
			return nil, false
		}
		return args, false
	case "fleet":
		if len(rest) > 0 && rest[0] == "init" && slices.Contains(rest, "--print") {
			return args, false
		}
		return nil, false
	}
	if name == "undo" && slices.Contains(rest, "--list") {
		return args, true
	}
	if i := slices.Index(rest, "--from"); name == "requests" && i >= 0 {
		if i+1 < len(rest) && here(rest[i+1]) {
			return args, false
		}
		return nil, false
	}
	form, ok := shortForms[name]
	if !ok || slices.ContainsFunc(rest, func(w string) bool {
		return slices.Contains([]string{"--at", "--dir", "--diff", "-o", "--out", "--stats-every", "--experimental-otlp-profiles"}, strings.SplitN(w, "=", 2)[0])
	}) {
		return nil, false
	}
	kept := []string{name}
	for i := 0; i < len(rest); i++ {
		switch flag := rest[i]; {
		case slices.Contains(leftOut, flag):
			if flag != "--once" && flag != "--redact" {
				i++ // its value
			}
		case name == "wait" && !strings.HasPrefix(flag, "-"): // the process
		default:
			kept = append(kept, flag)
		}
	}
	return append(kept, form...), true
}

// Every command that a page shows exists, with its flags and its arguments; those that
// are quick and change nothing are run.
func TestCommandsOfDocs(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	var commands []docCommand
	for file, text := range pages(t) {
		found, targets := commandsOf(file, text)
		commands = append(commands, found...)
		for target, at := range targets {
			if !bytes.Contains(makefile, []byte("\n"+target+":")) && !bytes.Contains(makefile, []byte(" "+target+":")) && !bytes.Contains(makefile, []byte("\n"+target+" ")) {
				t.Errorf("%s: make has no target %s", at, target)
			}
		}
	}
	slices.SortFunc(commands, func(a, b docCommand) int { return cmp.Compare(a.at, b.at) })
	t.Chdir(docsDir(t))
	type form struct {
		root bool
		at   string
	}
	runs := map[string]form{}
	parsedOnly := map[string]int{}
	for _, c := range commands {
		if err := c.check(); err != nil {
			t.Error(err)
			continue
		}
		args, root := c.runnable()
		if args == nil || c.prose && root {
			parsedOnly[strings.Join(c.args[:min(1, len(c.args))], "")]++
			continue
		}
		runs[strings.Join(args, "\x00")] = form{root, c.at}
	}
	ran, needRoot := 0, 0
	for line, f := range runs {
		if f.root && (os.Getuid() != 0 || testing.Short()) {
			needRoot++
			continue
		}
		args := strings.Split(line, "\x00")
		began := time.Now()
		command := exec.Command("/proc/self/exe", args...)
		command.Env = append(os.Environ(), beSlowray+"=1")
		out, err := command.CombinedOutput()
		if status := command.ProcessState.ExitCode(); status != exitNothing && status != exitFindings || len(out) == 0 {
			t.Errorf("%s: slowray %s: %v\n%s", f.at, strings.Join(args, " "), err, out)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s: slowray %s took %v", f.at, strings.Join(args, " "), took)
		}
		ran++
	}
	t.Logf("%d commands in docs: all parsed; of %d different ones that are quick %d were run, %d need root and time; only parsed: %v", len(commands), len(runs), ran, needRoot, parsedOnly)
	if needRoot > 0 {
		t.Logf("SKIP: %d commands of docs look at this host: NOT run without root, or with -short", needRoot)
	}
	if len(commands) < 200 || len(runs) < 15 {
		t.Errorf("only %d commands, %d to run: are they still found?", len(commands), len(runs))
	}
}
