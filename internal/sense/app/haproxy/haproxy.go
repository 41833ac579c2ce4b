package haproxy

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
	"github.com/slowray/slowray/internal/sense/app/pool"
)

// Discover finds the running masters among the processes.
func Discover(procs []observe.Process, procRoot string) []*pool.Instance {
	found := pool.Masters(procs, procRoot, pool.Server{Kind: observe.KindHAProxy}, func(p *observe.Process) bool { return p.Name() == "haproxy" })
	for _, in := range found {
		r := &reader{}
		in.Serve(pool.Server{Kind: observe.KindHAProxy, Begin: r.begin, Classify: classify, Sample: r.sample, End: r.end})
	}
	return found
}

// reader is one HAProxy while it is watched.
type reader struct {
	socket  string // of statistics, in the root of the server
	trusted bool   // root says that it is there
	silent  bool   // it has been found that it does not answer
	round   int
	sums    map[string]*sums
}

func (r *reader) begin(in *pool.Instance) {
	c := &config{in: in, b: in.Budget}
	for _, name := range configFiles(in.Args()) {
		c.path(in.Abs("", name))
	}
	if len(c.sections) == 0 {
		in.Gap("", true, "no configuration of HAProxy (pid %d) was found", in.PID)
		return
	}
	c.fill()
	if in.Budget.Err() != nil {
		c.socket = "" // it was not read to its end: what it tells is not asked for
	}
	r.socket, r.trusted = c.socket, c.trusted
	in.FollowOutput("1", "log")
}

// configFiles finds -f in the command line, and what stands behind "--".
func configFiles(args []string) []string {
	var out []string
	for i := 1; i < len(args); i++ {
		switch {
		case args[i] == "-f" && i+1 < len(args):
			i++
			out = append(out, args[i])
		case strings.HasPrefix(args[i], "-f") && len(args[i]) > 2:
			out = append(out, args[i][2:])
		case args[i] == "--":
			return append(out, args[i+1:]...)
		case slices.Contains([]string{"-sf", "-st"}, args[i]):
			return out // pids follow
		}
	}
	return out
}

const (
	maxServers  = 512 // that are reported
	maxPools    = 512
	maxListens  = 1024     // of a pool
	maxLine     = 64 << 10 // bytes; HAProxy itself takes 2,048 (LINESIZE)
	wordsOfNode = 16       // of a line, that are one item more of the budget
)

// section is a "frontend", "backend", "listen", "defaults" or "global" with the
// lines in it.
type section struct {
	kind, name string
	lines      []line
	defaults   *section
	trusted    bool // it stands in a file that is root's
}

type line struct {
	words []string
	file  string
	n     int
}

type config struct {
	in       *pool.Instance
	b        *budget.Budget
	sections []*section
	defaults *section
	socket   string
	trusted  bool // the file that names it is root's
}

// path reads a file, or the .cfg files of a directory in order.
func (c *config) path(name string) {
	names := []string{name}
	if st, err := c.in.Root.Stat(name); err == nil && st.Mode&0o170000 == 0o040000 {
		if names, err = c.in.Root.Glob(name + "/*.cfg"); err != nil && c.b.Err() == nil {
			c.in.Gap(name, true, "the configuration of HAProxy (pid %d) cannot be read: %s", c.in.PID, rootfs.Plain(err))
		}
	}
	for _, n := range names {
		text, uid, err := c.in.ReadOwned(n)
		if c.b.Err() != nil {
			return
		}
		if err != nil {
			c.in.Gap(n, true, "the configuration of HAProxy (pid %d) cannot be read: %s", c.in.PID, rootfs.Plain(err))
			continue
		}
		if c.in.Out.Config == "" {
			c.in.Out.Config = n
		}
		c.parse(n, text, uid == 0)
	}
}

// parse takes up the lines of one file, which may be root's.
func (c *config) parse(file, text string, trusted bool) {
	var now *section
	n := 0
	for raw := range strings.SplitSeq(text, "\n") {
		n++
		if c.b.Node() != nil {
			return
		}
		if len(raw) > maxLine {
			c.in.Gap(fmt.Sprintf("%s:%d", file, n), true, "a line of more than %d bytes was left out", maxLine)
			continue
		}
		w := words(raw)
		if len(w) == 0 || c.b.Nodes(int64(len(w)/wordsOfNode)) != nil {
			continue
		}
		switch w[0] {
		case "global", "defaults", "frontend", "backend", "listen", "userlist", "peers", "resolvers", "mailers", "cache", "program", "http-errors", "ring", "fcgi-app":
			now = &section{kind: w[0], defaults: c.defaults, trusted: trusted}
			if len(w) > 1 {
				now.name = w[1]
			}
			if w[0] == "defaults" {
				c.defaults = now
			}
			c.sections = append(c.sections, now)
			continue
		}
		if now != nil {
			now.lines = append(now.lines, line{w, file, n})
		}
	}
}

// words splits a line at spaces outside quotes, up to a comment; a backslash
// takes the next character as it is.
func words(s string) []string {
	var out []string
	var word strings.Builder
	in, quote := false, byte(0)
	for i := 0; i < len(s); i++ {
		switch ch := s[i]; {
		case quote != 0 && ch == quote:
			quote = 0
		case quote == 0 && (ch == '"' || ch == '\''):
			quote, in = ch, true
		case ch == '\\' && quote != '\'' && i+1 < len(s):
			i++
			word.WriteByte(s[i])
			in = true
		case quote == 0 && (ch == ' ' || ch == '\t' || ch == '\r' || ch == '#'):
			if in {
				out = append(out, word.String())
				word.Reset()
				in = false
			}
			if ch == '#' {
				return out
			}
		default:
			word.WriteByte(ch)
			in = true
		}
	}
	if in {
		out = append(out, word.String())
	}
	return out
}

// find is the value of a keyword in a section, or in its defaults.
func (s *section) find(b *budget.Budget, keyword string) (observe.Setting, bool) {
	for at := s; at != nil; at = at.defaults {
		if b.Nodes(int64(len(at.lines))) != nil {
			return observe.Setting{}, false
		}
		for _, l := range at.lines {
			if l.words[0] == keyword && len(l.words) > 1 {
				return observe.Setting{Value: l.words[1], File: l.file, Line: l.n}, true
			}
		}
		if at.kind == "defaults" {
			break
		}
	}
	return observe.Setting{}, false
}

func (c *config) global() (max observe.Setting, ok bool) {
	for _, s := range c.sections {
		if s.kind != "global" {
			continue
		}
		for _, l := range s.lines {
			switch {
			case l.words[0] == "maxconn" && len(l.words) > 1:
				max, ok = observe.Setting{Value: l.words[1], File: l.file, Line: l.n}, true
			case len(l.words) > 2 && l.words[0] == "stats" && l.words[1] == "socket" && c.socket == "":
				path := strings.TrimPrefix(l.words[2], "unix@")
				if strings.HasPrefix(path, "/") {
					c.socket, c.trusted = path, s.trusted
				}
			}
		}
	}
	return max, ok
}

// fill tells the limit of each frontend: its own maxconn, the process's, or
// what the process makes of its limit of open files (compute_ideal_maxconn,
// src/haproxy.c: about half of them), whichever is lowest.
func (c *config) fill() {
	global, hasGlobal := c.global()
	if !hasGlobal {
		global = observe.Setting{Value: strconv.Itoa(max(0, (c.in.Proc.FDLimit-100)/2)), Default: true}
	}
	for _, s := range c.sections {
		if s.kind != "frontend" && s.kind != "listen" {
			continue
		}
		if len(c.in.Out.Pools) == maxPools {
			c.in.Loss("frontends of HAProxy beyond 512", 1)
			continue
		}
		p := observe.WorkerPool{Name: s.name, Knob: "maxconn", Setting: global, PerConn: true}
		p.Limit = pool.Count(global.Value)
		if own, ok := s.find(c.b, "maxconn"); ok {
			if n := pool.Count(own.Value); n > 0 && (p.Limit == 0 || n < p.Limit) {
				p.Limit, p.Setting = n, own
			}
		}
		if p.Setting == global {
			p.Knob = "maxconn of global"
		}
		backlog, ok := s.find(c.b, "backlog")
		if !ok {
			backlog = observe.Setting{Value: strconv.Itoa(p.Limit), File: p.Setting.File, Line: p.Setting.Line, Default: true}
		}
		for _, l := range s.lines {
			if l.words[0] != "bind" || len(l.words) < 2 {
				continue
			}
			for a := range strings.SplitSeq(l.words[1], ",") {
				if len(p.Listens) == maxListens {
					break
				}
				p.Listens = append(p.Listens, bound(a, backlog))
			}
			for i, w := range l.words[2:] {
				if w == "maxconn" && i+3 < len(l.words) {
					if n := pool.Count(l.words[i+3]); n > 0 && n < p.Limit {
						p.Limit, p.Setting = n, observe.Setting{Value: l.words[i+3], File: l.file, Line: l.n}
					}
				}
			}
		}
		c.in.Out.Pools = append(c.in.Out.Pools, p)
	}
	c.backends()
}

// bound reads "*:80", ":80", "10.0.0.1:80", "[::]:80", "unix@/run/x" and "/run/x".
func bound(s string, backlog observe.Setting) observe.AppListen {
	for _, prefix := range []string{"ipv4@", "ipv6@", "unix@"} {
		s = strings.TrimPrefix(s, prefix)
	}
	if strings.HasPrefix(s, "/") {
		return observe.AppListen{Path: s, Backlog: backlog}
	}
	i := strings.LastIndexByte(s, ':')
	return observe.AppListen{Addr: strings.Trim(s[:max(i, 0)], "[]"), Port: pool.Port(s[i+1:]), Backlog: backlog}
}

// maxFrontends is how many frontends of a backend are reported.
const maxFrontends = 64

// backends lists the servers with the frontends that may pass to them.
func (c *config) backends() {
	users := map[string][]string{}
	use := func(backend, frontend string) {
		if n := len(users[backend]); n < maxFrontends && (n == 0 || users[backend][n-1] != frontend) {
			users[backend] = append(users[backend], frontend)
		}
	}
	for _, s := range c.sections {
		if s.kind == "listen" {
			use(s.name, s.name)
		}
		if s.kind != "frontend" && s.kind != "listen" {
			continue
		}
		for at := s; at != nil; at = at.defaults {
			if c.b.Nodes(int64(len(at.lines))) != nil {
				return
			}
			for _, l := range at.lines {
				if (l.words[0] == "default_backend" || l.words[0] == "use_backend") && len(l.words) > 1 {
					use(l.words[1], s.name)
				}
			}
			if at.kind == "defaults" {
				break
			}
		}
	}
	for _, s := range c.sections {
		if s.kind != "backend" && s.kind != "listen" {
			continue
		}
		defaults := observe.Setting{}
		for _, l := range s.lines {
			w := l.words
			switch {
			case w[0] == "default-server":
				if m := option(w[1:], "maxconn"); m != "" {
					defaults = observe.Setting{Value: m, File: l.file, Line: l.n}
				}
			case w[0] == "server" && len(w) > 2:
				if len(c.in.Out.Backends) == maxServers {
					c.in.Loss("servers of HAProxy beyond 512", 1)
					continue
				}
				b := observe.ProxyBackend{Backend: s.name, Server: w[1], Addr: w[2], MaxConn: defaults, Frontends: users[s.name]}
				if m := option(w[3:], "maxconn"); m != "" {
					b.MaxConn = observe.Setting{Value: m, File: l.file, Line: l.n}
				}
				c.in.Out.Backends = append(c.in.Out.Backends, b)
			}
		}
	}
}

func option(w []string, name string) string {
	if i := slices.Index(w, name); i >= 0 && i+1 < len(w) {
		return w[i+1]
	}
	return ""
}

// Kinds of log lines, observe.LogKind.Kind.
const (
	KindNoServer   = "no-server"   // a backend has no server that can be used
	KindServerDown = "server-down" // a health check failed
	KindFDLimit    = "fd-limit"    // the process has no descriptor left
)

func classify(line []byte) (string, int) {
	head := line[:min(len(line), 300)]
	switch {
	case bytes.Contains(head, []byte("has no server available!")):
		return KindNoServer, 0
	case bytes.Contains(head, []byte("is DOWN, reason:")):
		return KindServerDown, 0
	case bytes.Contains(head, []byte("reached process FD limit")), bytes.Contains(head, []byte("reached system FD limit")):
		return KindFDLimit, 0
	}
	return "", 0
}
