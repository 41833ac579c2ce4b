package shelltest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Pair is a line of a harmless name and the same of a hostile one.
type Pair struct {
	Where          string // for failures
	Harmless, Line string
	Mutation       *Mutation
}

// Shells are those that are installed; bash and dash always are on Debian.
func Shells(t testing.TB) (found []string) {
	for _, name := range []string{"bash", "dash", "zsh", "ksh", "mksh"} {
		if path, err := exec.LookPath(name); err == nil {
			found = append(found, path)
		}
	}
	if len(found) == 0 {
		t.Fatal("no shell to try lines in")
	}
	return found
}

// Check has shells split both lines of every pair, and wants the same words but
// for the name, and nothing else run.
func Check(t testing.TB, pairs []Pair) {
	t.Helper()
	failures := map[string]int{}
	fail := func(kind, format string, args ...any) {
		t.Helper()
		if failures[kind]++; failures[kind] <= 10 {
			t.Errorf(format+kind, args...)
		}
	}
	seen := map[string]bool{}
	var lines, notes []string
	var tried []*Pair
	for i := range pairs {
		p := &pairs[i]
		if p.Line == p.Harmless || seen[p.Harmless+"\n"+p.Line] {
			continue
		}
		seen[p.Harmless+"\n"+p.Line] = true
		tried = append(tried, p)
		lines = append(lines, p.Harmless, p.Line)
		notes = append(notes, uncommented(p.Line))
	}
	for i, note := range run(t, Shells(t)[0], notes) {
		if note.canary {
			fail("what the name says is run, where a note is none", "%s, %s: %q\n", tried[i].Where, tried[i].Mutation.Name, tried[i].Line)
		}
	}
	for _, shell := range Shells(t) {
		got := run(t, shell, lines)
		for i, p := range tried {
			want, have := got[2*i], got[2*i+1]
			name := fmt.Sprintf("%s: %s, %s", filepath.Base(shell), p.Where, p.Mutation.Name)
			for j := range want.commands {
				for k, w := range want.commands[j] {
					want.commands[j][k] = strings.ReplaceAll(w, p.Mutation.Harmless, p.Mutation.Hostile)
				}
			}
			want.normal()
			have.normal()
			switch {
			case want.trouble != "":
				fail("no line, even of a harmless name", "%s: %s\n%s\n", name, p.Harmless, want.trouble)
			case have.canary:
				fail("what the name says is run", "%s: %q\n", name, p.Line)
			case strings.HasPrefix(p.Line, "# no command") && (p.Mutation.Refused || refusal.MatchString(p.Line)) && len(have.commands) == 0:
			case have.trouble != "":
				fail("no line", "%s: %q\n%s\n", name, p.Line, have.trouble)
			case !slices.EqualFunc(want.commands, have.commands, slices.Equal):
				fail("other words", "%s: %q\nis taken for %q\nwant           %q\n", name, p.Line, have.commands, want.commands)
			}
		}
	}
	for kind, n := range failures {
		t.Errorf("%s: %d", kind, n)
	}
	t.Logf("%d pairs of lines tried in %d shells", len(tried), len(Shells(t)))
}

// Parse has shells read lines, and wants no complaint.
func Parse(t testing.TB, lines []string) {
	t.Helper()
	slices.Sort(lines)
	lines = slices.Compact(lines)
	for _, shell := range Shells(t) {
		for i, r := range run(t, shell, lines) {
			if r.trouble != "" || r.canary || len(r.commands) == 0 && !strings.HasPrefix(lines[i], "# ") {
				t.Errorf("%s: %s\nis no line: %s", filepath.Base(shell), lines[i], r.trouble)
			}
		}
	}
	t.Logf("%d lines read by %d shells", len(lines), len(Shells(t)))
}

// refusal is why a program is not given a name, whatever shells would make of it.
var refusal = regexp.MustCompile(`no name of|cannot be given`)

// record is what came of a line.
type record struct {
	commands [][]string
	trouble  string // what the shell complained of
	canary   bool
}

// normal writes the same in one way: "--" before an operand with a dash is left
// out, and a printf that stands for echo is one. Commands of a pipeline, which run
// at once, are put in order.
func (r *record) normal() {
	for i, argv := range r.commands {
		if len(argv) > 2 && argv[0] == "printf" && argv[1] == `%s\n` {
			argv = append([]string{"echo"}, argv[2:]...)
		}
		for j := len(argv) - 2; j > 0; j-- {
			if argv[j] == "--" && strings.HasPrefix(argv[j+1], "-") {
				argv = slices.Delete(argv, j, j+1)
			}
		}
		for j, w := range argv {
			if strings.HasPrefix(w, "{ type filter ") { // an expression of nft, in which a name may stand in quotes
				argv[j] = strings.ReplaceAll(w, `"`, "")
			}
		}
		r.commands[i] = argv
	}
	slices.SortStableFunc(r.commands, slices.Compare)
}

// preamble replaces every builtin that lines use. A "printf" of one argument is a
// part of a word. What a nested shell is given is split as well.
const preamble = `
[ -z "$ZSH_VERSION" ] || setopt posixbuiltins nonomatch # a pattern of a line may match nothing here
rec() { command printf '%s\0' "C$#" "$@" >&3; }
nested() { while [ $# -gt 1 ]; do if [ "$1" = -c ]; then eval "$2"; return; fi; shift; done; }
echo() { rec echo "$@"; }
kill() { rec kill "$@"; }
printf() { if [ $# -gt 1 ]; then rec printf "$@"; else command printf "$@"; fi; }
sh() { rec sh "$@"; nested "$@"; }
nsenter() { rec nsenter "$@"; for w; do if [ "$w" = sh ]; then nested "$@"; return; fi; done; }
cd "$1" || exit 9
exec 3>>"$2/records" 4<"$2/lines"
while IFS= read -r line <&4; do
	[ "$line" ] || continue
	( if [ "$line" = ---- ]; then command printf 'L\0' >&3; else eval "$line"; fi ) 2>"$2/err"
	if [ -s "$2/err" ]; then rec '!' "$("$3" "$2/err")"; fi
	if [ -e canary ]; then rec canary; "$4" -f canary; fi
done
`

// keywords are words of lines that no program is made for, or a real one is.
var keywords = []string{"until", "for", "do", "done", "touch", "echo", "kill", "printf", "sh", "nsenter"}

// program is the first word of a command.
var program = regexp.MustCompile(`(?:^|[|;&] |\$\(|until |do )([A-Za-z][A-Za-z0-9_-]*)`)

// run has a shell take lines apart. A line that is several is run as such, as it
// would be if it were pasted.
func run(t testing.TB, shell string, lines []string) []record {
	t.Helper()
	if len(lines) == 0 {
		return nil
	}
	dir := t.TempDir()
	bin, cwd := filepath.Join(dir, "bin"), filepath.Join(dir, "cwd")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(bin, 0o755))
	must(os.Mkdir(cwd, 0o777))
	var text, functions strings.Builder
	programs := map[string]bool{}
	for _, line := range lines {
		text.WriteString(redirected(line) + "\n----\n")
		if !strings.Contains(line, "canary") {
			for _, m := range program.FindAllStringSubmatch(line, -1) {
				programs[m[1]] = !slices.Contains(keywords, m[1])
			}
		}
	}
	for name, wanted := range programs {
		if wanted && !strings.Contains(name, "-") {
			functions.WriteString(name + "() { rec " + name + " \"$@\"; }\n")
		} else if wanted {
			must(os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\nprintf '%s\\0' \"C$(($#+1))\" \""+name+"\" \"$@\" >&3\n"), 0o755))
		}
	}
	tools := map[string]string{}
	for _, tool := range []string{"touch", "cat", "rm"} {
		path, err := exec.LookPath(tool)
		must(err)
		tools[tool] = path
	}
	must(os.Symlink(tools["touch"], filepath.Join(bin, "touch")))
	must(os.WriteFile(filepath.Join(dir, "lines"), []byte(text.String()), 0o644))
	cmd := exec.Command(shell, "-c", functions.String()+preamble, shell, cwd, dir, tools["cat"], tools["rm"])
	cmd.Env = []string{"PATH=" + bin, "HOME=" + cwd, "LC_ALL=C.UTF-8"}
	if os.Geteuid() == 0 { // whatever a line does after all, it may do nothing
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		for d := dir; d != filepath.Dir(os.TempDir()) && len(d) > 1; d = filepath.Dir(d) {
			if info, err := os.Stat(d); err == nil && info.Mode().Perm()&0o005 != 0o005 {
				must(os.Chmod(d, info.Mode().Perm()|0o055))
			}
		}
		must(os.Chmod(dir, 0o777))
		must(os.Chmod(cwd, 0o777))
	}
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%s: %v: %.2000s", shell, err, out)
	}
	data, err := os.ReadFile(filepath.Join(dir, "records"))
	must(err)
	return records(t, strings.Split(string(data), "\x00"), len(lines))
}

// records puts together what the stubs have written.
func records(t testing.TB, fields []string, n int) []record {
	t.Helper()
	list := make([]record, 0, n)
	var r record
	for len(fields) > 0 && fields[0] != "" {
		if fields[0] == "L" {
			list = append(list, r)
			r, fields = record{}, fields[1:]
			continue
		}
		count, err := strconv.Atoi(strings.TrimPrefix(fields[0], "C"))
		if err != nil || len(fields) <= count {
			t.Fatalf("records end with %q", fields)
		}
		switch argv := fields[1 : 1+count]; {
		case argv[0] == "canary" && count == 1:
			r.canary = true
		case argv[0] == "!" && count == 2:
			r.trouble = argv[1]
		default:
			r.commands = append(r.commands, argv)
		}
		fields = fields[1+count:]
	}
	if len(list) != n {
		t.Errorf("only %d lines of %d were run", len(list), n)
		list = append(list, make([]record, n-len(list))...)
	}
	return list
}

// uncommented is a line of which the note is not taken for one: zsh knows no
// comments where a person types, if INTERACTIVE_COMMENTS is not set.
func uncommented(line string) string {
	at := -1
	outside(line, func(i int) {
		if at < 0 && line[i] == '#' && (i == 0 || line[i-1] == ' ') {
			at = i
		}
	})
	if at < 0 {
		return ""
	}
	return line[:at] + "true" + line[at+1:]
}

// redirected has the redirections of a line become words, so that no file is
// written: those that stand outside of quotes.
func redirected(line string) string {
	out := []byte(line)
	outside(line, func(i int) {
		if c := line[i]; (c == '>' || c == '<') && i+1 < len(line) && line[i+1] == ' ' {
			out[i] = '@'
		}
	})
	return string(out)
}

// outside visits the bytes of a line that are not quoted.
func outside(line string, visit func(i int)) {
	quote := byte(0)
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quote != '\'' && c == '\\':
			i++
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		case c == quote:
			quote = 0
		case quote == 0:
			visit(i)
		}
	}
}
