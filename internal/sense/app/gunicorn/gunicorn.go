package gunicorn

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
	"github.com/slowray/slowray/internal/sense/app/pool"
	"github.com/slowray/slowray/internal/sense/host"
)

// Discover finds the running arbiters among the processes.
func Discover(procs []observe.Process, procRoot string) []*pool.Instance {
	return pool.Masters(procs, procRoot, pool.Server{Kind: observe.KindGunicorn, Begin: begin, Classify: classify, Free: free, End: end}, isGunicorn)
}

const title = "gunicorn: " // with setproctitle installed: "gunicorn: master [app]"

func isGunicorn(p *observe.Process) bool {
	if strings.HasPrefix(p.Cmdline, title) {
		return true
	}
	w := strings.Fields(p.Cmdline)
	for i := 0; i < len(w) && i < 4; i++ {
		if path.Base(w[i]) == "gunicorn" && (i == 0 || strings.HasPrefix(path.Base(w[0]), "python")) {
			return true
		}
	}
	return false
}

// free: a sync worker without a request waits in select() for its sockets. One
// that waits for another service in poll() is taken for free too, which errs on
// the safe side.
func free(a host.Activity) bool { return a == host.Polling || a == host.Idle }

// setting names in the order of precedence, last wins: defaults, the file, the
// environment, the command line (gunicorn/app/base.py).
var options = map[string]string{
	"-w": "workers", "--workers": "workers", "--threads": "threads", "-k": "worker_class", "--worker-class": "worker_class",
	"-t": "timeout", "--timeout": "timeout", "--backlog": "backlog", "-b": "bind", "--bind": "bind", "-c": "config", "--config": "config",
	"--error-logfile": "errorlog", "--log-file": "errorlog", "--chdir": "chdir", "--worker-connections": "worker_connections",
}

func begin(in *pool.Instance) {
	values := map[string][]observe.Setting{}
	line := in.Args()
	fromLine := parseOptions(line, "the command line")
	fromEnv := parseOptions(strings.Fields(in.Env("GUNICORN_CMD_ARGS")), "GUNICORN_CMD_ARGS in the environment")
	conf := "gunicorn.conf.py"
	for _, from := range []map[string][]observe.Setting{fromEnv, fromLine} {
		if c := from["config"]; len(c) > 0 {
			conf = strings.TrimPrefix(c[0].Value, "file:")
		}
	}
	conf = in.Abs("", conf)
	if text, err := in.ReadFile(conf); err == nil {
		in.Out.Config = conf
		for name, s := range parseFile(in.Budget, text, conf, func(line int, name string) {
			in.Gap(fmt.Sprintf("%s:%d", conf, line), true, "%s is computed by the configuration of gunicorn (pid %d): its value is not known from there", name, in.PID)
		}) {
			values[name] = s
		}
	} else if len(fromLine["config"])+len(fromEnv["config"]) > 0 {
		in.Gap(conf, true, "the configuration of gunicorn (pid %d) cannot be read: %s", in.PID, rootfs.Plain(err))
	}
	if n := in.Env("WEB_CONCURRENCY"); n != "" && len(values["workers"]) == 0 {
		values["workers"] = []observe.Setting{{Value: n, File: "WEB_CONCURRENCY in the environment"}}
	}
	for _, from := range []map[string][]observe.Setting{fromEnv, fromLine} {
		for name, s := range from {
			values[name] = s
		}
	}
	if strings.HasPrefix(strings.Join(line, " "), title) {
		in.Gap(fmt.Sprintf("pid %d", in.PID), true, "gunicorn (pid %d) has a title in place of its command line: options given there are not known", in.PID)
	}
	in.Out.Pools = []observe.WorkerPool{workers(values)}
	in.Out.Model = one(values, "worker_class", "sync").Value
	if in.Out.Pools[0].Threads > 1 && in.Out.Model == "sync" {
		in.Out.Model = "gthread"
	}
	if log := one(values, "errorlog", "-").Value; log != "-" {
		in.Follow(in.Abs("", log), "error")
	} else {
		in.FollowOutput("2", "error")
	}
}

// parseOptions reads an argument list.
func parseOptions(args []string, source string) map[string][]observe.Setting {
	out := map[string][]observe.Setting{}
	for i := 0; i < len(args); i++ {
		if len(args[i]) > maxLine {
			continue
		}
		key, v, has := strings.Cut(args[i], "=")
		name, ok := options[key]
		if !ok && len(args[i]) > 2 && args[i][0] == '-' && args[i][1] != '-' { // "-w4"
			if name, ok = options[args[i][:2]]; ok {
				v, has = args[i][2:], true
			}
		}
		if !ok {
			continue
		}
		if !has && i+1 < len(args) {
			i++
			v = args[i]
		}
		s := observe.Setting{Value: v, File: source}
		if name == "bind" && len(out[name]) < maxBinds {
			out[name] = append(out[name], s)
		} else {
			out[name] = []observe.Setting{s}
		}
	}
	return out
}

const (
	maxLine  = 4096 // bytes
	maxBinds = 256
)

var (
	assignment = regexp.MustCompile(`^([a-z_]+)\s*=\s*(.*?)\s*(#.*)?$`)
	plainText  = regexp.MustCompile(`^["']([^"']*)["']$`)
	plainList  = regexp.MustCompile(`["']([^"']*)["']`)
)

// parseFile reads the plain assignments at the left margin of a configuration.
func parseFile(b *budget.Budget, text, file string, computed func(line int, name string)) map[string][]observe.Setting {
	out := map[string][]observe.Setting{}
	n := 0
	for line := range strings.SplitSeq(text, "\n") {
		n++
		if b.Node() != nil {
			break
		}
		if len(line) > maxLine || len(line) == 0 || line[0] < 'a' || line[0] > 'z' {
			continue
		}
		m := assignment.FindStringSubmatch(strings.TrimRight(line, "\r"))
		if m == nil || !slices.Contains([]string{"workers", "threads", "worker_class", "timeout", "backlog", "bind", "errorlog", "worker_connections"}, m[1]) {
			continue
		}
		at := func(v string) observe.Setting { return observe.Setting{Value: strings.Clone(v), File: file, Line: n} }
		switch {
		case plainText.MatchString(m[2]):
			out[strings.Clone(m[1])] = []observe.Setting{at(plainText.FindStringSubmatch(m[2])[1])}
		case m[1] == "bind" && strings.HasPrefix(m[2], "["):
			out["bind"] = nil
			for _, b := range plainList.FindAllStringSubmatch(m[2], 64) {
				out["bind"] = append(out["bind"], at(b[1]))
			}
		default:
			if _, err := strconv.Atoi(m[2]); err != nil {
				computed(n, m[1])
				continue
			}
			out[strings.Clone(m[1])] = []observe.Setting{at(m[2])}
		}
	}
	return out
}

func one(values map[string][]observe.Setting, name, def string) observe.Setting {
	if s := values[name]; len(s) > 0 {
		return s[0]
	}
	return observe.Setting{Value: def, Default: true}
}

// workers is the pool by the settings. Worker classes other than sync and
// gthread are event loops, which have no such limit.
func workers(values map[string][]observe.Setting) observe.WorkerPool {
	p := observe.WorkerPool{Name: "workers", Knob: "workers", Setting: one(values, "workers", "1"), Timeout: one(values, "timeout", "30")}
	p.Threads = max(1, pool.Count(one(values, "threads", "1").Value))
	switch one(values, "worker_class", "sync").Value {
	case "sync", "gthread":
		p.Limit = pool.Count(p.Setting.Value) * p.Threads
	}
	for _, b := range values["bind"] {
		p.Listens = append(p.Listens, bound(b.Value, one(values, "backlog", "2048")))
	}
	if len(p.Listens) == 0 {
		p.Listens = []observe.AppListen{{Addr: "127.0.0.1", Port: 8000, Backlog: one(values, "backlog", "2048")}}
	}
	return p
}

// bound reads "HOST:PORT", "unix:PATH", "fd://N".
func bound(s string, backlog observe.Setting) observe.AppListen {
	if file, ok := strings.CutPrefix(s, "unix:"); ok {
		return observe.AppListen{Path: strings.TrimPrefix(file, "//"), Backlog: backlog}
	}
	i := strings.LastIndexByte(s, ':')
	return observe.AppListen{Addr: strings.Trim(s[:max(i, 0)], "[]"), Port: pool.Port(s[i+1:]), Backlog: backlog}
}

// end takes the number of workers from what runs where it is set by a program
// (a configuration that computes it, SIGTTIN).
func end(_ *budget.Budget, in *pool.Instance) {
	if len(in.Out.Pools) == 0 || in.Out.Pools[0].Limit == 0 {
		return
	}
	p := &in.Out.Pools[0]
	if n := len(in.Out.Workers) * p.Threads; n > 0 && p.Rounds == 0 {
		p.Limit = n
	}
}

// Kinds of error log lines, observe.LogKind.Kind.
const (
	KindWorkerTimeout = "worker-timeout" // a worker was killed because it did not answer its arbiter [its pid]
	KindWorkerKilled  = "worker-killed"  // a worker was ended by a signal
)

var (
	timeoutMark = []byte("[CRITICAL] WORKER TIMEOUT (pid:")
	killedMark  = []byte(" was terminated due to signal ")
	sentMark    = []byte(" was sent SIGKILL!")
)

func classify(line []byte) (string, int) {
	head := line[:min(len(line), 160)]
	if i := bytes.Index(head, timeoutMark); i >= 0 {
		digits, _, _ := bytes.Cut(head[i+len(timeoutMark):], []byte(")"))
		n, _ := strconv.Atoi(string(digits))
		return KindWorkerTimeout, n
	}
	if bytes.Contains(head, killedMark) || bytes.Contains(head, sentMark) {
		return KindWorkerKilled, 0
	}
	return "", 0
}
