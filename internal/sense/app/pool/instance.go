package pool

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
	"github.com/slowray/slowray/internal/sense/host"
)

// Server is what differs between application servers. Any function but Begin
// may be nil.
type Server struct {
	Kind observe.Kind
	// Begin reads the configuration into Out and follows logs.
	Begin func(*Instance)
	// Classify tells the kind of a log line, "" for one of no interest, and a
	// figure in it.
	Classify func(line []byte) (kind string, figure int)
	// Worker says whether a child works on requests; nil: every child does.
	Worker func(in *Instance, pid int) bool
	// Free says whether a worker of one thread that does so has no request in
	// hand; nil: it cannot be known.
	Free func(host.Activity) bool
	// Sample looks at what else tells how busy the server is.
	Sample func(*budget.Budget, *Instance)
	// End completes Out.
	End func(*budget.Budget, *Instance)
}

// DefaultMaxBytes is how much of an instance's logs is read.
const DefaultMaxBytes = 32 << 20

// Bounds: logs that are followed, workers that are looked at in a round, and
// the size of a configuration file.
const (
	maxLogs    = 16
	maxWorkers = 512
	maxConfig  = 4 << 20
	maxFiles   = 512 // of the configuration, that are listed
	maxGaps    = 32
)

// Instance is one running server. It is used by one goroutine at a time: Begin,
// any number of Sample, then End.
type Instance struct {
	PID      int
	MaxBytes int64
	Silent   bool // the server is not asked for its status
	Other    bool // Begin has found that it is no such server
	Out      observe.AppServer
	Root     rootfs.Root // of the configuration, while Begin reads it
	Proc     observe.Process
	ProcRoot string
	Budget   *budget.Budget // of the configuration, while Begin reads it

	server    Server
	all       *budget.Budget // of Begin or End
	env       map[string]string
	listed    []int // children by the process table
	files     []string
	unentered bool // its root cannot be entered
	logRoot   rootfs.Root
	logs      []*followed
	counts    logtail.Counts
	busySum   int
	gaps      []observe.Gap
	losses    []observe.Loss
}

type followed struct {
	path, what, problem string
	tail                *logtail.Tail
}

// Masters finds the processes that match and are no children of one that does,
// each with its children. procRoot is "/proc" but in tests.
func Masters(procs []observe.Process, procRoot string, s Server, match func(*observe.Process) bool) []*Instance {
	matched := map[int]bool{}
	for i := range procs {
		p := &procs[i]
		if !p.Kernel && !p.EndedIn && match(p) {
			matched[p.PID] = true
		}
	}
	byPID := map[int]*Instance{}
	var out []*Instance
	for _, p := range procs {
		if !matched[p.PID] || matched[p.PPID] {
			continue
		}
		in := &Instance{PID: p.PID, MaxBytes: DefaultMaxBytes, Proc: p, ProcRoot: procRoot, server: s}
		in.Out = observe.AppServer{Kind: s.Kind, PID: p.PID, NetNS: p.NetNS, Container: p.Container}
		byPID[p.PID] = in
		out = append(out, in)
	}
	for _, p := range procs {
		if in := byPID[p.PPID]; in != nil && !p.EndedIn {
			in.listed = append(in.listed, p.PID)
		}
	}
	return out
}

// Serve gives the instance a Server of its own, which may keep what it saw.
func (in *Instance) Serve(s Server) { in.server = s }

// Gap notes what could not be read.
func (in *Instance) Gap(subject string, partial bool, format string, args ...any) {
	if len(in.gaps) >= maxGaps {
		in.Loss("things of "+string(in.server.Kind)+" that could not be read", 1)
		return
	}
	in.gaps = append(in.gaps, observe.Gap{Kind: in.server.Kind, NetNS: in.Proc.NetNS, Subject: subject,
		Because: logtail.Printable(fmt.Appendf(nil, format, args...), 512), Partial: partial})
}

// Loss counts what was shed.
func (in *Instance) Loss(what string, n int64) {
	if n <= 0 {
		return
	}
	for i := range in.losses {
		if in.losses[i].What == what {
			in.losses[i].Count += n
			return
		}
	}
	in.losses = append(in.losses, observe.Loss{What: what, Count: n})
}

// Args is the command line of the master.
func (in *Instance) Args() []string { return prefork.Args(in.ProcRoot, in.PID) }

// Env is a variable of the environment the master was started with.
func (in *Instance) Env(name string) string {
	if in.env == nil {
		if in.env = prefork.Environ(in.ProcRoot, in.PID); in.env == nil {
			in.env = map[string]string{}
		}
	}
	return in.env[name]
}

func (in *Instance) file(name string) string {
	return filepath.Join(in.ProcRoot, strconv.Itoa(in.PID), name)
}

// Abs makes a path of the command line or of a configuration absolute, inside
// the server's root. base "" is the master's working directory.
func (in *Instance) Abs(base, name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	if base == "" {
		base = prefork.Cwd(in.ProcRoot, in.PID)
	}
	return path.Join("/", base, name)
}

// ReadFile reads a file of the configuration as the server sees it.
func (in *Instance) ReadFile(name string) (string, error) {
	text, _, err := in.ReadOwned(name)
	return text, err
}

// ReadOwned is ReadFile with the user whose file it is.
func (in *Instance) ReadOwned(name string) (text string, uid uint32, err error) {
	if in.unentered {
		return "", 0, os.ErrPermission
	}
	if len(in.files) < maxFiles && !slices.Contains(in.files, name) {
		in.files = append(in.files, name)
	}
	text, st, err := in.Root.ReadFile(name, maxConfig)
	return text, st.Uid, err
}

// ConfigFiles lists the files that Begin has read, inside the root.
func (in *Instance) ConfigFiles() []string { return in.files }

// Begin reads the configuration and opens the logs at their present end. It has half of
// the budget for the configuration: of one that is larger only the logs that it names
// are taken, for what stands at its end may be what counts. The result says whether that
// was so.
func (in *Instance) Begin(b *budget.Budget) (tooLarge bool) {
	in.all, in.Budget = b, b.Share(2)
	root, text, err := prefork.Root(in.ProcRoot, in.Proc, b)
	in.Root, in.Out.Root = root.With(in.Budget), text
	if err != nil {
		in.unentered = in.Proc.Container != ""
		in.Gap(fmt.Sprintf("pid %d", in.PID), true, "the root directory of %s (pid %d) cannot be entered: %s", in.server.Kind, in.PID, rootfs.Plain(err))
	}
	in.logRoot = root
	in.refresh()
	in.server.Begin(in)
	if err := in.Budget.Err(); err != nil {
		in.Out.Pools, in.Out.Backends = nil, nil
		in.Gap(cmp.Or(in.Out.Config, fmt.Sprintf("pid %d", in.PID)), true, "the configuration of %s (pid %d) was not read to its end: %s", in.server.Kind, in.PID, err)
		tooLarge = in.Budget.Own()
	}
	in.env, in.Root, in.logRoot = nil, rootfs.Root{}, rootfs.Root{} // nothing of the files is kept
	return tooLarge
}

// Close releases an instance that is not followed to its End.
func (in *Instance) Close() {
	for _, f := range in.logs {
		if f.tail != nil {
			f.tail.Close()
		}
	}
}

// Children lists the children of the master now.
func (in *Instance) Children() []int {
	pids, ok := prefork.Children(in.ProcRoot, in.PID)
	if !ok {
		pids = slices.Clone(in.listed)
	}
	slices.Sort(pids)
	return pids
}

func (in *Instance) refresh() {
	in.Out.Workers = in.Out.Workers[:0]
	for _, pid := range in.Children() {
		if len(in.Out.Workers) == maxWorkers {
			break
		}
		if in.server.Worker == nil || in.server.Worker(in, pid) {
			in.Out.Workers = append(in.Out.Workers, pid)
		}
	}
}

// Sample looks once at every worker. A round that is over the budget does not count.
func (in *Instance) Sample(b *budget.Budget, activity func(pid int) host.Activity) {
	if in.server.Sample != nil {
		in.server.Sample(b, in)
	}
	if in.server.Free == nil || len(in.Out.Pools) == 0 {
		return
	}
	p := &in.Out.Pools[0]
	if p.Limit == 0 || p.Threads > 1 {
		return
	}
	in.refresh()
	alive, busy := 0, 0
	for _, pid := range in.Out.Workers {
		if b.Err() != nil {
			return
		}
		switch a := activity(pid); {
		case a == host.Gone || a == host.Unknown:
		case in.server.Free(a):
			alive++
		default:
			alive++
			busy++
		}
	}
	if alive == 0 {
		return
	}
	p.Rounds++
	in.busySum += busy
	if alive >= p.Limit && busy == alive {
		p.AllBusyRounds++
	}
}

// End reads what the logs grew by in the window and releases everything.
func (in *Instance) End(b *budget.Budget, window observe.Window) (observe.AppServer, []observe.Gap, []observe.Loss) {
	in.all = b
	in.refresh()
	if in.server.End != nil {
		in.server.End(b, in)
	}
	if len(in.Out.Pools) > 0 && in.Out.Pools[0].Rounds > 0 {
		p := &in.Out.Pools[0]
		p.BusyMean = float64(in.busySum) / float64(p.Rounds)
	}
	in.readLogs(window)
	return in.Out, in.gaps, in.losses
}
