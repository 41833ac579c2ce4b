package shell

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

// shells are those that lines are tried in: bash, and what Debian has as sh; the
// others where they are installed.
func shells(t testing.TB) (found []string) {
	for _, name := range []string{"bash", "dash", "zsh", "fish", "ksh", "mksh"} {
		if path, err := exec.LookPath(name); err == nil {
			found = append(found, path)
		}
	}
	if path, err := exec.LookPath("busybox"); err == nil {
		found = append(found, path+" sh")
	}
	if len(found) == 0 {
		t.Fatal("no shell")
	}
	return found
}

// split has a shell say which words each line gives the program "p", which every
// line begins with. Nothing else can be run, and no file be made.
func split(t testing.TB, shell string, lines []string) [][]string {
	t.Helper()
	dir := t.TempDir()
	show := dir + "/p"
	if err := os.WriteFile(show, []byte("#!/bin/sh\nprintf '%s\\0' \"$@\"\nprintf '\\0'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	argv := strings.Fields(shell)
	if err := os.Symlink("/bin/sh", dir+"/sh"); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(lines, "\n")
	cmd := exec.Command(argv[0], append(argv[1:], "-c", text)...)
	if len(argv) > 1 && argv[1] == "-s" {
		cmd = exec.Command(argv[0])
		cmd.Stdin = strings.NewReader(text)
	}
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"PATH=" + dir, "HOME=/root", "LC_ALL=C.UTF-8"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", shell, err, out)
	}
	if made, err := os.ReadDir(cmd.Dir); err != nil || len(made) > 0 {
		t.Fatalf("%s made files: %v, %v", shell, made, err)
	}
	var words [][]string
	for _, record := range strings.SplitAfter(string(out), "\x00\x00") {
		if record, ok := strings.CutSuffix(record, "\x00"); ok {
			words = append(words, strings.Split(strings.TrimSuffix(record, "\x00"), "\x00"))
		}
	}
	return words
}

// hostile are words that a shell, a terminal or a program could take for
// something else.
var hostile = []string{" ", "a b", "x;touch p;#", "#x", "~root", "a=~b", "=ls", "$(touch p)", "`touch p`", "$HOME", "${HOME}", "'", "''", `"`, `\`, `\'`, `\\'`, `a\\b`, `a\x2db`, `a\`, "!x", "!!", "x!x",
	"a\nb", "\na", "a\n;touch p\nb", "\t", "*", "[a]?", "{a,b}", "a&touch p", "a|touch p", "<x", ">p", "(touch p)", "\x1b[31m", "\x1b]0;x\x07", "\r", "\x7f", "\u0085", "\u00a0", "\xff\xfe", "ä€漢", "\u202e", "\u2066x", "\U000e0041",
	"%s", "%", "%%\nx", "x\n-", "\n%s\n!x'\"\\", "eth0", "10.0.0.1/24", "foo@bar.service", "^x", "x{}", "if", "a=b"}

func TestWordsArriveAsTheyAre(t *testing.T) {
	var lines []string
	var want [][]string
	for _, h := range hostile {
		for _, line := range []Command{Args("p", h), Line("p %s", h), Line("p a=%s,up   # note %s", h, h), Line("p dev %s up # 100%%", Word("-"+h)), Line("p").Then(Line("sh -c %s", Args("p", h)))} {
			if line.IsNote() {
				t.Errorf("%q: %s", h, line)
				continue
			}
			lines = append(lines, line.String())
			if s := line.String(); strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
				t.Errorf("%q: a character that cannot be seen", s)
			}
		}
		want = append(want, []string{h}, []string{h}, []string{"a=" + h + ",up"}, []string{"dev", "-" + h, "up"}, []string{"sh", "-c", Args("p", h).String()})
	}
	for _, shell := range shells(t) {
		if got := split(t, shell, lines); !cmp.Equal(got, want) {
			t.Errorf("%s: %s", shell, cmp.Diff(want, got))
		}
	}
}

// TestPasted types lines into a bash that expands its history, as one does that a
// person types into.
func TestPasted(t *testing.T) {
	var lines []string
	var want [][]string
	for _, h := range hostile {
		lines = append(lines, Line("p %s   # %s", Word(h), h).String())
		want = append(want, []string{h})
	}
	if got := split(t, "bash -s", append([]string{"set -o history -H"}, lines...)); !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
}

// TestNested has a line of a line of a line run by three shells, one in another.
func TestNested(t *testing.T) {
	var lines []string
	var want [][]string
	for _, h := range hostile {
		lines = append(lines, Line("sh -c %s", Line("sh -c %s", Args("p", h, "x"))).String())
		want = append(want, []string{h, "x"})
	}
	for _, shell := range shells(t) {
		if got := split(t, shell, lines); !cmp.Equal(got, want) {
			t.Errorf("%s: %s", shell, cmp.Diff(want, got))
		}
	}
}

func TestWrittenAsItIs(t *testing.T) {
	for _, value := range append(hostile, "-n", "-e x", `\n`, "max 100000") {
		for _, shell := range shells(t) {
			file := t.TempDir() + "/a 'file'"
			line := Write(value, Path(file)).Then(Line("&&")).Then(Append(value, Path(file)))
			argv := strings.Fields(shell)
			if out, err := exec.Command(argv[0], append(argv[1:], "-c", line.String())...).CombinedOutput(); err != nil {
				t.Errorf("%s: %s: %v: %s", shell, line, err, out)
			}
			if got, err := os.ReadFile(file); err != nil || string(got) != value+"\n"+value+"\n" {
				t.Errorf("%s: %s: %q, %v", shell, line, got, err)
			}
		}
	}
}

func TestLine(t *testing.T) {
	for _, tt := range []struct {
		line Command
		want string
	}{
		{Line("sysctl -w %s", Sysctl("net.core.somaxconn=4096")), "sysctl -w net.core.somaxconn=4096"},
		{Line("sysctl -w %s", Sysctl("net.ipv4.tcp_rmem=4096 131072")), "sysctl -w 'net.ipv4.tcp_rmem=4096 131072'"},
		{Line("ip link set dev %s mtu %s", Word("eth0"), 1500), "ip link set dev eth0 mtu 1500"},
		{Line("psql -c 'SELECT %s'", -4), "psql -c 'SELECT -4'"},
		{Line("renice -n %s", -4), "renice -n -4"},
		{Line("systemctl restart %s", Operand("nginx.service")), "systemctl restart nginx.service"},
		{Line("systemctl restart %s", Operand("-.mount")), "systemctl restart -- -.mount"},
		{Line("systemctl restart -- %s", Operand("-.mount")), "systemctl restart -- -.mount"},
		{Line("rm %s", Path("-rf")), "rm ./-rf"},
		{Line("du %s/x", Path("-rf")), "du ./-rf/x"},
		{Line("ls -- %s", "-rf"), "ls -- -rf"},
		{Line("ls -l /proc/%s", "-rf"), "ls -l /proc/-rf"},
		{Line("ethtool %s", "-x;id"), "# no command for ethtool: '-x;id' begins with a dash and would be taken for an option"},
		{Line("nsenter").Then(Line("ethtool %s", "-x")), "# no command for ethtool: -x begins with a dash and would be taken for an option"},
		{Line("nsenter sh -c %s", Line("ethtool %s", "-x")), "# no command for ethtool: -x begins with a dash and would be taken for an option"},
		{Line("ip link show dev %s", Word("a\n")), `# no command for ip: 'a\n': it ends with a newline, which a shell would take off`},
		{Args("ip", "a\x00b;id"), `# no command: 'a\x00b;id': a word cannot hold a NUL byte`},
		{Line("nft delete table ip %s", NFT("x; flush ruleset")), "# no command for nft: nft cannot be given 'x; flush ruleset' as a name"},
		{Line("nft delete table ip %s", NFT("KUBE-SVC_1.x/y")), "nft delete table ip KUBE-SVC_1.x/y"},
		{Line("systemctl restart %s", Unit("*.service")), "# no command for systemctl: '*.service' is no name of a unit"},
		{Line("systemctl restart %s", Unit(`a\x2db@c.service`)), `systemctl restart 'a\x2db@c.service'`},
		{Line("sysctl -w %s", Sysctl("net.ipv4.conf.*.rp_filter=2")), "# no command for sysctl: sysctl cannot be given 'net.ipv4.conf.*.rp_filter=2'"},
		{Line("# in %s: %s", "/etc/x y;id", Text("a setting=4")), "# in '/etc/x y;id': a setting=4"},
		{Line("# %s", Text("a; id")), "# 'a; id'"},
		{Line("# %s", Text("a\n$(id)")), `# 'a\n$(id)'`},
		{Line("kill -HUP %s   # %s of %s: reload", 1, "nginx", Text("a # b")), "kill -HUP 1   # nginx of 'a # b': reload"},
		{Line("a").Then(Line("b # c")).Then(Line("d # e")), "a b d   # c, e"},
		{Command{}.Then(Line("b")).Then(Command{}), "b"},
		{Line("echo '#' \\# a#b"), "echo '#' \\# a#b"},
	} {
		if got := tt.line.String(); got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
	if Line("a").IsNote() || !Line("# a").IsNote() || (Command{}).IsNote() || !(Command{}).IsZero() || Line("# a").IsZero() {
		t.Error("what is a note")
	}
}

func TestJSONIsAString(t *testing.T) {
	for line, want := range map[Command]string{
		Args("a b"):                    `"'a b'"`,
		Line("a %s   # c, d", "b # c"): `"a 'b # c'   # c, d"`,
		Line("# in %s: a", "f g"):      `"# in 'f g': a"`,
		{}:                             `""`,
	} {
		data, err := json.Marshal(line)
		if err != nil || string(data) != want {
			t.Error(string(data), err)
		}
		var c Command
		if err := json.Unmarshal(data, &c); err != nil || c != line {
			t.Errorf("%s: %+v %v, not %+v", data, c, err, line)
		}
	}
	for _, old := range []string{"edit /etc/x:12: a → b", "it's not closed"} {
		data, _ := json.Marshal(old)
		var c Command
		if err := json.Unmarshal(data, &c); err != nil || c.String() != old {
			t.Errorf("%s: %s, %v", old, c, err)
		}
	}
	var c Command
	if err := json.Unmarshal([]byte(`"echo a\nid;\u001b[2J"`), &c); err != nil || !c.IsNote() || strings.ContainsAny(c.String(), "\n\x1b") {
		t.Errorf("%q, %v", c, err)
	}
	if json.Unmarshal([]byte(`4`), &c) == nil {
		t.Error("a number is taken")
	}
}

func TestMistakesPanic(t *testing.T) {
	for i, bad := range []func(){
		func() { Line("%s") }, func() { Line("x", 1) }, func() { Line("%d", 1) }, func() { Line("100%") }, func() { Line("a 'b") },
		func() { Line("a '%s'", "b") }, func() { Line(`a "%s"`, "b") }, func() { Line("a # it's %s", "b") }, func() { Line("a # b; c") }, func() { Line("a # b %s") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%d: no panic", i)
				}
			}()
			bad()
		}()
	}
}

// FuzzQuote has both shells that Debian always has take a word apart, in a line,
// in a line within a line, and in a note.
func FuzzQuote(f *testing.F) {
	for _, h := range append([]string{""}, hostile...) {
		f.Add(h)
	}
	f.Fuzz(func(t *testing.T, word string) {
		lines := []Command{Line("p x=%s", word), Line("p dev %s   # %s, %s", Word(word), word, Text(word)), Line("p y %s", Args("p", word))}
		want := [][]string{{"x=" + word}, {"dev", word}, {"y", lines[2].line}}
		if lines[0].IsNote() {
			if !strings.Contains(word, "\x00") && !strings.HasSuffix(word, "\n") {
				t.Fatal(lines)
			}
			return
		}
		want[2] = []string{"y", Args("p", word).String()}
		if word == "" { // Word: a name that is not known
			if !lines[1].IsNote() {
				t.Fatal(lines)
			}
			want = slices.Delete(want, 1, 2)
		}
		for _, shell := range shells(t)[:2] {
			if got := split(t, shell, Strings(lines)); !cmp.Equal(got, want) {
				t.Errorf("%s: %q: %s", shell, lines, cmp.Diff(want, got))
			}
		}
		var back Command
		if data, _ := json.Marshal(lines[1]); json.Unmarshal(data, &back) != nil || back != lines[1] {
			t.Errorf("%q is read back as %q", fmt.Sprint(lines[1]), fmt.Sprint(back))
		}
	})
}
