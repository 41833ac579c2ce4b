package change

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/nl"
)

// ruleMessage is a rule in a dump.
func ruleMessage(c nftChain, handle uint64, expressions []byte) []byte {
	b := nl.Append(c.header(), unix.NFTA_RULE_TABLE, cstring(c.table))
	b = nl.Append(b, unix.NFTA_RULE_CHAIN, cstring(c.name))
	b = nl.Append(b, unix.NFTA_RULE_HANDLE, be64(handle))
	return nl.Append(b, unix.NFTA_RULE_EXPRESSIONS|unix.NLA_F_NESTED, expressions)
}

func expressionOf(name string, data []byte) []byte {
	return nl.Append(nil, 1|unix.NLA_F_NESTED, nl.Append(nl.Append(nil, unix.NFTA_EXPR_NAME, cstring(name)), unix.NFTA_EXPR_DATA|unix.NLA_F_NESTED, data))
}

// FuzzRules reads rules of nftables from dumps. The message that puts one back says what
// it says, and its place is between its neighbours.
func FuzzRules(f *testing.F) {
	c := nftChain{unix.NFPROTO_INET, "filter", "input"}
	meta := expressionOf("meta", nl.Append(nil, unix.NFTA_META_KEY, be32(unix.NFT_META_L4PROTO)))
	cmp := expressionOf("cmp", nl.Append(nl.Append(nil, unix.NFTA_CMP_OP, be32(unix.NFT_CMP_NEQ)), unix.NFTA_CMP_DATA, nl.Append(nil, unix.NFTA_DATA_VALUE, []byte{6})))
	f.Add(append(append(meta, cmp...), expressionOf("match", nil)...), expressionOf("counter", be64(1)), []byte("comment"), uint8(1))
	f.Add(expressionOf("lookup", nl.Append(nil, unix.NFTA_LOOKUP_SET, cstring("__set0"))), expressionOf("immediate", []byte("__chain1")), []byte{}, uint8(0))
	f.Add([]byte{1}, []byte{}, []byte{0}, uint8(200))
	f.Fuzz(func(t *testing.T, one, two, user []byte, at uint8) {
		const most = 60_000 // of an attribute
		if len(one) > most/2 || len(two) > most/2 || len(user) > 256 {
			return
		}
		budgettest.Within(t, len(one)+len(two)+len(user), budgettest.Cost{PerByte: 512, Fixed: 1 << 20, CPU: time.Second}, func() {
			dump := [][]byte{ruleMessage(c, 7, one), ruleMessage(nftChain{c.family, "other", "input"}, 8, one), ruleMessage(c, 9, two), one, two, nil, ruleMessage(c, 10, append(bytes.Clone(one), two...))}
			rules := c.parseRules(dump)
			rules = slices.DeleteFunc(rules, func(r nftRule) bool { return r.Handle != 7 && r.Handle != 9 && r.Handle != 10 }) // one and two may be rules, too
			if len(rules) != 3 || !bytes.Equal(rules[0].Expressions, one) || !bytes.Equal(rules[1].Expressions, two) {
				t.Fatalf("%+v", rules)
			}
			rules[1].UserData = user
			o := &nftOld{Family: c.family, Table: c.table, Chain: c.name, Rule: rules[int(at)%3]}
			o.look(rules, int(at)%3)
			if o.Alike < 1 || len(o.Before) > maxNeighbours || len(o.After) > maxNeighbours {
				t.Fatalf("%+v", o)
			}
			// What is read of the message that puts it back is the rule.
			messages := c.insert(&o.Rule, nil, 1, 0)
			back := c.parseRules([][]byte{messages[len(messages)-1].Payload})
			if len(back) != 1 || back[0].print() != o.Rule.print() || !bytes.Equal(back[0].UserData, o.Rule.UserData) {
				t.Fatalf("%+v is put back as %+v", o.Rule, back)
			}
			_, _, _ = o.Rule.sets(), o.Rule.bindsChain(), o.Rule.compat(c.family)
			left := slices.Delete(slices.Clone(rules), int(at)%3, int(at)%3+1)
			after, ahead := o.position(left)
			if (after == 0) == (ahead == 0) { // two are left: it is next to one of them
				t.Fatalf("after %d, ahead of %d", after, ahead)
			}
		})
	})
}

// FuzzTC reads disciplines and filters of traffic control. What is read is given back as
// it was, and is the same as itself.
func FuzzTC(f *testing.F) {
	o := tcObject{Index: 1, Handle: 0x10000, Parent: tcRoot, Info: 0x3000300, Kind: "fq_codel", Options: nl.Append(nil, 1, be32(7)), Chain: be32(0)}
	f.Add(o.payload(), uint32(7))
	bpf := tcObject{Index: 2, Handle: 1, Parent: tcParents["ingress"], Kind: "bpf", Options: nl.Append(nl.Append(nl.Append(nil, bpfID, be32(9)), bpfTag, make([]byte, 8)), bpfFlagsGen, be32(1))}
	f.Add(bpf.payload(), uint32(0xffffffff))
	f.Add([]byte{1, 2, 3}, uint32(0))
	f.Fuzz(func(t *testing.T, b []byte, handle uint32) {
		budgettest.Within(t, len(b), budgettest.Cost{PerByte: 256, Fixed: 1 << 20, CPU: time.Second}, func() {
			o, ok := parseTC(b)
			if ok != (len(b) >= tcmsgSize) {
				t.Fatalf("%d bytes: %v", len(b), ok)
			}
			if again, ok := parseTC(o.payload()); !ok || !again.same(&o) || !bytes.Equal(again.Chain, o.Chain) {
				t.Fatalf("%+v, and then %+v", o, again)
			}
			for _, kind := range []string{o.Kind, "bpf", "u32", "matchall", "flower"} {
				filter := tcFilter{o}
				filter.Object.Kind = kind
				if !filter.reads(&filter.Object) {
					t.Errorf("%s is not the same as itself", kind)
				}
				taken := filter.options(-1)
				filter.Object.Options = taken
				if again := filter.options(-1); !bytes.Equal(again, taken) {
					t.Errorf("%s: %x is taken as %x", kind, taken, again)
				}
				_, _ = filter.words(), filter.way()
			}
			// A place is read as it is written.
			text := "parent " + tcHandle(handle)
			if handle == tcRoot {
				text = "root"
			}
			if at, err := qdiscPlace(text); err == nil && at != handle || err != nil && handle>>16 > 0 && handle&0xffff > 0 && handle>>16 < 0xffff {
				t.Errorf("%q is read as %x: %v", text, at, err)
			}
		})
	})
}

// savedWord quotes a word as iptables-save does (xtables_save_string).
func savedWord(word string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `'`, `\'`).Replace(word) + `"`
}

// FuzzSaved reads what iptables-save writes. Words are those that were quoted, and a rule
// that is put back comes between what was next to it.
func FuzzSaved(f *testing.F) {
	f.Add("*filter\n:INPUT ACCEPT [1:2]\n[3:4] -A INPUT -p tcp -j DROP\n[5:6] -A INPUT -j x\nCOMMIT\n", "INPUT", "a \"b\" \\", 1, uint8(0))
	f.Add("\n:x - [0:0]\n[0:0] -A x -m comment --comment \"a b\" -j REJECT\n", "x", "-j", 1, uint8(1))
	f.Add("", "", "", -1, uint8(0))
	f.Fuzz(func(t *testing.T, text, chain, word string, index int, gone uint8) {
		budgettest.Within(t, len(text)+len(word), budgettest.Cost{PerByte: 512, Fixed: 1 << 20, CPU: time.Second}, func() {
			l := &legacyRule{Tool: "iptables-legacy", Table: "filter", Chain: chain, Index: index}
			rules, counts, err := l.parseSaved(text)
			if len(rules) != len(counts) || err != nil && !errors.Is(err, ErrGone) {
				t.Fatalf("%q, %q, %v", rules, counts, err)
			}
			if index >= 1 && index <= len(rules) {
				l.Rules, l.Line, l.Count = rules, rules[index-1], counts[index-1]
				left := slices.Delete(slices.Clone(rules), index-1, index)
				if n := len(left); n > 0 && int(gone) < n {
					left = slices.Delete(left, int(gone), int(gone)+1)
				}
				if at := l.place(left); at < 1 || at > len(left)+1 {
					t.Fatalf("place %d of %d", at, len(left))
				}
				if args, err := l.insertion(1); err == nil && !slices.Contains(args, "-I") {
					t.Errorf("%q", args)
				}
				l.commands()
				jump(l.Line)
			}
			line := "-A x " + savedWord(word) + " -j DROP"
			words, err := shellWords(line)
			if err != nil || len(words) != 5 || words[2] != word {
				t.Errorf("%q is read as %q: %v", line, words, err)
			}
			_, _ = shellWords(text)
		})
	})
}

// FuzzGroupFile compares files of control groups with what is written to them.
func FuzzGroupFile(f *testing.F) {
	f.Add("io.max", "8:0 rbps=max wbps=1048576 riops=max wiops=max\n", "8:16 rbps=1\n", "0-3,8")
	f.Add("cpu.max", "max 100000\n", "max", "0-30:2")
	f.Add("memory.max", "max\n", "9223372036854771712", "5-9:9223372036854775807")
	f.Add("cpuset.cpus", "0-1\n", "0,1", "1-0")
	f.Add("memory.high", "4096K", "4M", "")
	f.Fuzz(func(t *testing.T, file, old, now, cpus string) {
		budgettest.Within(t, len(old)+len(now)+len(cpus), budgettest.Cost{PerByte: 256, Fixed: 1 << 20, CPU: time.Second}, func() {
			// What has to be written to get back is what the file has then.
			for _, line := range backTo(file, old, now) {
				if strings.Contains(line, "\n") && keyed(file) {
					t.Errorf("%q is more than one line", line)
				}
			}
			if back := backTo(file, old, old); keyed(file) {
				order, _ := lines(old)
				if again, _ := lines(strings.Join(back, "\n")); !slices.Equal(order, again) {
					t.Errorf("%q goes back to %q", old, back)
				}
			} else if len(strings.Fields(old)) > 0 && !strings.HasPrefix(file, "memory.") && file != "cpuset.cpus" && !groupFileHolds(file, old, back[0]) {
				t.Errorf("%q does not hold %q", old, back[0])
			}
			groupFileHolds(file, now, old)
			if n, err := memoryBytes(old); err == nil {
				if again, err := memoryBytes(fmt.Sprint(n)); err != nil || again != n {
					t.Errorf("%q is %d bytes, which are %d: %v", old, n, again, err)
				}
			}
			set, err := parseCPUs(cpus)
			if err != nil {
				return
			}
			if again, err := parseCPUs(cpuList(set)); err != nil || again != set || set.Count() == 0 {
				t.Errorf("%q is %q: %v", cpus, cpuList(set), err)
			}
		})
	})
}

// FuzzText reads the other files and values: names stay below their directory, and what
// is a limit, a nice value or a setting is read as it was written.
func FuzzText(f *testing.F) {
	f.Add([]byte("1 (a) b) S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 99 0 0"), "net.ipv4.tcp_rmem", "4096\t131072 6291456", "[none] mq-deadline")
	f.Add([]byte("7 ()"), "net/../../etc/passwd", "unlimited", "socket:[123]")
	f.Add([]byte("36 35 0:31 / /sys/fs/cgroup\\040x rw - cgroup2 cgroup2 rw"), "net.ipv4.conf.eth0/100.rp_filter", "-20", "a]b[c")
	f.Add([]byte{}, "", "nf_conntrack_buckets", "65536")
	f.Fuzz(func(t *testing.T, file []byte, name, value, text string) {
		budgettest.Within(t, len(file)+len(name)+len(value)+len(text), budgettest.Usual, func() {
			_, _, _ = parseStat(file)
			for _, m := range parseGroupMounts(string(file)) {
				if m.dir == "" || m.root == "" {
					t.Errorf("%+v", m)
				}
			}
			if path, err := sysctlFile(name); err == nil {
				if whole := filepath.Join(sysctlRoot, path); !strings.HasPrefix(whole, sysctlRoot+"/") && whole != sysctlRoot {
					t.Errorf("%q is %s", name, whole)
				}
			}
			if n, err := parseLimit(value); err == nil {
				if again, err := parseLimit(limitText(n)); err != nil || again != n {
					t.Errorf("%q is %d, which is %d: %v", value, n, again, err)
				}
			}
			if n, err := parseNice(value); err == nil && (n < -20 || n > 19) {
				t.Errorf("nice %d", n)
			}
			if !sameValue(value, sysctlWords(value)) || !setTo(name, value, value) {
				t.Errorf("%q is not the same as itself", value)
			}
			setTo("net/netfilter/nf_conntrack_buckets", value, text)
			if one := selected(text); !strings.Contains(text, one) {
				t.Errorf("%q of %q", one, text)
			}
			inodeIn(text, "socket")
		})
	})
}

// FuzzState opens states as a journal has them, of each kind of change, and says what
// would be done: what is damaged is an error, and nothing is done.
func FuzzState(f *testing.F) {
	kinds := make([]string, 0, len(doers))
	for k := range doers {
		kinds = append(kinds, string(k))
	}
	slices.Sort(kinds)
	for i := range kinds {
		f.Add(uint8(i), []byte(`{"file":"net/core/somaxconn","old":"4096\n","place":{},"process":{"pid":1,"start":2},"threads":[{"tid":1,"start":2}],"sockets":[{"owner":{"pid":1},"fd":3}]}`), "lo", "root", "4096")
		f.Add(uint8(i), []byte(`{"at":4294967295,"old":{"kind":"fq"},"words":["fq"],"tc":{"object":{"kind":"bpf","options":"BAABAA=="}},"legacy":{"line":"-A x -j y"},"nft":{"sets":[{}]}}`), "eth0;id", "parent 1:2", "x\ny")
		f.Add(uint8(i), []byte(`null`), "", "", "")
	}
	f.Fuzz(func(t *testing.T, kind uint8, own []byte, device, name, value string) {
		d := doers[cause.ChangeKind(kinds[int(kind)%len(kinds)])]
		c := &cause.Change{Kind: cause.ChangeKind(kinds[int(kind)%len(kinds)]), Interface: device, Name: name, Value: value, Path: device, PID: 1 << 22, Rule: &cause.Rule{Tool: "nft", Chain: name, Table: device, Text: value}}
		budgettest.Within(t, len(own)+len(value), budgettest.Cost{PerByte: 1024, Fixed: 1 << 20, CPU: time.Second}, func() {
			data, err := json.Marshal(envelope{BootID(), json.RawMessage(own)})
			if err != nil { // own is no JSON
				data = own
			}
			d.Commands(c, State{Data: data, Was: value})
			// Of another run of the kernel nothing is there that could be put back.
			other, err := json.Marshal(envelope{"another", json.RawMessage(own)})
			if err != nil {
				return
			}
			if ours, gone, _, err := d.Holds(c, State{Data: other}); err != nil || ours || !gone {
				t.Errorf("%s of another run of the kernel: %v %v %v", c.Kind, ours, gone, err)
			}
			if err := d.Undo(c, State{Data: other}); err != nil {
				t.Errorf("%s of another run of the kernel: %v", c.Kind, err)
			}
		})
	})
}

// The children of one process, however many, are found in time; so are those of a chain.
func TestManyDescendants(t *testing.T) {
	const many = 30_000
	parents := map[int]int{}
	for pid := 2; pid < many; pid++ {
		parents[pid] = 1
		parents[many+pid] = many + pid - 1
	}
	budgettest.Within(t, many, budgettest.Cost{PerByte: 4096, CPU: 2 * time.Second}, func() {
		if n := len(descendants(parents, []int{1, many + 1})); n != 2*(many-2) {
			t.Errorf("%d of %d", n, 2*(many-2))
		}
	})
	if got := descendants(map[int]int{2: 3, 3: 2, 4: 3}, []int{2}); len(got) != 2 {
		t.Errorf("of a circle: %v", got)
	}
}
