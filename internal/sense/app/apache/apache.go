package apache

import (
	"bytes"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/pool"
	"github.com/slowray/slowray/internal/sense/host"
)

var names = []string{"apache2", "httpd", "httpd.worker", "httpd.event"}

// Discover finds the running masters among the processes.
func Discover(procs []observe.Process, procRoot string) []*pool.Instance {
	return pool.Masters(procs, procRoot, pool.Server{Kind: observe.KindApache, Begin: begin, Classify: classify, Free: free},
		func(p *observe.Process) bool { return slices.Contains(names, p.Name()) })
}

// free: a prefork child without a connection is in accept(), or waits for the
// mutex around it where there are several addresses, which is not told from
// other sleep: see begin.
func free(a host.Activity) bool { return a == host.Idle }

// Defaults of httpd 2.4 (server/mpm/*, include/mpm_common.h).
const (
	defaultBacklog        = "511"
	defaultPreforkLimit   = 256
	defaultThreads        = 25
	defaultThreadedServer = 16
)

func begin(in *pool.Instance) {
	root, conf, defines := arguments(in)
	if conf == "" {
		in.Gap("", true, "the configuration file of httpd (pid %d) is not known", in.PID)
		return
	}
	in.Out.Config = conf
	c := &parser{in: in, b: in.Budget, root: root, defines: defines, values: map[string]value{}, modules: map[string]bool{}}
	in.Out.Model = mpmOf(in)
	if in.Out.Model != "" {
		c.modules["mpm_"+in.Out.Model+"_module"], c.modules["mpm_"+in.Out.Model+".c"], c.modules[in.Out.Model+".c"] = true, true, true
	}
	c.file(conf, 0)
	if c.read == 0 {
		return
	}
	in.Out.Pools = []observe.WorkerPool{c.workers(in.Out.Model)}
	if log, ok := c.values["errorlog"]; ok && !strings.HasPrefix(log.text, "|") && !strings.HasPrefix(log.text, "syslog") {
		in.Follow(in.Abs(c.root, log.text), "error")
	} else {
		in.NotFollowed(log.text, "error", "the error log goes to a program or to syslog, not to a file")
	}
}

// arguments reads -d, -f and -D of the command line, or finds the layouts of
// Debian and Red Hat.
func arguments(in *pool.Instance) (root, conf string, defines map[string]string) {
	defines = map[string]string{}
	args := in.Args()
	for i := 1; i < len(args); i++ {
		a := args[i]
		if len(a) < 2 || a[0] != '-' || !strings.ContainsRune("dfDkCce", rune(a[1])) {
			continue
		}
		v := a[2:]
		if v == "" && i+1 < len(args) {
			i++
			v = args[i]
		}
		switch a[1] {
		case 'd':
			root = v
		case 'f':
			conf = v
		case 'D':
			defines[v] = ""
		}
	}
	if root == "" {
		for _, dir := range []string{"/etc/apache2", "/etc/httpd", "/usr/local/apache2"} {
			if _, err := in.Root.Stat(dir); err == nil {
				root = dir
				break
			}
		}
	}
	if conf != "" {
		return root, in.Abs(root, conf), defines
	}
	for _, name := range []string{"apache2.conf", "conf/httpd.conf", "httpd.conf"} {
		if _, err := in.Root.Stat(path.Join(root, name)); err == nil && root != "" {
			return root, path.Join(root, name), defines
		}
	}
	return root, "", defines
}

const maxMaps = 2 << 20 // bytes of a memory map that are looked at

// mpmOf tells the MPM by the module that is mapped; "" when it is built in.
func mpmOf(in *pool.Instance) string {
	maps, err := budget.Head(filepath.Join(in.ProcRoot, strconv.Itoa(in.PID), "maps"), maxMaps)
	if err != nil {
		return ""
	}
	for _, mpm := range []string{"prefork", "worker", "event"} {
		if bytes.Contains(maps, []byte("mod_mpm_"+mpm+".so")) {
			return mpm
		}
	}
	return ""
}

func (c *parser) number(name string, def int) (int, observe.Setting) {
	v, ok := c.values[name]
	if n := pool.Count(v.text); ok && n > 0 {
		return n, v.setting()
	}
	return def, observe.Setting{Value: strconv.Itoa(def), Default: true}
}

// workers is the limit that binds: MaxRequestWorkers, or what ServerLimit and
// ThreadsPerChild leave of it (httpd lowers it so at its start).
func (c *parser) workers(mpm string) observe.WorkerPool {
	p := observe.WorkerPool{Name: "workers", Knob: "MaxRequestWorkers"}
	servers, threads := defaultPreforkLimit, 1
	if mpm != "prefork" {
		servers = defaultThreadedServer
		threads, _ = c.number("threadsperchild", defaultThreads)
	}
	serverLimit, fromLimit := c.number("serverlimit", servers)
	p.Limit, p.Setting = c.number("maxrequestworkers", servers*threads)
	if most := serverLimit * threads; most < p.Limit {
		p.Limit, p.Setting, p.Knob = most, fromLimit, "ServerLimit"
	}
	p.Threads, p.Ceiling = threads, serverLimit*threads
	p.PerConn = mpm == "prefork" || mpm == "worker"
	backlog := observe.Setting{Value: defaultBacklog, Default: true}
	if v, ok := c.values["listenbacklog"]; ok {
		backlog = v.setting()
	}
	for _, l := range c.listens {
		if l.Port != 0 && len(p.Listens) < maxListens {
			l.Backlog = backlog
			p.Listens = append(p.Listens, l)
		}
	}
	if len(c.listens) > 1 {
		p.Threads = max(p.Threads, 2) // children that wait for the mutex around accept() look busy
	}
	p.Timeout = observe.Setting{}
	return p
}

// Kinds of error log lines, observe.LogKind.Kind.
const (
	KindMaxWorkers  = "max-workers"  // all workers taken, or not enough of them spare
	KindScoreboard  = "scoreboard"   // no slot for a new process
	KindNearLimit   = "near-limit"   // event: fewer spare threads than MinSpareThreads
	KindProxyFailed = "proxy-failed" // a backend of mod_proxy cannot be reached
	KindTimeout     = "timeout"      // a script or backend did not answer in time
)

// classify tells lines by the numbers that httpd gives its messages
// (docs/log-message-tags), which clients cannot write: they come after the
// module and the process in brackets.
func classify(line []byte) (string, int) {
	s := string(line[:min(len(line), 400)])
	i := strings.Index(s, "] AH")
	if i < 0 {
		// "[client ADDRESS] AH…" and "[remote …] AH…" end in "]" too.
		return "", 0
	}
	if len(s) < i+9 {
		return "", 0
	}
	switch s[i+2 : i+9] {
	case "AH00161", "AH00286", "AH00484":
		return KindMaxWorkers, 0
	case "AH10159":
		return KindNearLimit, 0
	case "AH00288", "AH03490":
		return KindScoreboard, 0
	case "AH00957", "AH00959", "AH01114":
		return KindProxyFailed, 0
	case "AH01102", "AH01075", "AH01220":
		return KindTimeout, 0
	}
	return "", 0
}
