package cause

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// executed is what some processes were seen executing.
type executed struct {
	samples   uint64
	unnamed   uint64
	functions []observe.ProfileFunction // most samples first
}

// executedBy sums up the functions of processes; of one thread of a process
// when tid is not 0.
func (v *View) executedBy(procs []*observe.Process, tid int) executed {
	var e executed
	if v.Profile == nil {
		return e
	}
	index := map[string]int{}
	var mine []*observe.ProfileProcess
	closely := false
	var places []int
	for _, o := range procs {
		places = append(places, v.profiled[o.PID]...)
	}
	slices.Sort(places)
	for _, i := range slices.Compact(places) {
		p := &v.Profile.Processes[i]
		mine = append(mine, p)
		closely = closely || p.Looked > 0
	}
	for _, p := range mine {
		// What has no frames of its interpreter would hide those that have.
		if closely && p.Looked == 0 {
			continue
		}
		samples, functions := p.Samples, p.Functions
		if p.Looked > 0 {
			samples = p.Looked
		}
		if tid != 0 {
			for j := range p.Threads {
				if t := &p.Threads[j]; t.TID == tid && len(t.Functions) > 0 {
					samples, functions = t.Samples, t.Functions
					if t.Looked > 0 {
						samples = t.Looked
					}
				}
			}
		}
		e.samples += samples
		e.unnamed += min(p.Unnamed, samples)
		for _, f := range functions {
			k := string(f.Kind) + "|" + f.Name + "|" + f.Module + "|" + f.File
			j, met := index[k]
			if !met {
				index[k] = len(e.functions)
				e.functions = append(e.functions, f)
				continue
			}
			sum := &e.functions[j]
			sum.Height = (sum.Height*float64(sum.Total) + f.Height*float64(f.Total)) / float64(sum.Total+f.Total)
			sum.Self += f.Self
			sum.Own += f.Own
			sum.Total += f.Total
		}
	}
	slices.SortStableFunc(e.functions, func(a, b observe.ProfileFunction) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Height, b.Height), strings.Compare(a.Name, b.Name))
	})
	return e
}

// enough says that there are samples to go by.
func (e *executed) enough() bool { return e.samples >= profileLeast && len(e.functions) > 0 }

// share is a function's part of the samples, with all that it calls.
func (e *executed) share(f *observe.ProfileFunction) float64 { return ratio(f.Total, e.samples) }

// hottest is the function that has at least a share of the samples, with what
// it calls, and a good part of them of its own: what only calls others that
// share the work is not hot. It is nil when there is none.
func (e *executed) hottest(least float64) *observe.ProfileFunction {
	var best *observe.ProfileFunction
	for i := range e.functions {
		f := &e.functions[i]
		if e.share(f) < least || ratio(f.Own, e.samples) < hotOwnShare || leadsOn(f) {
			continue
		}
		if best == nil || f.Own > best.Own {
			best = f
		}
	}
	return best
}

// interpreter is the loop that executes code of another language, with all that
// was seen in the same binary, where that has a share of the samples and the loop
// a good part of them of its own; nil where there is none. What the code calls of
// its interpreter, for numbers or objects, is many functions, and one program.
func (e *executed) interpreter(least float64) *observe.ProfileFunction {
	for i := range e.functions {
		loop := e.functions[i]
		if _, known := interpreterLoops[loop.Name]; !known || ratio(loop.Own, e.samples) < hotOwnShare {
			continue
		}
		loop.Total = 0
		for j := range e.functions {
			if f := &e.functions[j]; f.Kind == loop.Kind && f.Module == loop.Module {
				loop.Total += f.Own
			}
		}
		if e.share(&loop) >= least {
			return &loop
		}
	}
	return nil
}

// program is the file whose code has at least a share of the samples, where no function
// of it is known by name or has that by itself: a ProfileFunction without a name. nil
// where there is none.
func (e *executed) program(least float64) *observe.ProfileFunction {
	for i := range e.functions {
		f := observe.ProfileFunction{Frame: observe.Frame{Kind: e.functions[i].Kind, Module: e.functions[i].Module}}
		if f.Kind == observe.FrameKernel || f.Module == "" {
			continue
		}
		for j := range e.functions {
			if o := &e.functions[j]; o.Kind == f.Kind && o.Module == f.Module {
				f.Own += o.Own
			}
		}
		if f.Total = f.Own; e.share(&f) >= least {
			return &f
		}
	}
	return nil
}

// told lists the functions with most samples of their own, at most n.
func (e *executed) told(n int) string {
	list := slices.Clone(e.functions)
	slices.SortStableFunc(list, func(a, b observe.ProfileFunction) int { return cmp.Compare(b.Own, a.Own) })
	var parts []string
	for i := range list[:min(n, len(list))] {
		if f := &list[i]; f.Own > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", f.Name, percent(ratio(f.Own, e.samples))))
		}
	}
	return strings.Join(parts, ", ")
}

// leading are functions through which everything passes: the entry into the
// kernel, into a program and into a thread, loops that wait for events.
var leading = []string{
	"entry_SYSCALL_64_after_hwframe", "entry_SYSCALL_64", "do_syscall_64", "x64_sys_call", "el0t_64_sync", "el0_svc", "invoke_syscall", "do_el0_svc",
	"el0t_64_sync_handler", "el0_svc_common", "ret_from_fork", "ret_from_fork_asm", "kthread",
	"_start", "main", "__libc_start_main", "__libc_start_call_main", "__libc_start_main_impl", "start_thread", "thread_start", "clone", "clone3", "__clone", "__clone3",
	"runtime.main", "main.main", "runtime.goexit", "runtime.mcall", "<module>", "{main}",
}

// leadsOn says that a function only leads to what is executed.
func leadsOn(f *observe.ProfileFunction) bool {
	name, _, _ := strings.Cut(f.Name, ".constprop")
	name, _, _ = strings.Cut(name, ".isra")
	return f.Name == "" || slices.Contains(leading, name) || strings.HasPrefix(f.Name, "[")
}

// interpreterLoops are the functions that execute code of another language:
// what that code is, they do not tell.
var interpreterLoops = map[string]string{
	"_PyEval_EvalFrameDefault": "Python", "PyEval_EvalFrameEx": "Python", "_PyEval_Vector": "Python", "_PyFunction_Vectorcall": "Python",
	"execute_ex": "PHP", "zend_execute": "PHP", "php_execute_script": "PHP", "zend_execute_scripts": "PHP",
	"Builtins_InterpreterEntryTrampoline": "JavaScript", "Builtins_JSEntry": "JavaScript", "Builtins_JSEntryTrampoline": "JavaScript",
	"vm_exec_core": "Ruby", "rb_vm_exec": "Ruby", "luaV_execute": "Lua",
}

// whereIs tells where a function is: its source, or the binary that holds it.
func whereIs(f *observe.ProfileFunction) string {
	switch {
	case f.File != "" && f.Line > 0:
		return fmt.Sprintf("%s:%d", f.File, f.Line)
	case f.File != "":
		return f.File
	case f.Kind == observe.FrameKernel && (f.Module == "" || f.Module == "vmlinux"):
		return "the kernel"
	}
	return f.Module
}

// located is a function's name with where it is.
func located(f *observe.ProfileFunction) string {
	if at := whereIs(f); at != "" {
		return f.Name + " (" + at + ")"
	}
	return f.Name
}
