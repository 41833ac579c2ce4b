package watch

import (
	"slices"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/container"
	"github.com/slowray/slowray/internal/sense/host"
)

// containerReader asks this host's engines.
func (s *session) containerReader() container.Reader {
	return container.Reader{Proc: s.fs.Proc, Root: "/", HostBytes: s.out.Host.MemoryBytes}
}

func engineProcesses(procs []host.ProcSample) []container.Process {
	var out []container.Process
	for i := range procs {
		if !procs[i].Kernel {
			out = append(out, container.Process{PID: procs[i].PID, Comm: procs[i].Comm})
		}
	}
	return out
}

// resolveContainer puts the id of the container that the filter names in place
// of its name. known says that an engine knows it, whether or not it runs.
func (s *session) resolveContainer() (known bool) {
	f := &s.opt.Filter
	if f.Pod != "" {
		r, _ := observe.ParseWorkloadRef(f.Pod) // it was checked
		f.Container = s.opt.Kube.Find(s.ctx, r)
		s.out.Filter = *f
		return f.Container != ""
	}
	if f.Container == "" {
		return false
	}
	list, _ := s.containerReader().Look(s.ctx, engineProcesses(s.procs), nil, time.Now().Add(-container.Lately), time.Now())
	running, _ := s.containerReader().Names(budget.New(s.ctx, container.Limits), engineProcesses(s.procs), nil)
	list = append(running, list...)
	f.Container = container.Find(list, f.Container)
	s.out.Filter = *f
	return slices.ContainsFunc(list, func(c observe.Container) bool { return f.InContainer(c.ID) })
}

// containers asks the engines, and the kernel log for what was killed, while the
// rest is read.
type containers struct {
	kernelLog *kernelLog
	answer    chan ended
}

// ended is what was asked after the window, next to the other readings.
type ended struct {
	containers []observe.Container
	errs       []error
	kills      []observe.OOMKill
	killsErr   error
}

// stop asks.
func (c *containers) stop(s *session) {
	c.answer = make(chan ended, 1)
	procs := s.last.procs
	origin := s.out.Window.Start
	since := time.Now().Add(-container.Lately)
	engines := engineProcesses(procs)
	var ids []string
	note := func(id string) {
		if id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	note(s.opt.Filter.Container)
	for _, list := range [][]host.ProcSample{procs, s.procs} {
		for i := range list {
			note(list[i].Container)
		}
	}
	reader := s.containerReader()
	go func() {
		var e ended
		e.kills, e.killsErr = host.OOMKills("/dev/kmsg", since, origin)
		for i := range e.kills {
			note(e.kills[i].Container)
		}
		e.containers, e.errs = reader.Look(s.ctx, engines, ids, since, origin)
		c.answer <- e
	}()
}

// end takes the answers.
func (c *containers) end(s *session) {
	e := <-c.answer
	s.out.Containers, s.out.OOMKills = e.containers, e.kills
	if s.out.Waits != nil {
		name := func(id string) string {
			if i := slices.IndexFunc(e.containers, func(c observe.Container) bool { return c.ID == id }); i >= 0 {
				return e.containers[i].Name
			}
			return ""
		}
		for i := range s.out.Waits.Shares {
			container.NameHops(s.out.Waits.Shares[i].Chain.Hops, name)
		}
	}
	for _, err := range e.errs {
		s.partialGap(observe.KindEngines, 0, "container engine", err)
	}
	if e.killsErr != nil && c.kernelLog.log != nil {
		s.partialGap(observe.KindKernelLog, 0, "", e.killsErr)
	}
}
