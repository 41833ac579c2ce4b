package change

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slowray/slowray/internal/cause"
)

func needTool(t *testing.T, names ...string) {
	t.Helper()
	for _, n := range names {
		if _, err := exec.LookPath(n); err != nil {
			t.Skipf("SKIPPED: %s is not installed", n)
		}
	}
}

var handles = regexp.MustCompile(` # handle \d+`)

func (c *child) nftWithHandles() string { return c.inside("nft", "-a", "list", "ruleset") }

// nft is the rules, without the handles: one that is put back has another.
func (c *child) nft() string { return handles.ReplaceAllString(c.nftWithHandles(), "") }

// handleOf is that of the first rule with the words in it.
func (c *child) handleOf(t *testing.T, words string) uint64 {
	t.Helper()
	for line := range strings.Lines(c.nftWithHandles()) {
		if m := handles.FindString(line); m != "" && strings.Contains(line, words) {
			var n uint64
			_, err := fmt.Sscanf(m, " # handle %d", &n)
			must(t, err)
			return n
		}
	}
	t.Fatalf("no rule with %q in\n%s", words, c.nftWithHandles())
	return 0
}

const ruleset = `
table inet fw {
	set banned { type ipv4_addr; elements = { 10.0.0.1, 10.0.0.2 } }
	map ports { type inet_service : verdict; elements = { 22 : accept, 23 : drop } }
	counter hits { packets 5 bytes 300 }
	quota q { 25 mbytes }
	chain other { counter accept; }
	chain in {
		type filter hook input priority 0; policy accept;
		iif lo tcp dport 1 counter packets 7 bytes 700 drop comment "the first"
		tcp dport { 80, 443, 8000-8100 } numgen random mod 100 < 30 counter packets 3 bytes 180 drop
		ip saddr . tcp dport { 10.1.1.1 . 80, 10.1.1.2 . 443 } drop
		tcp dport vmap { 21 : drop, 22 : jump other, 25 : accept }
		ip saddr @banned counter drop
		tcp dport vmap @ports
		ct state invalid,untracked drop
		ct state new limit rate over 10/second burst 5 packets drop
		tcp flags & (syn|ack) == syn tcp option maxseg size 1-500 counter drop
		udp dport 53 meta mark set 0x7 counter name hits
		udp dport 54 quota over 100 bytes used 50 bytes drop
		udp dport 55 ct count over 20 reject with icmpx type admin-prohibited
		meta l4proto icmp icmp type { echo-request, echo-reply } drop
		ip6 saddr fe80::/10 log prefix "six " level info drop
		ip saddr 192.168.0.0/16 ip daddr != { 10.0.0.0/8, 172.16.0.0/12 } drop
		tcp dport 9 drop
		tcp dport 9 drop
		jump other
		tcp dport 10 drop
	}
}
`

// Each rule of a ruleset is taken away and put back, word for word, where it was.
func TestNFTRules(t *testing.T) {
	needTool(t, "nft", "nsenter")
	p := newChild(t)
	load(t, p, ruleset)
	var all []uint64
	inside := false
	for line := range strings.Lines(p.nftWithHandles()) {
		inside = inside || strings.Contains(line, "chain in {")
		var n uint64
		if m := handles.FindString(line); inside && m != "" && !strings.Contains(line, "chain") {
			_, err := fmt.Sscanf(m, " # handle %d", &n)
			must(t, err)
			all = append(all, n)
		}
	}
	if len(all) != 19 {
		t.Fatalf("%d rules: %s", len(all), p.nftWithHandles())
	}
	for _, handle := range all {
		c := p.change(cause.ChangeRule)
		c.Rule = &cause.Rule{Tool: "nft", Family: "inet", Table: "fw", Chain: "in", Handle: handle, Text: fmt.Sprintf("handle %d", handle)}
		lines := strings.Count(p.nft(), "\n")
		cycle(t, c, p.nft, func() error {
			if now := strings.Count(p.nft(), "\n"); now >= lines {
				return fmt.Errorf("%d lines", now)
			}
			return nil
		})
	}
}

func load(t *testing.T, p *child, rules string) {
	t.Helper()
	cmd := exec.Command("nsenter", "-t", fmt.Sprint(p.pid), "-n", "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nft: %s", out)
	}
}

func TestNFTForeignAndGone(t *testing.T) {
	needTool(t, "nft", "nsenter")
	p := newChild(t)
	load(t, p, "table ip a { chain c { tcp dport 1 drop; tcp dport 2 drop; tcp dport 3 drop; }; }")
	d, _ := For(cause.ChangeRule)
	rule := func(words string) *cause.Change {
		c := p.change(cause.ChangeRule)
		c.Rule = &cause.Rule{Tool: "nft", Family: "ip", Table: "a", Chain: "c", Handle: p.handleOf(t, words), Text: words}
		return c
	}
	before := p.nft()

	// Two neighbours, undone in both orders.
	for _, order := range [][]int{{1, 0}, {0, 1}} {
		changes := []*cause.Change{rule("dport 1"), rule("dport 2")}
		states := make([]State, 2)
		for i, c := range changes {
			var err error
			states[i], err = d.Prepare(c)
			must(t, err)
			must(t, d.Apply(c, states[i]))
		}
		for _, i := range order {
			must(t, d.Undo(changes[i], states[i]))
		}
		if diff := cmp.Diff(before, p.nft()); diff != "" {
			t.Errorf("order %v: %s", order, diff)
		}
	}

	// Somebody else puts it back meanwhile.
	c := rule("dport 2")
	was, err := d.Prepare(c)
	must(t, err)
	must(t, d.Apply(c, was))
	p.inside("nft", "add", "rule", "ip", "a", "c", "tcp", "dport", "2", "drop")
	check(t, d, c, was, "put back by another", false, was.Was)
	must(t, d.Undo(c, was))
	if n := strings.Count(p.nft(), "dport 2 drop"); n != 1 {
		t.Errorf("%d rules for port 2", n)
	}

	c = rule("dport 3")
	was, err = d.Prepare(c)
	must(t, err)
	must(t, d.Apply(c, was))
	p.inside("nft", "delete", "table", "ip", "a")
	isGone(t, c, was)
	load(t, p, "table ip a { chain c { tcp dport 1 drop; }; }") // all loaded anew
	isGone(t, c, was)

	c.Rule.Handle = 99
	refuses(t, c, "no rule with handle 99")
	c.Rule.Chain = "d"
	refuses(t, c, "no such chain")
	c.Rule.Handle = 0
	refuses(t, c, "policy")
	c.Rule = nil
	refuses(t, c, "no firewall rule")
	load(t, p, "table ip b { chain c { tcp dport 1 jump { tcp sport 2 drop; }; }; }")
	c.Rule = &cause.Rule{Tool: "nft", Family: "ip", Table: "b", Chain: "c", Index: 1, Text: "x"}
	refuses(t, c, "not taken away")
}

var iptablesRules = [][]string{
	{"-p", "tcp", "--dport", "80", "-m", "statistic", "--mode", "random", "--probability", "0.3", "-j", "DROP"},
	{"-p", "tcp", "-m", "multiport", "--dports", "80,443,8000:8100", "-j", "REJECT", "--reject-with", "tcp-reset"},
	{"-s", "10.0.0.0/8", "!", "-p", "udp", "-m", "comment", "--comment", `it's "quoted" \ so`, "-j", "DROP"},
	{"-p", "tcp", "--syn", "-m", "connlimit", "--connlimit-above", "20", "-j", "DROP"},
	{"-m", "conntrack", "--ctstate", "INVALID", "-j", "DROP"},
	{"-p", "icmp", "--icmp-type", "echo-request", "-m", "limit", "--limit", "5/second", "-j", "ACCEPT"},
	{"-i", "lo", "-m", "mark", "--mark", "0x1/0xff", "-j", "LOG", "--log-prefix", "a b "},
	{"-p", "tcp", "--dport", "9", "-j", "DROP"},
	{"-p", "tcp", "--dport", "9", "-j", "DROP"},
}

// tables is all rules with counters, without the lines with the time.
func (c *child) tables(tool string) string {
	var out []string
	for line := range strings.Lines(c.inside(tool+"-save", "-c")) {
		if !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

func iptables(t *testing.T, tool string) (*child, []string) {
	t.Helper()
	needTool(t, tool, tool+"-save", "nsenter")
	p := newChild(t)
	var have []string
	for i, r := range iptablesRules {
		r = append(slices.Clone(r), "-c", fmt.Sprint(3*i), fmt.Sprint(100*i))
		if out, err := p.try(append([]string{tool, "-A", "INPUT"}, r...)...); err != nil {
			t.Logf("SKIPPED: rule %q: %s", r, strings.TrimSpace(out))
			continue
		}
		have = append(have, strings.Join(r, " "))
	}
	if len(have) < 5 {
		t.Fatalf("only %d rules could be made", len(have))
	}
	return p, have
}

func TestIptablesLegacyRules(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	p, have := iptables(t, "iptables-legacy")
	for i, text := range have {
		c := p.change(cause.ChangeRule)
		c.Rule = &cause.Rule{Tool: "iptables-legacy", Family: "ip", Table: "filter", Chain: "INPUT", Index: i + 1, Text: "-A INPUT " + text}
		dump := func() string { return p.tables("iptables-legacy") }
		cycle(t, c, dump, func() error {
			if n := strings.Count(dump(), "-A INPUT"); n != len(have)-1 {
				return fmt.Errorf("%d rules", n)
			}
			return nil
		})
	}
	c := p.change(cause.ChangeRule)
	c.Rule = &cause.Rule{Tool: "iptables-legacy", Table: "filter", Chain: "INPUT", Index: 77, Text: "-A INPUT -j DROP"}
	refuses(t, c, "observe anew")
	c.Rule.Chain = "NONE"
	refuses(t, c, "no such chain")
	c.Rule.Tool = "pf"
	refuses(t, c, "cannot be changed")

	// Two neighbours, undone in the wrong order.
	before := p.tables("iptables-legacy")
	d, _ := For(cause.ChangeRule)
	var changes []*cause.Change
	var states []State
	for range 2 {
		c := p.change(cause.ChangeRule)
		c.Rule = &cause.Rule{Tool: "iptables-legacy", Table: "filter", Chain: "INPUT", Index: 1, Text: strings.Split(p.inside("iptables-legacy", "-S", "INPUT"), "\n")[1]}
		was, err := d.Prepare(c)
		must(t, err)
		must(t, d.Apply(c, was))
		changes, states = append(changes, c), append(states, was)
	}
	for i := range changes {
		must(t, d.Undo(changes[i], states[i]))
	}
	if diff := cmp.Diff(before, p.tables("iptables-legacy")); diff != "" {
		t.Errorf("undone in the wrong order: %s", diff)
	}
	p.end()
	isGone(t, changes[0], states[0])
}

func TestIptablesNFTRules(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	p, have := iptables(t, "iptables-nft")
	dump := func() string { return p.tables("iptables-nft") }
	var chain struct {
		NFTables []struct {
			Rule *struct{ Handle uint64 }
		}
	}
	must(t, json.Unmarshal([]byte(p.inside("nft", "-j", "-a", "list", "chain", "ip", "filter", "INPUT")), &chain))
	n := 0
	for _, x := range chain.NFTables {
		if x.Rule == nil {
			continue
		}
		c := p.change(cause.ChangeRule)
		c.Rule = &cause.Rule{Tool: "iptables-nft", Family: "ip", Table: "filter", Chain: "INPUT", Handle: x.Rule.Handle, Text: have[n]}
		t.Log(have[n])
		n++
		cycle(t, c, dump, func() error {
			if n := strings.Count(dump(), "-A INPUT"); n != len(have)-1 {
				return fmt.Errorf("%d rules", n)
			}
			return nil
		})
	}
	if n != len(have) {
		t.Errorf("%d rules of %d", n, len(have))
	}
}

func TestShellWords(t *testing.T) {
	for line, want := range map[string][]string{
		`-A INPUT -m comment --comment "a \"b\" \\ c" -j DROP`: {"-A", "INPUT", "-m", "comment", "--comment", `a "b" \ c`, "-j", "DROP"},
		`-A X --log-prefix ""`:                                 {"-A", "X", "--log-prefix", ""},
		`a  b`:                                                 {"a", "b"},
	} {
		got, err := shellWords(line)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%q: %v %s", line, err, diff)
		}
	}
	if _, err := shellWords(`a "b`); err == nil {
		t.Error("an open quote is taken")
	}
}
