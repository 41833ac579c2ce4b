package nginx

import (
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// Defaults of nginx 1.22: ngx_event.c (DEFAULT_CONNECTIONS),
// ngx_connection.h (NGX_LISTEN_BACKLOG on Linux).
const (
	defaultWorkerProcesses   = "1"
	defaultWorkerConnections = "512"
	defaultBacklog           = "511"
)

// config is a parsed configuration with what its meaning depends on.
type config struct {
	main   []*directive
	prefix string // relative log paths start here
	build  build
	asRoot bool // the master runs as root: a server without listen takes port 80
}

func find(ds []*directive, name string) *directive {
	for _, d := range ds {
		if d.name == name {
			return d
		}
	}
	return nil
}

func setting(d *directive, def string) observe.Setting {
	if d == nil || len(d.args) == 0 {
		return observe.Setting{Value: def, Default: true}
	}
	return observe.Setting{Value: d.args[0], File: d.file, Line: d.line}
}

func (c *config) fill(n *observe.Nginx) {
	n.WorkerProcesses = setting(find(c.main, "worker_processes"), defaultWorkerProcesses)
	n.WorkerRlimitNofile = setting(find(c.main, "worker_rlimit_nofile"), "")
	n.WorkerConnections = observe.Setting{Value: defaultWorkerConnections, Default: true}
	if ev := find(c.main, "events"); ev != nil {
		n.WorkerConnections = setting(find(ev.block, "worker_connections"), defaultWorkerConnections)
	}
	n.Listens = c.listens()
	n.Upstreams = c.upstreams()
	n.Limits = c.limits()
}

// maxListens bounds the list; port ranges can be long.
const maxListens = 4096

// listens returns each listening address once: options such as backlog may be
// given on any of the directives of an address and hold for the address.
func (c *config) listens() []observe.NginxListen {
	var out []observe.NginxListen
	index := map[string]int{}
	add := func(l observe.NginxListen) {
		addr := l.Addr
		if addr == "0.0.0.0" {
			addr = "*"
		}
		key := addr + "|" + strconv.Itoa(l.Port) + "|" + l.Path
		i, ok := index[key]
		switch {
		case ok && out[i].Backlog.Default && !l.Backlog.Default:
			out[i].Backlog, out[i].File, out[i].Line = l.Backlog, l.File, l.Line
		case !ok && len(out) < maxListens:
			index[key] = len(out)
			out = append(out, l)
		}
	}
	for _, top := range c.main {
		if top.name != "http" && top.name != "stream" && top.name != "mail" {
			continue
		}
		for _, server := range top.block {
			if server.name != "server" {
				continue
			}
			listening := false
			for _, d := range server.block {
				if d.name == "listen" && len(d.args) > 0 {
					listening = true
					for _, l := range parseListen(d) {
						add(l)
					}
				}
			}
			if !listening && top.name == "http" {
				port := 8000
				if c.asRoot {
					port = 80
				}
				add(observe.NginxListen{Addr: "*", Port: port, File: server.file, Line: server.line,
					Backlog: observe.Setting{Value: defaultBacklog, Default: true}})
			}
		}
	}
	return out
}

// maxPortRange bounds "listen 10000-60000".
const maxPortRange = 1024

// parseListen reads a listen directive; UDP listens have no accept queue and
// are left out.
func parseListen(d *directive) []observe.NginxListen {
	l := observe.NginxListen{File: d.file, Line: d.line,
		Backlog: observe.Setting{Value: defaultBacklog, Default: true}}
	for _, a := range d.args[1:] {
		switch {
		case a == "udp" || a == "quic":
			return nil
		case strings.HasPrefix(a, "backlog="):
			l.Backlog = observe.Setting{Value: a[len("backlog="):], File: d.file, Line: d.line}
		}
	}
	addr := d.args[0]
	if p, ok := strings.CutPrefix(addr, "unix:"); ok {
		l.Path = p
		return []observe.NginxListen{l}
	}
	host, ports := splitListen(addr)
	first, last, ok := portRange(ports)
	if !ok {
		return nil
	}
	l.Addr = host
	var out []observe.NginxListen
	for port := first; port <= last && len(out) < maxPortRange; port++ {
		l.Port = port
		out = append(out, l)
	}
	return out
}

// splitListen separates "80", "*:80", "127.0.0.1", "[::]:80" and
// "localhost:8000-8010"; a missing port is 80, a missing address "*".
func splitListen(s string) (host, ports string) {
	if rest, ok := strings.CutPrefix(s, "["); ok {
		host, rest, _ = strings.Cut(rest, "]")
		if p, ok := strings.CutPrefix(rest, ":"); ok {
			return host, p
		}
		return host, "80"
	}
	if host, ports, ok := strings.Cut(s, ":"); ok {
		return host, ports
	}
	if _, _, ok := portRange(s); ok {
		return "*", s
	}
	return s, "80"
}

func portRange(s string) (first, last int, ok bool) {
	a, b, isRange := strings.Cut(s, "-")
	if !isRange {
		b = a
	}
	first, err1 := strconv.Atoi(a)
	last, err2 := strconv.Atoi(b)
	return first, last, err1 == nil && err2 == nil && first > 0 && last <= 65535
}
