package nginx

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
)

// DefaultMaxBytes is how much of an instance's logs is read: about a third of
// a second of one core.
const DefaultMaxBytes = 128 << 20

// maxLogs bounds how many logs of an instance are followed; each holds a
// descriptor over the window.
const maxLogs = 256

// maxGaps bounds what is reported for an instance that could not be read.
const maxGaps = 128

// maxChildren bounds how many children of a master are looked at: there are as many
// workers as CPUs.
const maxChildren = 1024

// Instance is one running nginx. It is used by one goroutine at a time:
// Discover, then Begin, any number of SampleConnections, then End.
type Instance struct {
	PID      int   // the master, or the only process
	MaxBytes int64 // bound on the log bytes read by End

	proc     observe.Process
	procRoot string
	args     arguments
	single   bool  // master_process off
	listed   []int // children by the process table
	workers  []int
	peaks    map[int]int

	root     rootfs.Root
	rootText string
	confFile string
	config   *config // nil when it could not be read
	cut      bool    // it was not read to its end
	files    []configFile
	followed []*followed
	gaps     []observe.Gap
	losses   []observe.Loss
}

// followed is a log with its tail.
type followed struct {
	spec    *logSpec
	tail    *logtail.Tail // nil when there is a problem
	problem string
}

func newInstance(p observe.Process, procRoot string) *Instance {
	return &Instance{PID: p.PID, MaxBytes: DefaultMaxBytes, proc: p, procRoot: procRoot, peaks: map[int]int{}}
}

func (in *Instance) gap(subject string, partial bool, format string, args ...any) {
	if len(in.gaps) == maxGaps {
		in.loss("things of nginx that could not be read", 1)
		return
	}
	in.gaps = append(in.gaps, observe.Gap{Kind: observe.KindNginx, NetNS: in.proc.NetNS,
		Subject: subject, Because: fmt.Sprintf(format, args...), Partial: partial})
}

func (in *Instance) loss(what string, n int64) {
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

// Begin reads the configuration and opens all logs at their present end. It has half of
// the budget for the configuration: of one that is larger only the logs that it names
// are taken, for what stands at its end may be what counts. The result says whether that
// was so.
func (in *Instance) Begin(b *budget.Budget) (tooLarge bool) {
	in.takeTitle()
	in.refreshWorkers()
	conf := b.Share(2)
	if !in.readConfig(b, conf) {
		return conf.Own()
	}
	defaultError := in.config.build.errorLog
	if in.args.errorLog != "" {
		defaultError = in.args.errorLog
	}
	specs := in.config.logs(defaultError, !in.cut)
	for i, spec := range specs {
		if i == maxLogs {
			in.loss("nginx logs not followed", int64(len(specs)-maxLogs))
			break
		}
		f := &followed{spec: spec, problem: spec.problem}
		if f.problem == "" {
			tail, err := logtail.Open(in.root, spec.path)
			f.tail, f.problem = tail, logtail.Reason(err)
		}
		in.followed = append(in.followed, f)
	}
	in.root = in.root.With(b) // nothing of the files is kept
	in.checkWritten()
	return conf.Own()
}

// Read says that the configuration could be read.
func (in *Instance) Read() bool { return in.config != nil && !in.cut }

// Close releases an instance that is not followed to its End.
func (in *Instance) Close() {
	for _, f := range in.followed {
		if f.tail != nil {
			f.tail.Close()
		}
	}
}

// checkWritten notes logs that the workers do not have open: renamed or
// deleted without telling nginx, which goes on writing to the old file.
func (in *Instance) checkWritten() {
	pid := in.PID
	if len(in.workers) > 0 {
		pid = in.workers[0]
	}
	open, err := prefork.OpenFiles(in.procRoot, pid)
	if err != nil || len(open) == 0 {
		return
	}
	for _, f := range in.followed {
		if f.tail != nil && !slices.ContainsFunc(open, func(o prefork.File) bool { return f.tail.Is(o.Dev, o.Ino) }) {
			in.gap(f.spec.path, true, "%s is not a file that nginx (pid %d) has open: it was renamed, deleted or replaced without a reopen, or the configuration was changed without a reload", f.spec.path, pid)
		}
	}
}

// readConfig finds and parses the configuration the process was started with, within
// conf.
func (in *Instance) readConfig(all, conf *budget.Budget) bool {
	root, text, err := prefork.Root(in.procRoot, in.proc, all)
	in.root, in.rootText = root, text
	if err != nil {
		if in.proc.Container != "" {
			in.gap(fmt.Sprintf("pid %d", in.PID), false, "the root directory of nginx (pid %d) in container %s cannot be entered: %s", in.PID, in.proc.Container, rootfs.Plain(err))
			return false
		}
		in.gap(fmt.Sprintf("pid %d", in.PID), true, "the root directory of nginx (pid %d) cannot be entered (%s): its files are taken to be the host's", in.PID, rootfs.Plain(err))
	}
	b, err := readBuild(all, root, in.procRoot, in.PID)
	if err != nil && (in.args.conf == "" || in.args.prefix == "") {
		in.gap(fmt.Sprintf("pid %d", in.PID), true, "compiled-in paths of nginx (pid %d) are not known (%s): /etc/nginx and /var/log/nginx are assumed", in.PID, rootfs.Plain(err))
	}
	prefix := b.prefix
	if in.args.prefix != "" {
		prefix = in.absolute(in.args.prefix)
	}
	file := b.confPath
	if in.args.conf != "" {
		file = in.args.conf
		if !path.IsAbs(file) {
			file = path.Join(prefix, file)
		}
	}
	in.confFile = path.Clean(file)
	p := &parser{b: conf, root: root.With(conf), confPrefix: path.Dir(in.confFile)}
	main := p.parse("command line", in.args.global+";")
	read, err := p.readFile(in.confFile)
	in.files = p.files
	for _, pr := range p.problems {
		in.gap(fmt.Sprintf("%s:%d", pr.file, pr.line), true, "nginx configuration: %s", logtail.Printable([]byte(pr.text), 512))
	}
	in.loss("nginx configuration problems", int64(p.dropped))
	if over := conf.Err(); over != nil {
		in.gap(in.confFile, true, "the configuration of nginx (pid %d) was not read to its end: %s", in.PID, over)
		in.cut = true
	} else if err != nil {
		in.gap(in.confFile, false, "the configuration of nginx (pid %d) cannot be read: %s", in.PID, rootfs.Plain(err))
		return false
	}
	in.config = &config{main: append(main, read...), prefix: prefix, build: b, asRoot: in.runsAsRoot()}
	if in.cut {
		in.files = in.files[:min(len(in.files), 1)]
	}
	return true
}

// ConfigFiles lists the main file and all that it includes, inside the root, as
// they were when Begin read them.
func (in *Instance) ConfigFiles() []string {
	var out []string
	for _, f := range in.files {
		out = append(out, f.path)
	}
	return out
}

// Options is the part of the command line that says which configuration it is:
// -c, -p, -g and -e.
func (in *Instance) Options() []string {
	var out []string
	add := func(option, value string) {
		if value != "" {
			out = append(out, option, value)
		}
	}
	add("-p", in.args.prefix)
	add("-c", in.args.conf)
	add("-e", in.args.errorLog)
	add("-g", in.args.global)
	return out
}

// Single says that it has no master (master_process off).
func (in *Instance) Single() bool { return in.single }

// CurrentWorkers lists the workers of the present configuration now; those that
// are shutting down are left out.
func (in *Instance) CurrentWorkers() []int {
	in.refreshWorkers()
	return slices.Clone(in.workers)
}

// absolute resolves a path of the command line against the working directory,
// which nginx does not change.
func (in *Instance) absolute(p string) string {
	if !path.IsAbs(p) {
		if cwd := prefork.Cwd(in.procRoot, in.PID); cwd != "" {
			p = path.Join(cwd, p)
		}
	}
	return strings.TrimRight(path.Clean(p), "/") + "/"
}

// runsAsRoot is so where it cannot be known, too.
func (in *Instance) runsAsRoot() bool {
	_, effective, ok := prefork.User(in.procRoot, in.PID)
	return !ok || effective == 0
}

// refreshWorkers lists the workers now; those shutting down are left out.
func (in *Instance) refreshWorkers() {
	if in.single {
		return
	}
	children, ok := prefork.Children(in.procRoot, in.PID)
	if !ok {
		children = in.listed
	}
	in.workers = in.workers[:0]
	for _, pid := range children[:min(len(children), maxChildren)] {
		if roleOf(prefork.Title(in.procRoot, pid)) == roleWorker {
			in.workers = append(in.workers, pid)
		}
	}
	slices.Sort(in.workers)
}

// SampleConnections keeps the most sockets each worker held. count returns the
// sockets of a process now; its error leaves the worker out of this sample, the end of
// the budget those that come after.
func (in *Instance) SampleConnections(b *budget.Budget, count func(pid int) (int, error)) {
	in.refreshWorkers()
	for _, pid := range in.workers {
		if b.Err() != nil {
			return
		}
		if n, err := count(pid); err == nil && (n > in.peaks[pid] || n == 0 && in.peaks[pid] == 0) {
			in.peaks[pid] = n
		}
	}
}

// checkChanged notes configuration files that are newer than the workers.
// Workers take over a configuration when they start. A reload replaces all of
// them and a crash only one, so the oldest is the one that tells.
func (in *Instance) checkChanged(b *budget.Budget) {
	in.root = in.root.With(b)
	var oldest time.Time
	for _, pid := range in.workers {
		if t, err := prefork.Started(in.procRoot, pid); err == nil && (oldest.IsZero() || t.Before(oldest)) {
			oldest = t
		}
	}
	if oldest.IsZero() || in.cut {
		return
	}
	const precision = 2 * time.Second // of the start time
	for _, f := range in.files {
		if b.Err() != nil {
			return
		}
		changed := f.changed
		if st, err := in.root.Stat(f.path); err == nil {
			changed = lastChange(&st)
		}
		switch {
		case changed.After(oldest.Add(precision)):
			in.gap(f.path, true, "%s was changed after the workers of nginx (pid %d) started: its values may not be the running ones", f.path, in.PID)
		case !changed.Equal(f.changed):
			in.gap(f.path, true, "%s was changed in the window and nginx (pid %d) reloaded: its values are those of before", f.path, in.PID)
		}
	}
}

// End reads what the logs grew by in the window and releases everything.
func (in *Instance) End(b *budget.Budget, window observe.Window) (observe.Nginx, []observe.Gap, []observe.Loss) {
	in.refreshWorkers()
	n := observe.Nginx{PID: in.PID, Workers: slices.Clone(in.workers), NetNS: in.proc.NetNS,
		Container: in.proc.Container, Root: in.rootText, Config: in.confFile}
	if len(in.peaks) > 0 {
		n.ConnectionsPeak = in.peaks
	}
	if in.config != nil {
		if !in.cut {
			in.config.fill(&n)
		}
		in.checkChanged(b.Share(4))
		r := newReading(window)
		n.Logs = in.readLogs(b, r)
		n.Errors, n.Statuses = r.errors.Kinds(), r.statuses.list()
		in.loss("nginx error log lines of more than 64 upstreams, counted without upstream", r.errors.Folded)
		in.loss("nginx access log lines after the first hour of the window", r.statuses.beyond)
	}
	return n, in.gaps, in.losses
}
