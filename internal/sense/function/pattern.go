package function

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"

	"github.com/slowray/slowray/internal/observe"
)

// pattern is one SYMBOL of the command line.
type pattern struct {
	text string // as given
	kind observe.FunctionKind
	in   string // library, provider or group; "" = any
	name string
}

// parsePattern reads [LIBRARY:]NAME, usdt:[PROVIDER:]NAME,
// tracepoint:GROUP:NAME, syscall:NAME or kprobe:NAME; names may have * and ?.
func parsePattern(text string) (pattern, error) {
	p := pattern{text: text, kind: observe.FunctionNative}
	kind, rest, ok := strings.Cut(text, ":")
	if !ok || strings.HasPrefix(rest, ":") {
		p.name = text
		return p, p.check()
	}
	switch kind {
	case "usdt":
		p.kind = observe.FunctionUSDT
		if p.in, p.name, ok = strings.Cut(rest, ":"); !ok {
			p.in, p.name = "", rest
		}
	case "tracepoint":
		p.kind = observe.FunctionTracepoint
		if p.in, p.name, ok = strings.Cut(rest, ":"); !ok {
			return p, fmt.Errorf("%q: a tracepoint is tracepoint:GROUP:NAME", text)
		}
	case "syscall":
		p.kind, p.name = observe.FunctionSyscall, rest
	case "kprobe":
		p.kind, p.name = observe.FunctionKernel, rest
	default:
		p.in, p.name = kind, rest
	}
	return p, p.check()
}

func (p *pattern) check() error {
	switch {
	case p.name == "":
		return fmt.Errorf("%q: the name is missing", p.text)
	case strings.HasPrefix(p.name, "__vdso_"), p.in == "[vdso]", p.in == "[vsyscall]":
		return fmt.Errorf("%q: it is in the vDSO, which is no file: no probe can be set there (the C library's function that calls it may be: clock_gettime)", p.text)
	}
	return nil
}

// isIn says whether something is in the library, provider or group asked for.
func (p *pattern) isIn(where string) bool { return p.in == "" || match(p.in, where) }

// ofKernel says whether it is looked for in the kernel, not in files.
func (p *pattern) ofKernel() bool {
	return p.kind == observe.FunctionTracepoint || p.kind == observe.FunctionSyscall || p.kind == observe.FunctionKernel
}

// wild says whether a name has wildcards.
func wild(s string) bool { return strings.ContainsAny(s, "*?") }

// match compares with wildcards: * is any text, ? any byte. Names may hold
// every other byte, also the brackets and slashes of path.Match.
func match(pattern, s string) bool {
	p, i := 0, 0
	star, mark := -1, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == s[i]):
			p++
			i++
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// nearest are up to five names that somebody may have meant.
func nearest(want string, names []string) []string {
	type scored struct {
		name  string
		score int
	}
	want = strings.ToLower(strings.Trim(want, "*?"))
	var all []scored
	for _, name := range names {
		low := strings.ToLower(name)
		switch {
		case want == "":
		case strings.Contains(low, want):
			all = append(all, scored{name, len(low) - len(want)})
		case len(low) <= 2*len(want)+8 && len(low)+3 >= len(want):
			if d := levenshtein.ComputeDistance(want, low); d <= max(2, len(want)/4) {
				all = append(all, scored{name, d + 4})
			}
		}
	}
	slices.SortFunc(all, func(a, b scored) int {
		return cmp.Or(cmp.Compare(a.score, b.score), strings.Compare(a.name, b.name))
	})
	var out []string
	for _, s := range all {
		if len(out) < 5 && !slices.Contains(out, s.name) {
			out = append(out, s.name)
		}
	}
	return out
}

// missing says that nothing has a name, and what has one like it.
func missing(p *pattern, where string, names []string) error {
	what := map[observe.FunctionKind]string{
		observe.FunctionNative: "function", observe.FunctionUSDT: "static probe", observe.FunctionTracepoint: "tracepoint",
		observe.FunctionSyscall: "system call", observe.FunctionKernel: "kernel function",
	}[p.kind]
	hint := ""
	if near := nearest(p.name, names); len(near) > 0 {
		hint = "; there is " + strings.Join(near, ", ")
	} else if p.kind == observe.FunctionNative {
		hint = " (inlined, static in a stripped file, or in another library)"
		if len(names) == 0 {
			hint = " (no symbols at all: stripped)"
		}
	}
	return fmt.Errorf("no %s %q in %s%s", what, p.text, where, hint)
}
