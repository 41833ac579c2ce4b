package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/report"
	"github.com/slowray/slowray/internal/sense/container"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/sense/wait"
)

type waitCmd struct {
	PID       *int          `arg:"" optional:"" name:"pid" help:"The process, with its workers where it is their master; or one of its threads, to see only that."`
	For       time.Duration `default:"500ms" placeholder:"D" help:"Time between the two looks (${default}): a thread that did not run in it has waited at least that long."`
	JSON      bool          `name:"json" help:"Print JSON (schema slowray.wait/1)."`
	All       bool          `help:"Every chain in full, also of threads that nobody holds up."`
	podFlag   `embed:""`
	kubeFlags `embed:""`
}

// Help is printed by --help, above the flags.
func (*waitCmd) Help() string {
	return `Each thread is followed from what it waits for (a lock, a pipe, a socket, a file lock, a child) to whoever could end that wait, what that one waits for, and so on to the last hop. Of a master (nginx, php-fpm, gunicorn, Apache, uWSGI, PostgreSQL, Puma) the workers are looked at too, and those that wait for the same are one entry. Nothing is stopped, attached to or changed. docs/wait.md tells how to read a chain.

Locks of a database's transactions are not seen: slowray why --port (or --pid) tells of them.

Exit status: 0 nobody holds the process up, 1 somebody does, or waits for what it holds, 2 could not look, or not far enough.`
}

// Validate is called by the command line parser.
func (c *waitCmd) Validate() error {
	switch {
	case c.PID == nil && c.Pod == nil && c.Namespace == nil:
		return errors.New("give the <pid> of a process, or a --pod")
	case c.PID != nil && c.Pod != nil:
		return errors.New("give the <pid> of a process or a --pod, not both")
	case c.PID != nil && *c.PID < 1:
		return fmt.Errorf("pid %d: must be positive", *c.PID)
	case c.For < 0:
		return fmt.Errorf("--for %s: must not be negative", c.For)
	case c.For > time.Hour:
		return fmt.Errorf("--for %s: must be at most an hour", c.For)
	}
	return c.podFlag.validate()
}

// Run looks and reports.
func (c *waitCmd) Run(ctx context.Context, s *streams) error {
	pid := value(c.PID)
	if c.Pod != nil {
		var err error
		if pid, err = c.inPod(ctx); err != nil {
			return fmt.Errorf("wait: %w", err)
		}
	}
	o, err := wait.NewReader(host.Default()).Look(ctx, pid, c.For)
	switch {
	case errors.Is(err, wait.ErrNoProcess):
		return fmt.Errorf("wait: there is no process with pid %d", pid)
	case errors.Is(err, fs.ErrPermission):
		if os.Geteuid() == 0 {
			return fmt.Errorf("wait: %w (root here lacks a right that it has: needs CAP_SYS_PTRACE in its user namespace)", err)
		}
		return fmt.Errorf("wait: %w (needs root, or CAP_SYS_PTRACE)", err)
	case err != nil:
		return fmt.Errorf("wait: %w", err)
	}
	nameContainers(o)
	if c.JSON {
		err = report.WaitJSON(s.out, o)
	} else {
		style := terminalStyle(s.out)
		style.All = c.All
		err = report.Wait(s.out, o, style)
	}
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return waitStatus(o)
}

// waitStatus is the exit status, as an error.
func waitStatus(o *observe.Waits) error {
	_, brief := o.HeldUp()
	switch {
	case brief != nil, o.HoldsUp() != nil, slices.ContainsFunc(o.Chains, func(w observe.WaitChain) bool { return w.Culprit() }):
		return exit(exitFindings)
	case o.Unfollowed() > 0, o.BehindDatabase() != nil:
		return exit(exitFailed)
	}
	return nil
}

// inPod is the first process of the container that was asked for. Where several are meant
// the error names them.
func (c *waitCmd) inPod(ctx context.Context) (int, error) {
	pods := c.start(ctx)
	defer pods.Close()
	ids, err := c.find(ctx, pods)
	if err != nil {
		return 0, err
	}
	procs, _ := host.Default().Processes()
	first := firstOf(procs, ids)
	var names []string
	for id := range first {
		w := pods.Container(id, time.Now().UnixNano())
		names = append(names, w.String()+"/"+w.Container)
	}
	slices.Sort(names)
	switch len(first) {
	case 0:
		return 0, fmt.Errorf("no process runs in %q", c.ref())
	case 1:
		for _, p := range first {
			return p.PID, nil
		}
	}
	return 0, fmt.Errorf("%q is %d containers: give one of --pod %s", c.ref(), len(first), strings.Join(names, ", --pod "))
}

// firstOf are the first processes of containers, by the container: those that began it, not
// those that somebody started in it later. A lower number alone may have come later.
func firstOf(procs []host.ProcSample, ids string) map[string]*host.ProcSample {
	first := map[string]*host.ProcSample{}
	in := observe.Filter{Container: ids}
	for i := range procs {
		p := &procs[i]
		if p.Container == "" || observe.UsersOwn(p.Cgroup) || !in.InContainer(p.Container) {
			continue
		}
		if f := first[p.Container]; f == nil || cmp.Or(cmp.Compare(p.StartTicks, f.StartTicks), cmp.Compare(p.PID, f.PID)) < 0 {
			first[p.Container] = p
		}
	}
	return first
}

// nameContainers asks the engines for the names of the containers in chains, if
// there are any.
func nameContainers(o *observe.Waits) {
	var ids []string
	note := func(p *observe.WaitProcess) {
		if p.Container != "" {
			ids = append(ids, p.Container)
		}
	}
	note(&o.Process)
	for i := range o.Workers {
		note(&o.Workers[i])
	}
	for i := range o.Chains {
		for j := range o.Chains[i].Hops {
			note(&o.Chains[i].Hops[j].Process)
		}
	}
	if len(ids) == 0 {
		return
	}
	r := containerReader()
	list, _ := r.Names(budget.New(context.Background(), container.Limits), r.Processes(), ids)
	name := func(id string) string {
		for i := range list {
			if list[i].ID == id {
				return list[i].Name
			}
		}
		return ""
	}
	if o.Process.Container != "" {
		o.Process.ContainerName = name(o.Process.Container)
	}
	for i := range o.Workers {
		o.Workers[i].ContainerName = name(o.Workers[i].Container)
	}
	for i := range o.Chains {
		container.NameHops(o.Chains[i].Hops, name)
	}
}
