package function

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/syscalls"
)

// Traceable is something that can be watched.
type Traceable struct {
	Symbol string // as it can be given as SYMBOL
	Module string // the file; empty in the kernel
	Note   string
}

// List tells what can be watched in the target: functions and static probes of
// its files; for the kernel, or when a pattern asks for them, tracepoints,
// system calls and kernel functions. An empty pattern is everything.
func List(ctx context.Context, opt Options, patterns []string) ([]Traceable, error) {
	opt.Symbols = patterns
	p, err := newPlan(ctx, opt)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	if len(patterns) == 0 {
		patterns = []string{"*", "usdt:*"}
		if len(p.images) == 0 {
			patterns = []string{"tracepoint:*:*", "syscall:*"}
		}
	}
	var out []Traceable
	for _, text := range patterns {
		pat, err := parsePattern(text)
		if err != nil {
			return nil, err
		}
		var more []Traceable
		switch pat.kind {
		case observe.FunctionTracepoint, observe.FunctionSyscall, observe.FunctionKernel:
			more, err = p.listKernel(&pat)
		default:
			more, err = p.listFiles(&pat)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, nil
}

func (p *Plan) listFiles(pat *pattern) ([]Traceable, error) {
	if err := p.needFiles(pat); err != nil {
		return nil, err
	}
	var out []Traceable
	for _, im := range p.images {
		if pat.kind == observe.FunctionUSDT {
			seen := map[string]bool{}
			for _, s := range im.staticProbes() {
				one := "usdt:" + s.provider + ":" + s.name
				if pat.isIn(s.provider) && match(pat.name, s.name) && !seen[one] {
					seen[one] = true
					out = append(out, Traceable{Symbol: one, Module: im.name, Note: s.args})
				}
			}
			continue
		}
		if !pat.isIn(im.base()) {
			continue
		}
		err := im.all(pat.name, func(s *elfFunc) bool {
			if _, ok := im.offsetOf(s.addr); !ok {
				return true
			}
			one := Traceable{Symbol: s.shown(), Module: im.name}
			if s.ifunc {
				one.Note = "chosen among variants at run time: cannot be watched by this name"
			}
			out = append(out, one)
			return im.budget.Unpack(int64(len(one.Symbol))) == nil
		})
		if err = cmp.Or(err, im.budget.Err()); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(out, func(a, b Traceable) int { return strings.Compare(a.Symbol, b.Symbol) })
	return out, nil
}

func (p *Plan) listKernel(pat *pattern) ([]Traceable, error) {
	var (
		names  []string
		err    error
		prefix = string(pat.kind) + ":"
	)
	switch pat.kind {
	case observe.FunctionSyscall:
		names = syscalls.Names(runtime.GOARCH)
	case observe.FunctionKernel:
		if !haveKprobes() {
			return nil, p.addKernelFunctions(pat)
		}
		names, err = kernelFunctions()
	default:
		if err = p.needTracefs(); err == nil {
			names, err = p.tracefs.tracepoints()
		}
	}
	if err != nil {
		return nil, err
	}
	var out []Traceable
	for _, name := range names {
		plain := name
		if pat.kind == observe.FunctionTracepoint {
			group, rest, _ := strings.Cut(name, ":")
			if !match(pat.in, group) {
				continue
			}
			plain = rest
		}
		if match(pat.name, plain) {
			out = append(out, Traceable{Symbol: prefix + name})
		}
	}
	return out, nil
}
