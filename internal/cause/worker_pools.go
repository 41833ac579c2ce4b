package cause

import (
	"fmt"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// workerPool is what differs between the servers with a limit on workers.
type workerPool struct {
	kind observe.Kind
	name string
	logs []string // kinds of log lines that speak of it
	unit func(*observe.WorkerPool) string
	fix  func(*View, *poolUse, observe.Setting, *Finding)
}

// workerPools are the causes that a pool has nothing free, in the order in which
// they are looked for.
var workerPools = []struct {
	id   ID
	kind observe.Kind
}{
	{ApacheWorkersExhausted, observe.KindApache}, {UWSGIWorkersBusy, observe.KindUWSGI}, {GunicornWorkersBusy, observe.KindGunicorn},
	{TomcatThreadsExhausted, observe.KindTomcat}, {HAProxyMaxConn, observe.KindHAProxy},
}

// exhausted declares that all workers of a kind of server are taken.
func exhausted(id ID, title string, w workerPool) Cause {
	return Cause{ID: id, Title: title, Layer: LayerApplication, Class: ClassPool, Check: func(v *View) Result { return checkPools(v, &w) },
		Needs: []observe.Kind{w.kind, observe.KindProcess, observe.KindListeners, observe.KindRequests},
		// What workers are taken by: more of them would only wait with them.
		ConsequenceOf: []Parent{SlowDependency, MariaDBLockWait, PostgresLockWait, ConnectionPoolExhausted, HAProxyServerQueue, CPUHotFunction, GCPauses, ClassWait, ClassMachine}, Folds: true,
	}
}

func unitIs(name string) func(*observe.WorkerPool) string {
	return func(*observe.WorkerPool) string { return name }
}

// ApacheWorkersExhausted: a worker of httpd answers one request at a time; with
// the MPMs prefork and worker it is taken until its connection ends, keep-alive
// time included. The log line "server reached MaxRequestWorkers" is no proof: it
// comes also where fewer workers than MinSpareServers are left.
const ApacheWorkersExhausted ID = "apache-workers-exhausted"

var apacheWorkersExhausted = exhausted(ApacheWorkersExhausted, "All workers of Apache are busy (MaxRequestWorkers)", workerPool{kind: observe.KindApache, name: "Apache", unit: unitIs("workers"), fix: fixApache, logs: []string{"max-workers", "near-limit", "scoreboard"}}).tried(inPool(observe.KindApache, moreApache))

// UWSGIWorkersBusy: a worker of uWSGI answers one request at a time, as many as
// it has threads. What comes beyond waits in the listen queue.
const UWSGIWorkersBusy ID = "uwsgi-workers-busy"

var uwsgiWorkersBusy = exhausted(UWSGIWorkersBusy, "All workers of uWSGI are busy", workerPool{kind: observe.KindUWSGI, name: "uWSGI", unit: unitIs("workers"), fix: fixUWSGI, logs: []string{"listen-queue-full", "all-busy"}}).tried(inPool(observe.KindUWSGI, moreUWSGI))

// GunicornWorkersBusy: a sync worker of gunicorn answers one request at a time,
// a gthread worker as many as it has threads.
const GunicornWorkersBusy ID = "gunicorn-workers-busy"

var gunicornWorkersBusy = exhausted(GunicornWorkersBusy, "All workers of gunicorn are busy", workerPool{kind: observe.KindGunicorn, name: "gunicorn", unit: unitIs("workers"), fix: fixGunicorn}).tried(inPool(observe.KindGunicorn, moreGunicorn))

// TomcatThreadsExhausted: a connector of Tomcat has maxThreads threads, each for
// one request. Connections are taken up all the same, and their requests wait
// in the socket.
const TomcatThreadsExhausted ID = "tomcat-threads-exhausted"

var tomcatThreadsExhausted = exhausted(TomcatThreadsExhausted, "All threads of a Tomcat connector are busy (maxThreads)", workerPool{kind: observe.KindTomcat, name: "Tomcat", unit: unitIs("threads"), fix: fixTomcat, logs: []string{"threads-busy"}})

// HAProxyMaxConn: at maxconn of the process or of a frontend HAProxy accepts
// nothing more; connections wait in the accept queue.
const HAProxyMaxConn ID = "haproxy-maxconn"

var haproxyMaxconn = exhausted(HAProxyMaxConn, "HAProxy is at its maxconn", workerPool{kind: observe.KindHAProxy, name: "HAProxy", unit: unitIs("connections"), fix: fixHAProxy, logs: []string{"fd-limit"}}).tried(inPool(observe.KindHAProxy, moreHAProxy))

// place names the file and line to edit, as "# in FILE:LINE:", or what stands for
// it.
func place(u *poolUse, s observe.Setting) shell.Command {
	switch {
	case s.File != "" && s.Line > 0:
		return shell.Line("# in %s:%s:", s.File, s.Line)
	case s.File != "":
		return shell.Line("# in %s:", s.File)
	case u.app.Config != "":
		return shell.Line("# in %s:", u.app.Root+u.app.Config)
	}
	return shell.Line("# in its configuration:")
}

// signal is how to have the master of a server read its configuration again: by
// its unit on the host, by what is given elsewhere.
func (v *View) signal(a *observe.AppServer, verb string, otherwise shell.Command) shell.Command {
	if p := v.Process(a.PID); p != nil && p.Unit != "" && p.Container == "" {
		return shell.Line("systemctl %s %s", verb, shell.Unit(p.Unit))
	}
	return otherwise
}

func (v *View) reloadHAProxy(a *observe.AppServer) shell.Command {
	if len(a.Workers) == 0 { // without a master (-W) SIGUSR2 is nothing to it
		return v.signal(a, "reload", shell.Line("# HAProxy (pid %s) runs without a master: start it once more with -sf %s, which ends this one", a.PID, a.PID))
	}
	return v.signal(a, "reload", shell.Line("kill -USR2 %s   # master of HAProxy (-W): reload", a.PID))
}

// idleHolders says that most of what is taken are connections without a request
// in hand.
func idleHolders(u *poolUse) bool { return u.pool.PerConn && u.held > 0 && u.working < 0.5*u.held }

// workersOfApache is the MaxRequestWorkers that is proposed, and what is said of
// memory.
func (v *View) workersOfApache(u *poolUse) (want int, memory string) {
	each := v.workerRSS(u.app)
	if u.pool.Threads > 1 {
		each /= uint64(u.pool.Threads)
	}
	want, memory = v.proposedWorkers(u, each)
	if t := u.pool.Threads; t > 1 && u.app.Model != "prefork" {
		want = (want + t - 1) / t * t
	}
	return want, memory
}

func fixApache(v *View, u *poolUse, s observe.Setting, f *Finding) {
	want, memory := v.workersOfApache(u)
	f.Fix.Text = fmt.Sprintf("Raise MaxRequestWorkers from %d to %d%s, or find what the requests wait for.", u.pool.Limit, want, memory)
	if idleHolders(u) {
		f.Fix.Text = fmt.Sprintf("Most workers are held by connections that ask for nothing: shorten KeepAliveTimeout, or use the event MPM, which needs no worker for them; or raise MaxRequestWorkers from %d to %d%s.", u.pool.Limit, want, memory)
	}
	f.Fix.Commands = []shell.Command{place(u, s).Note("MaxRequestWorkers %s", want)}
	servers := want
	if u.app.Model != "prefork" {
		servers = want / max(u.pool.Threads, 1)
	}
	// ServerLimit is fixed at the start (mpm_common.c): a graceful restart
	// keeps the old one, and MaxRequestWorkers cannot go beyond it.
	f.Fix.Commands = append(f.Fix.Commands, shell.Line("# next to it: ServerLimit %s (only a full restart takes a new one)", servers),
		v.signal(u.app, "restart", shell.Line("# stop %s (pid %s) and start it", u.app.Kind, u.app.PID)))
}

// wantedUWSGI is the number of processes that is proposed.
func (v *View) wantedUWSGI(u *poolUse) (processes int, memory string) {
	threads := max(u.pool.Threads, 1)
	want, memory := v.proposedWorkers(u, v.workerRSS(u.app)/uint64(threads))
	return (want + threads - 1) / threads, memory
}

func fixUWSGI(v *View, u *poolUse, s observe.Setting, f *Finding) {
	n, memory := v.wantedUWSGI(u)
	f.Fix.Text = fmt.Sprintf("Raise processes of uWSGI from %s to %d%s, or find what the requests wait for; a longer listen queue would only let them wait longer.", s.Value, n, memory)
	f.Fix.Commands = []shell.Command{place(u, s).Note("processes = %s", n), v.signal(u.app, "restart", shell.Line("# restart %s (pid %s): a reload keeps options of the command line", u.app.Kind, u.app.PID))}
}

// wantedGunicorn is the number of workers that is proposed.
func (v *View) wantedGunicorn(u *poolUse) (workers int, memory string) {
	threads := max(u.pool.Threads, 1)
	want, memory := v.proposedWorkers(u, v.workerRSS(u.app)/uint64(threads))
	return (want + threads - 1) / threads, memory
}

func fixGunicorn(v *View, u *poolUse, s observe.Setting, f *Finding) {
	n, memory := v.wantedGunicorn(u)
	f.Fix.Text = fmt.Sprintf("Raise the workers of gunicorn from %d to %d%s, or find what the requests wait for; threads (--threads) share one interpreter and take less memory.",
		u.pool.Limit/max(u.pool.Threads, 1), n, memory)
	// SIGTTIN adds one worker at once (gunicorn/arbiter.py); two at one moment are one signal.
	more := n - u.pool.Limit/max(u.pool.Threads, 1)
	f.Fix.Commands = []shell.Command{shell.Line("for i in $(seq %s); do kill -TTIN %s; sleep 0.1; done   # adds them at once", more, u.app.PID)}
	f.Fix.Persist = []shell.Command{place(u, s).Note("workers = %s", n)}
}

// javaStack is what a thread of Java takes of memory at most by itself, bytes
// (-Xss is 1 MB on 64-bit Linux).
const javaStack = 1 << 20

func fixTomcat(v *View, u *poolUse, s observe.Setting, f *Finding) {
	want, memory := v.proposedWorkers(u, javaStack)
	f.Fix.Text = fmt.Sprintf("Raise %s from %d to %d%s, or find what the requests wait for.", u.pool.Knob, u.pool.Limit, want, memory)
	f.Fix.Commands = []shell.Command{place(u, s).Note("%s", fmt.Sprintf(`%s="%d"`, u.pool.Knob, want)), v.signal(u.app, "restart", shell.Line("# restart %s (pid %s): server.xml is read at the start", u.app.Kind, u.app.PID))}
}

// wantedHAProxy is the maxconn that is proposed: a connection takes two
// descriptors and about 33 kB of buffers.
func (v *View) wantedHAProxy(u *poolUse) (int, string) { return v.proposedWorkers(u, 64<<10) }

func fixHAProxy(v *View, u *poolUse, s observe.Setting, f *Finding) {
	want, _ := v.wantedHAProxy(u)
	f.Fix.Text = fmt.Sprintf("Raise %s from %d to %d, as far as the servers behind can take it; each connection takes two descriptors.", u.pool.Knob, u.pool.Limit, want)
	if u.source != recorded && u.working < 0.5*u.held {
		f.Fix.Text += " Most connections are idle: a shorter timeout http-keep-alive frees them."
	}
	f.Fix.Commands = []shell.Command{place(u, s).Note("maxconn %s", want), v.reloadHAProxy(u.app)}
}
