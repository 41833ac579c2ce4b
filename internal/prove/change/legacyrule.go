package change

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/shell"
)

// legacyRule is a rule of the older iptables. Its tables can only be replaced
// whole, which its own tools do; they are asked in its own words.
type legacyRule struct {
	Tool  string   `json:"tool"` // "iptables-legacy", "ip6tables-legacy"
	Table string   `json:"table"`
	Chain string   `json:"chain"`
	Line  string   `json:"line"`  // "-A INPUT …", as iptables-save writes it
	Count string   `json:"count"` // "packets:bytes"
	Index int      `json:"index"` // from 1
	Rules []string `json:"rules"` // the chain's lines, in their order
}

const toolTime = 10 * time.Second

// runTool runs a program in the namespace of the calling thread.
func runTool(name string, args ...string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is not installed", name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), toolTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		said := strings.Join(strings.Fields(errs.String()), " ")
		return "", fmt.Errorf("%s: %s", name, cmpText(said, err.Error()))
	}
	return out.String(), nil
}

// list gives the chain's rules and what each has counted.
func (l *legacyRule) list() (rules, counts []string, err error) {
	text, err := runTool(l.Tool+"-save", "-c", "-t", l.Table)
	if err != nil {
		return nil, nil, err
	}
	return l.parseSaved(text)
}

// parseSaved reads what iptables-save -c writes of a table.
func (l *legacyRule) parseSaved(text string) (rules, counts []string, err error) {
	if !strings.Contains(text, "\n:"+l.Chain+" ") {
		return nil, nil, ErrGone
	}
	for line := range strings.Lines(text) {
		count, rule, ok := strings.Cut(strings.TrimRight(line, "\n"), " ")
		if ok && strings.HasPrefix(count, "[") && strings.HasPrefix(rule, "-A "+l.Chain+" ") {
			rules, counts = append(rules, rule), append(counts, strings.Trim(count, "[]"))
		}
	}
	return rules, counts, nil
}

func readLegacyRule(r *cause.Rule) (*legacyRule, error) {
	l := &legacyRule{Tool: r.Tool, Table: r.Table, Chain: r.Chain, Index: r.Index}
	if r.Family == "ip6" {
		l.Tool = "ip6tables-legacy"
	}
	rules, counts, err := l.list()
	if errors.Is(err, ErrGone) {
		return nil, errors.New("there is no such chain")
	}
	if err != nil {
		return nil, err
	}
	if l.Index < 1 || l.Index > len(rules) || jump(rules[l.Index-1]) != jump(r.Text) {
		return nil, fmt.Errorf("rule %d of the chain is not %q any more: observe anew", r.Index, r.Text)
	}
	l.Rules, l.Line, l.Count = rules, rules[l.Index-1], counts[l.Index-1]
	_, err = shellWords(l.Line)
	return l, err
}

// jump is the target of a rule.
func jump(line string) string {
	f := strings.Fields(line)
	if i := slices.IndexFunc(f, func(s string) bool { return s == "-j" || s == "-g" }); i >= 0 && i+1 < len(f) {
		return f[i+1]
	}
	return ""
}

// count is how many of the rules are like this one.
func (l *legacyRule) count(rules []string) int {
	n := 0
	for _, r := range rules {
		if r == l.Line {
			n++
		}
	}
	return n
}

func (l *legacyRule) remove() error {
	rules, _, err := l.list()
	if err != nil {
		return err
	}
	if l.Index > len(rules) || rules[l.Index-1] != l.Line {
		return errors.New("the chain was changed in between")
	}
	_, err = runTool(l.Tool, "-w", "5", "-t", l.Table, "-D", l.Chain, fmt.Sprint(l.Index))
	return err
}

func (l *legacyRule) present() (bool, error) {
	rules, _, err := l.list()
	return l.count(rules) >= l.count(l.Rules), err
}

func (l *legacyRule) restore() error {
	rules, _, err := l.list()
	if err != nil || l.count(rules) >= l.count(l.Rules) {
		return err
	}
	args, err := l.insertion(l.place(rules))
	if err != nil {
		return err
	}
	if _, err := runTool(l.Tool, args...); err != nil {
		return err
	}
	if rules, _, err = l.list(); err == nil && l.count(rules) < l.count(l.Rules) {
		err = errors.New("it was put back and reads differently")
	}
	return err
}

// place is where the rule belongs in the chain as it is now: where it was, or,
// when others have come or gone, next to its nearest neighbour.
func (l *legacyRule) place(rules []string) int {
	for d := 1; d <= len(l.Rules); d++ {
		if i := l.Index - 1 - d; i >= 0 {
			if at := nearest(rules, l.Rules[i], i); at >= 0 {
				return at + 2
			}
		}
		if i := l.Index - 1 + d; i < len(l.Rules) {
			if at := nearest(rules, l.Rules[i], i-1); at >= 0 {
				return at + 1
			}
		}
	}
	return min(l.Index, len(rules)+1)
}

// nearest is where a line is in the chain; of several alike, the one nearest to
// where it was; -1 when there is none.
func nearest(rules []string, line string, was int) int {
	at := -1
	for i, r := range rules {
		if r == line && (at < 0 || abs(i-was) < abs(at-was)) {
			at = i
		}
	}
	return at
}

func abs(n int) int { return max(n, -n) }

func (l *legacyRule) insertion(at int) ([]string, error) {
	words, err := shellWords(l.Line)
	if err != nil || len(words) < 2 {
		return nil, fmt.Errorf("%q is not understood", l.Line)
	}
	packets, octets, ok := strings.Cut(l.Count, ":")
	if !ok {
		packets, octets = "0", "0"
	}
	args := []string{"-w", "5", "-t", l.Table, "-I", l.Chain, fmt.Sprint(at)}
	return append(append(args, words[2:]...), "-c", packets, octets), nil
}

func (l *legacyRule) commands() (do, undo shell.Command) {
	do = shell.Line("%s -t %s -D %s %s", l.Tool, shell.Word(l.Table), l.Chain, l.Index)
	words, err := shellWords(l.Line)
	if err != nil || len(words) < 2 {
		return do, shell.Line("# the rule was %s", l.Line)
	}
	return do, shell.Line("%s -t %s -I %s %s", l.Tool, shell.Word(l.Table), l.Chain, l.Index).Then(shell.Args(words[2:]...))
}

// shellWords splits a line as iptables-save quotes it: words in double quotes,
// with a backslash before what would end them (xtables_save_string).
func shellWords(line string) ([]string, error) {
	var out []string
	var word strings.Builder
	inside, any := false, false
	for i := 0; i < len(line); i++ {
		switch b := line[i]; {
		case b == '\\' && inside && i+1 < len(line):
			i++
			word.WriteByte(line[i])
		case b == '"':
			inside, any = !inside, true
		case b == ' ' && !inside:
			if any {
				out = append(out, word.String())
			}
			word.Reset()
			any = false
		default:
			word.WriteByte(b)
			any = true
		}
	}
	if inside {
		return nil, fmt.Errorf("%q: a quote is open", line)
	}
	if any {
		out = append(out, word.String())
	}
	return out, nil
}
