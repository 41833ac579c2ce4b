package nginx

import (
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// keeping is what decides, next to the upstream's own keepalive, whether
// connections to it are kept; locations inherit it from the levels above.
type keeping struct {
	httpVersion string // proxy_http_version
	closes      bool   // the Connection header sent is "close"
	closesUnset bool   // … when no proxy_set_header sets it
	fastcgi     bool   // fastcgi_keep_conn
}

// pass is one *_pass directive with a literal target.
type pass struct {
	via    string
	target string // an upstream's name, or an address
	port   string // for a target without one: "80", "443" or ""
	keeps  bool
	d      *directive
}

// passes are those of "http" or of "stream", which do not share upstreams.
type passes struct {
	list     []pass
	variable bool // some target is only known at run time
}

func (c *config) upstreams() []observe.NginxUpstream {
	var out []observe.NginxUpstream
	for _, top := range c.main {
		switch top.name {
		case "http":
			var p passes
			p.collect(top.block, c.initialKeeping())
			out = append(out, resolve(top.block, &p, c.defaultKeepalive())...)
		case "stream":
			var p passes
			p.collectStream(top.block)
			out = append(out, resolve(top.block, &p, "0")...)
		}
	}
	return out
}

// defaultKeepalive is that of an upstream block in http.
func (c *config) defaultKeepalive() string {
	if c.build.atLeast(1, 29, 7) {
		return "32"
	}
	return "0"
}

// initialKeeping: since 1.29.7 upstream connections are kept unless told
// otherwise; before, proxied requests were HTTP/1.0 with "Connection: close".
func (c *config) initialKeeping() keeping {
	if c.build.atLeast(1, 29, 7) {
		return keeping{httpVersion: "1.1"}
	}
	return keeping{httpVersion: "1.0", closes: true, closesUnset: true}
}

func (p *passes) collect(ds []*directive, k keeping) {
	k = k.at(ds)
	for _, d := range ds {
		via, isPass := strings.CutSuffix(d.name, "_pass")
		if isPass && d.block == nil && len(d.args) > 0 {
			p.add(via, d, k)
		}
		switch d.name {
		case "server", "location", "if", "limit_except":
			p.collect(d.block, k)
		}
	}
}

// at is the keeping of a level, given that of the level above.
func (k keeping) at(ds []*directive) keeping {
	headers := false
	for _, d := range ds {
		switch d.name {
		case "proxy_http_version":
			k.httpVersion = d.arg(0)
		case "fastcgi_keep_conn":
			k.fastcgi = d.arg(0) == "on"
		case "proxy_set_header":
			// Headers of the level above are inherited only by a level that
			// sets none; Connection is then the default again.
			if !headers {
				headers, k.closes = true, k.closesUnset
			}
			if strings.EqualFold(d.arg(0), "Connection") {
				k.closes = strings.EqualFold(d.arg(1), "close")
			}
		}
	}
	return k
}

func (p *passes) add(via string, d *directive, k keeping) {
	target, port, keeps := d.args[0], "", true
	switch via {
	case "proxy", "grpc":
		scheme, rest, ok := strings.Cut(target, "://")
		if ok {
			target = rest
		} else {
			scheme = "http"
		}
		port = "80"
		if scheme == "https" || scheme == "grpcs" {
			port = "443"
		}
		if via == "proxy" {
			keeps = k.httpVersion != "1.0" && !k.closes
		}
	case "fastcgi":
		keeps = k.fastcgi
	case "uwsgi", "scgi": // these protocols have no way to keep a connection
		keeps = false
		if _, rest, ok := strings.Cut(target, "://"); ok {
			target = rest
		}
	case "memcached":
	default:
		return // auth_basic-like names of other modules
	}
	target = trimURI(target)
	if strings.Contains(target, "$") {
		p.variable = true
		return
	}
	p.list = append(p.list, pass{via, target, port, keeps, d})
}

// trimURI cuts "/uri" off "host:port/uri", and ":/uri" off "unix:/path:/uri".
func trimURI(s string) string {
	if rest, ok := strings.CutPrefix(s, "unix:"); ok {
		file, _, _ := strings.Cut(rest, ":")
		return "unix:" + file
	}
	if i := strings.IndexAny(s, "/?#"); i >= 0 {
		return s[:i]
	}
	return s
}

func (p *passes) collectStream(ds []*directive) {
	for _, d := range ds {
		if d.name != "server" {
			continue
		}
		for _, s := range d.block {
			if s.name != "proxy_pass" || len(s.args) == 0 {
				continue
			}
			if strings.Contains(s.args[0], "$") {
				p.variable = true
				continue
			}
			p.list = append(p.list, pass{via: "proxy", target: s.args[0], d: s})
		}
	}
}

// maxUpstreams bounds the list of one block.
const maxUpstreams = 4096

// resolve joins the passes with the upstream blocks next to them.
func resolve(ds []*directive, p *passes, keepalive string) []observe.NginxUpstream {
	var out []observe.NginxUpstream
	index := map[string]int{}
	used := map[string]bool{}
	blocks := map[string]*directive{}
	for _, d := range ds {
		if d.name == "upstream" && len(d.args) > 0 && blocks[d.args[0]] == nil {
			blocks[d.args[0]] = d
		}
	}
	for _, a := range p.list {
		key := a.via + "|" + a.target + "|" + a.port
		block := blocks[a.target]
		used[a.target] = true
		if i, ok := index[key]; ok {
			if block != nil && !a.keeps && out[i].Keepalive.Value != "0" {
				out[i].Keepalive = notKept(a.d)
			}
			continue
		}
		if len(out) >= maxUpstreams {
			break
		}
		index[key] = len(out)
		if block != nil {
			u := fromBlock(block, a.via, keepalive)
			if !a.keeps && u.Keepalive.Value != "0" {
				u.Keepalive = notKept(a.d)
			}
			out = append(out, u)
			continue
		}
		out = append(out, observe.NginxUpstream{Name: a.target, Via: a.via, Servers: []string{withPort(a.target, a.port)},
			Keepalive: observe.Setting{Value: "0", Default: true}, File: a.d.file, Line: a.d.line})
	}
	if !p.variable {
		return out
	}
	// A target known only at run time may be any of the blocks.
	for _, d := range ds {
		if d.name == "upstream" && len(d.args) > 0 && !used[d.args[0]] && len(out) < maxUpstreams {
			out = append(out, fromBlock(d, "", keepalive))
		}
	}
	return out
}

func notKept(d *directive) observe.Setting {
	return observe.Setting{Value: "0", File: d.file, Line: d.line}
}

func fromBlock(d *directive, via, keepalive string) observe.NginxUpstream {
	u := observe.NginxUpstream{Name: d.args[0], Via: via, File: d.file, Line: d.line,
		Keepalive: setting(find(d.block, "keepalive"), keepalive)}
	for _, s := range d.block {
		if s.name != "server" || len(s.args) == 0 || contains(s.args[1:], "down") {
			continue
		}
		u.Servers = append(u.Servers, withPort(s.args[0], "80"))
	}
	return u
}

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}

// withPort adds the port to an address that has none.
func withPort(addr, port string) string {
	if port == "" || strings.HasPrefix(addr, "unix:") {
		return addr
	}
	if strings.HasPrefix(addr, "[") {
		if strings.HasSuffix(addr, "]") {
			return addr + ":" + port
		}
		return addr
	}
	if strings.Contains(addr, ":") {
		return addr
	}
	return addr + ":" + port
}
