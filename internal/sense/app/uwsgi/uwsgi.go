package uwsgi

import (
	"bytes"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
	"github.com/slowray/slowray/internal/sense/app/pool"
	"github.com/slowray/slowray/internal/sense/host"
)

// Discover finds the running masters among the processes.
func Discover(procs []observe.Process, procRoot string) []*pool.Instance {
	return pool.Masters(procs, procRoot, pool.Server{Kind: observe.KindUWSGI, Begin: begin, Classify: classify, Free: free},
		func(p *observe.Process) bool { return strings.HasPrefix(p.Name(), "uwsgi") && p.Comm != "uwsgitop" })
}

// free: a worker without a request waits in epoll_wait() or accept(). One that
// waits for another service in poll() is taken for free too, which errs on the
// safe side.
func free(a host.Activity) bool { return a == host.Polling || a == host.Idle }

// short options that are of interest.
var short = map[string]string{"-p": "processes", "-l": "listen", "-s": "socket", "-t": "harakiri", "-d": "daemonize"}

// aliases of options (core/uwsgi.c).
var aliases = map[string]string{"workers": "processes", "uwsgi-socket": "socket", "logto2": "logto", "req-logger": "", "thunder-lock": ""}

// wanted are the options of interest, with those that may come several times.
var wanted = map[string]bool{"processes": true, "threads": true, "listen": true, "socket": true, "http-socket": true, "http": true,
	"https": true, "harakiri": true, "daemonize": true, "logto": true, "cheaper": true, "master": true, "async": true, "gevent": true}

// Defaults of uWSGI 2.0 (core/uwsgi.c).
const defaultListen = "100"

const (
	maxTimes = 64   // that one option is kept
	maxValue = 4096 // bytes
)

type settings struct {
	in     *pool.Instance
	b      *budget.Budget
	values map[string][]observe.Setting
	chain  []string // files that are being read
}

func begin(in *pool.Instance) {
	c := &settings{in: in, b: in.Budget, values: map[string][]observe.Setting{}}
	args := in.Args()
	for i := 1; i < len(args); i++ {
		a := args[i]
		key, v, has := strings.Cut(a, "=")
		switch {
		case strings.HasPrefix(a, "--"):
			key = strings.TrimPrefix(key, "--")
		case len(a) > 1 && a[0] == '-' && short[a[:2]] != "":
			key, v, has = short[a[:2]], a[2:], len(a) > 2
		case strings.HasSuffix(a, ".ini") || strings.HasSuffix(a, ".conf"):
			c.ini(in.Abs("", a))
			continue
		case strings.HasSuffix(a, ".xml") || strings.HasSuffix(a, ".yml") || strings.HasSuffix(a, ".yaml") || strings.HasSuffix(a, ".json"):
			in.Gap(in.Abs("", a), true, "the configuration of uWSGI (pid %d) is in a form that is not read (only .ini is)", in.PID)
			continue
		default:
			continue
		}
		if takesValue(key) && !has && i+1 < len(args) {
			i++
			v = args[i]
		}
		c.set(key, v, "the command line", 0)
	}
	c.fill()
}

func takesValue(key string) bool {
	if a, ok := aliases[key]; ok {
		key = a
	}
	return wanted[key] && key != "master" || key == "ini" || key == "include" || key == "plugin" || key == "plugins"
}

// set keeps an option. What is given several times, as sockets, is all kept.
func (c *settings) set(key, v, file string, line int) {
	if a, ok := aliases[key]; ok {
		key = a
	}
	if len(v) > maxValue {
		return // no longer one is of interest
	}
	if key == "ini" || key == "include" {
		c.ini(c.in.Abs("", v))
		return
	}
	if wanted[key] && len(c.values[key]) < maxTimes {
		c.values[key] = append(c.values[key], observe.Setting{Value: strings.Clone(v), File: file, Line: line})
	}
}

// ini reads the section [uwsgi] of a file.
func (c *settings) ini(name string) {
	if slices.Contains(c.chain, name) {
		c.in.Gap(name, true, "it includes itself")
		return
	}
	if c.b.Depth(len(c.chain)) != nil {
		return
	}
	c.chain = append(c.chain, name)
	defer func() { c.chain = c.chain[:len(c.chain)-1] }()
	name, section, ok := strings.Cut(name, ":")
	if !ok {
		section = "uwsgi"
	}
	text, err := c.in.ReadFile(name)
	if c.b.Err() != nil {
		return
	}
	if err != nil {
		c.in.Gap(name, true, "the configuration of uWSGI (pid %d) cannot be read: %s", c.in.PID, rootfs.Plain(err))
		return
	}
	if c.in.Out.Config == "" {
		c.in.Out.Config = name
	}
	inside, n := false, 0
	names := strings.NewReplacer("%d", path.Dir(name)+"/", "%n", strings.TrimSuffix(path.Base(name), path.Ext(name)))
	for line := range strings.SplitSeq(text, "\n") {
		n++
		if c.b.Node() != nil {
			return
		}
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == ';' || line[0] == '#':
		case line[0] == '[':
			inside = strings.Trim(line, "[] ") == section
		case inside:
			key, v, _ := strings.Cut(line, "=")
			if v = strings.TrimSpace(v); len(v) <= maxValue {
				if v = names.Replace(v); c.b.Unpack(int64(len(v))) != nil {
					return
				}
			}
			c.set(strings.TrimSpace(key), v, name, n)
		}
	}
}

// last is the value that counts: the last one.
func (c *settings) last(key, def string) observe.Setting {
	if s := c.values[key]; len(s) > 0 {
		return s[len(s)-1]
	}
	return observe.Setting{Value: def, Default: true}
}

func (c *settings) number(key, def string) (int, observe.Setting) {
	s := c.last(key, def)
	return pool.Count(s.Value), s
}

func (c *settings) fill() {
	p := observe.WorkerPool{Name: "workers", Knob: "processes"}
	n, from := c.number("processes", "1")
	p.Threads, _ = c.number("threads", "1")
	p.Threads = max(p.Threads, 1)
	p.Limit, p.Setting = max(n, 1)*p.Threads, from
	if len(c.values["async"])+len(c.values["gevent"]) > 0 {
		p.Limit = 0 // a worker takes many requests at once
	}
	p.Timeout = c.last("harakiri", "0")
	_, backlog := c.number("listen", defaultListen)
	for _, key := range []string{"socket", "http-socket", "http", "https"} {
		for _, s := range c.values[key] {
			p.Listens = append(p.Listens, address(s.Value, backlog))
		}
	}
	if len(c.values["http"])+len(c.values["https"]) > 0 {
		p.Threads = max(p.Threads, 2) // a child is the router, which is no worker
	}
	c.in.Out.Pools = []observe.WorkerPool{p}
	switch log := c.last("logto", c.last("daemonize", "").Value).Value; log {
	case "":
		c.in.FollowOutput("2", "log")
	default:
		c.in.Follow(c.in.Abs("", log), "log")
	}
}

// address reads "HOST:PORT", ":PORT", a path of a unix socket, and the "=0" of
// a socket that was inherited.
func address(s string, backlog observe.Setting) observe.AppListen {
	s, _, _ = strings.Cut(s, ",") // http = :80,…
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return observe.AppListen{Path: s, Backlog: backlog}
	}
	return observe.AppListen{Addr: strings.Trim(s[:i], "[]"), Port: pool.Port(s[i+1:]), Backlog: backlog}
}

// Kinds of log lines, observe.LogKind.Kind.
const (
	KindListenFull = "listen-queue-full" // [requests in it]
	KindHarakiri   = "harakiri"          // a worker was killed because its request took too long
	KindBusy       = "all-busy"          // *** uWSGI listen queue … cheaper: no worker to add
)

var (
	listenMark   = []byte("*** uWSGI listen queue of socket ")
	harakiriMark = []byte("HARAKIRI ON WORKER ")
	busyMark     = []byte("all workers are busy")
)

// classify tells lines by how they begin, after the date that some have: what
// clients send stands behind.
func classify(line []byte) (string, int) {
	head := line[:min(len(line), 200)]
	if i := bytes.Index(head, []byte(" - ")); i > 0 && i < 40 {
		head = head[i+3:]
	}
	switch {
	case bytes.HasPrefix(head, listenMark):
		if i := bytes.IndexByte(head, '('); i >= 0 && bytes.Contains(head, []byte("full !!!")) {
			digits, _, _ := bytes.Cut(head[i+1:], []byte("/"))
			if j := bytes.LastIndexByte(head, '('); j > i {
				digits, _, _ = bytes.Cut(head[j+1:], []byte("/"))
			}
			n, _ := strconv.Atoi(string(digits))
			return KindListenFull, n
		}
	case bytes.Contains(head, harakiriMark):
		return KindHarakiri, 0
	case bytes.Contains(head, busyMark):
		return KindBusy, 0
	}
	return "", 0
}
