package watch

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/change"
	"github.com/slowray/slowray/internal/sense/host"
)

// What looking for changes, and for the versions of programs and configurations, may
// take.
var (
	changeLimits  = budget.Limits{Bytes: 8 << 20, Nodes: 64 << 10, Wall: 150 * time.Millisecond}
	versionLimits = budget.Limits{Bytes: 64 << 20, Nodes: 64 << 10, Wall: 150 * time.Millisecond}
)

// changes finds out what has been changed on the host lately.
type changes struct {
	servers   *servers
	databases *databases
}

func (c *changes) end(s *session) {
	boot, _ := s.fs.BootTime() // without it nobody knows when a service was started
	services := c.services(s, boot)
	list, left, err := change.Read(budget.New(s.ctx, changeLimits), s.fs, services, time.Now())
	s.out.Changes = append(s.out.Changes, list...)
	if err != nil {
		s.lose("services of which not all files were looked at for changes", 1)
	}
	s.lose(observe.LossOldChanges, int64(left))
	s.addSettings()
	s.out.Sysctl = s.hostSysctl()
	versions := map[int]change.Version{}
	for _, v := range change.Versions(budget.New(s.ctx, versionLimits), s.fs, services) {
		versions[v.PID] = v
	}
	for i := range s.out.Processes {
		p := &s.out.Processes[i]
		v := versions[p.PID]
		p.ProgramVersion, p.ConfigVersion = v.Program, v.Config
	}
}

// services lists the processes that answer requests, each family once,
// those with most open connections first.
func (c *changes) services(s *session, boot time.Time) []change.Service {
	byPID := map[int]*host.ProcSample{}
	for i := range s.last.procs {
		byPID[s.last.procs[i].PID] = &s.last.procs[i]
	}
	weight := map[int]int{}
	for i := range s.out.Namespaces {
		for j := range s.out.Namespaces[i].Listeners {
			l := &s.out.Namespaces[i].Listeners[j]
			weight[l.PID] += 1 + l.Clients + int(min(l.Opened, 1<<20))
		}
	}
	config := map[int][]string{}
	for _, in := range c.servers.nginx {
		config[in.PID] = in.ConfigFiles()
	}
	for _, in := range c.servers.fpm {
		config[in.PID] = in.ConfigFiles()
	}
	for _, in := range c.servers.apps {
		config[in.PID] = in.ConfigFiles()
	}
	maps.Copy(config, c.databases.config)
	pids := slices.SortedFunc(maps.Keys(weight), func(a, b int) int {
		if weight[a] != weight[b] {
			return weight[b] - weight[a]
		}
		return a - b
	})
	var out []change.Service
	for _, pid := range pids {
		p := byPID[pid]
		if p == nil || p.Kernel || pid == 0 {
			continue
		}
		service := change.Service{PID: pid, Comm: p.Comm, Unit: p.Unit, Container: p.Container, Config: config[pid]}
		if !boot.IsZero() {
			service.Started = p.StartTime(boot)
		}
		out = append(out, service)
	}
	return out
}

// addSettings adds the settings of the kernel that are not its own: those of
// the host, and of each network namespace of a service what differs from them.
func (s *session) addSettings() {
	names := change.SettingNames()
	var own map[string]string
	for _, sp := range s.spaces {
		if sp.host {
			own = sp.ns.Sysctls(names)
		}
	}
	s.out.Changes = append(s.out.Changes, change.Settings(own, "")...)
	const most = 16
	looked := 0
	for _, sp := range s.spaces {
		if sp.host || !sp.used() || looked == most {
			continue
		}
		looked++
		values := sp.ns.Sysctls(names)
		maps.DeleteFunc(values, func(name, value string) bool { return own[name] == value })
		s.out.Changes = append(s.out.Changes, change.Settings(values, fmt.Sprintf("in network namespace %d", sp.inode))...)
	}
	const settings = 40
	kept := 0
	s.out.Changes = slices.DeleteFunc(s.out.Changes, func(c observe.Change) bool {
		if c.Kind == observe.ChangeSetting {
			kept++
		}
		return c.Kind == observe.ChangeSetting && kept > settings
	})
	s.lose("settings of the kernel that were left out", int64(max(kept-settings, 0)))
}

// hostSysctl reads the knobs of the whole machine. Those below net are taken
// from the initial network namespace.
func (s *session) hostSysctl() map[string]string {
	for _, sp := range s.spaces {
		if sp.host {
			return sp.ns.Sysctls(hostSysctls)
		}
	}
	return nil
}
