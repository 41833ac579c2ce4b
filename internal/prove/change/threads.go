package change

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/shell"
)

func init() {
	Register(cause.ChangeAffinity, perThread[string]{
		what: "affinity", parse: cleanCPUs, get: affinityOf, set: setAffinity, text: func(s string) string { return "CPUs " + s },
		command: func(tid int, v string) shell.Command { return shell.Line("taskset -pc %s %s", v, tid) },
		check:   someCPUOnline,
	}.kind())
	Register(cause.ChangeNice, perThread[int]{
		what: "nice value", parse: parseNice, get: niceOf, set: setNice, text: func(n int) string { return fmt.Sprint("nice ", n) },
		command: func(tid int, v int) shell.Command { return shell.Line("renice -n %s -p %s", v, tid) },
	}.kind())
}

// perThread is a kind of change to a property that each thread has for itself,
// and gives to those that it starts.
type perThread[V comparable] struct {
	what    string
	parse   func(string) (V, error)
	get     func(tid int) (V, error)
	set     func(tid int, v V) error
	text    func(V) string
	command func(tid int, v V) shell.Command
	check   func(V) error
}

type threadState[V comparable] struct {
	Process Process        `json:"process"`
	New     V              `json:"new"`
	Threads []oldThread[V] `json:"threads"`
}

type oldThread[V comparable] struct {
	thread
	Old V `json:"old"`
}

func (p perThread[V]) kind() kind[threadState[V]] {
	return kind[threadState[V]]{read: p.read, apply: p.apply, present: p.present, undo: p.undo, commands: p.commands}
}

func (p perThread[V]) fail(c *cause.Change, err error) error {
	if err == nil || errors.Is(err, ErrGone) {
		return err
	}
	return fmt.Errorf("%s of process %d: %w", p.what, c.PID, err)
}

func (p perThread[V]) read(c *cause.Change) (threadState[V], string, error) {
	var s threadState[V]
	var err error
	if s.New, err = p.parse(c.Value); err != nil {
		return s, "", err
	}
	if s.Process, err = ProcessOf(c.PID); err != nil {
		return s, "", err
	}
	if p.check != nil {
		if err := p.check(s.New); err != nil {
			return s, "", p.fail(c, err)
		}
	}
	list, err := s.Process.threads()
	if err != nil {
		return s, "", p.fail(c, err)
	}
	already := true
	for _, t := range list {
		v, err := p.get(t.TID)
		if errors.Is(err, unix.ESRCH) {
			continue // ended meanwhile
		}
		if err != nil {
			return s, "", p.fail(c, refused(err, "CAP_SYS_NICE"))
		}
		already = already && v == s.New
		s.Threads = append(s.Threads, oldThread[V]{t, v})
	}
	was := p.words(s.Threads)
	switch {
	case already:
		return s, was, p.fail(c, fmt.Errorf("%s: %w", was, ErrAlready))
	case !Capable(unix.CAP_SYS_NICE):
		return s, was, p.fail(c, refused(unix.EPERM, "CAP_SYS_NICE"))
	}
	return s, was, nil
}

// words is the values of the threads, "CPUs 0-3", of several "CPUs 0 of 3 threads".
func (p perThread[V]) words(threads []oldThread[V]) string {
	n := map[V]int{}
	for _, t := range threads {
		n[t.Old]++
	}
	if len(n) == 1 {
		return p.text(threads[0].Old)
	}
	out := ""
	for _, t := range threads {
		if k := n[t.Old]; k > 0 {
			if out != "" {
				out += ", "
			}
			out += p.text(t.Old) + " of " + plural(k, "thread")
			n[t.Old] = 0
		}
	}
	return out
}

func (p perThread[V]) apply(c *cause.Change, s *threadState[V]) error {
	if err := s.Process.Check(); err != nil {
		return err
	}
	for _, t := range s.Threads {
		if err := p.put(s.Process, t.thread, s.New); err != nil {
			return p.fail(c, err)
		}
	}
	return nil
}

// put sets the value of one thread; one that has ended is no failure.
func (p perThread[V]) put(of Process, t thread, v V) error {
	start, _, err := startOf(fmt.Sprintf("/proc/%d/task/%d", of.PID, t.TID))
	if errors.Is(err, ErrGone) || err == nil && start != t.Start {
		return nil
	}
	if err != nil {
		return err
	}
	if err := p.set(t.TID, v); err != nil && !errors.Is(err, unix.ESRCH) {
		return refused(err, "CAP_SYS_NICE")
	}
	return nil
}

// now is the threads as they are. Those that came after Prepare have got what
// their starter had: their old value is what most threads had.
func (p perThread[V]) now(s *threadState[V]) (threads []oldThread[V], values []V, err error) {
	list, err := s.Process.threads()
	if err != nil {
		return nil, nil, err
	}
	known, most, n := map[thread]V{}, s.New, map[V]int{}
	for _, t := range s.Threads {
		known[t.thread] = t.Old
		if n[t.Old]++; n[t.Old] > n[most] || len(n) == 1 {
			most = t.Old
		}
	}
	for _, t := range list {
		v, err := p.get(t.TID)
		if err != nil {
			continue
		}
		old, ok := known[t]
		switch {
		case !ok && v == s.New:
			old = most
		case !ok:
			continue // a thread that was never touched, and has a value of its own
		}
		threads, values = append(threads, oldThread[V]{t, old}), append(values, v)
	}
	return threads, values, nil
}

func (p perThread[V]) present(c *cause.Change, s *threadState[V]) (changeState, string, error) {
	threads, values, err := p.now(s)
	if err != nil {
		return foreign, "", p.fail(c, err)
	}
	var t tally
	for i := range threads {
		t.add(values[i] == s.New && values[i] != threads[i].Old, values[i] == threads[i].Old)
		threads[i].Old = values[i]
	}
	h, err := t.state()
	return h, p.words(threads), err
}

func (p perThread[V]) undo(c *cause.Change, s *threadState[V]) error {
	// Once more for threads that were started meanwhile.
	for range 2 {
		threads, values, err := p.now(s)
		if err != nil {
			return p.fail(c, err)
		}
		for i, t := range threads {
			if values[i] != s.New || values[i] == t.Old {
				continue
			}
			if err := p.put(s.Process, t.thread, t.Old); err != nil {
				return p.fail(c, err)
			}
		}
	}
	return nil
}

func (p perThread[V]) commands(c *cause.Change, s *threadState[V]) (do, undo []shell.Command) {
	for _, t := range s.Threads {
		do, undo = append(do, p.command(t.TID, s.New)), append(undo, p.command(t.TID, t.Old))
	}
	return do, undo
}

func cleanCPUs(list string) (string, error) {
	set, err := parseCPUs(list)
	return cpuList(set), err
}

func affinityOf(tid int) (string, error) {
	var set unix.CPUSet
	err := unix.SchedGetaffinity(tid, &set)
	return cpuList(set), err
}

func setAffinity(tid int, list string) error {
	set, err := parseCPUs(list)
	if err != nil {
		return err
	}
	err = unix.SchedSetaffinity(tid, &set)
	if errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("none of the CPUs %s may be used: its control group (cpuset) allows others", list)
	}
	return err
}
