package phpfpm

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
)

// Bounds of a configuration, next to its budget. php-fpm itself allows includes five
// deep.
const (
	maxIncludeDepth = 8
	maxFileBytes    = 4 << 20
	maxPools        = 1024
	maxProblems     = 64
	maxFiles        = 4096 // that are listed
)

// defaultBacklog is FPM_BACKLOG_DEFAULT on Linux (fpm_sockets.h) since 5.6.
const defaultBacklog = "511"

// value is a configuration value with the place it was written.
type value struct {
	text string
	file string
	line int
}

func (v value) setting(def string) observe.Setting {
	if v.file == "" {
		return observe.Setting{Value: def, Default: true}
	}
	return observe.Setting{Value: v.text, File: v.file, Line: v.line}
}

// poolConf is one pool's values of interest.
type poolConf struct {
	name string
	keys map[string]value
}

// problem says what of the configuration could not be understood.
type problem struct {
	file string
	line int
	text string
}

type parser struct {
	b        *budget.Budget
	root     rootfs.Root
	prefix   string // relative includes start here
	global   map[string]value
	pools    []*poolConf
	files    []string
	problems []problem
	dropped  int
	current  *poolConf // nil in [global]
	chain    []string
	byName   map[string]*poolConf // in lower case
}

func (p *parser) problem(file string, line int, format string, args ...any) {
	if len(p.problems) >= maxProblems {
		p.dropped++
		return
	}
	p.problems = append(p.problems, problem{file, line, fmt.Sprintf(format, args...)})
}

func (p *parser) readFile(name string) error {
	text, _, err := p.root.ReadFile(name, maxFileBytes)
	if err != nil {
		return err
	}
	if len(p.files) < maxFiles {
		p.files = append(p.files, name)
	}
	p.chain = append(p.chain, name)
	p.parse(name, text)
	p.chain = p.chain[:len(p.chain)-1]
	return nil
}

// parse takes up the lines of one file. The section carries on from file to
// file, as in php-fpm.
func (p *parser) parse(file, text string) {
	if p.global == nil {
		p.global = map[string]value{}
	}
	parseINI(text, func(e entry) bool {
		if p.b.Node() != nil {
			return false
		}
		switch {
		case e.broken:
			p.problem(file, e.line, "a line of unknown form")
		case e.key == "":
			p.open(file, e)
		case e.key == "include":
			p.include(file, e)
		default:
			p.set(e.key, value{e.value, file, e.line})
		}
		return true
	})
}

func (p *parser) open(file string, e entry) {
	p.current = nil
	if strings.EqualFold(e.section, "global") {
		return
	}
	name := strings.ToLower(e.section)
	if c := p.byName[name]; c != nil {
		p.current = c
		return
	}
	if len(p.pools) >= maxPools {
		p.problem(file, e.line, "more than %d pools", maxPools)
		p.current = &poolConf{keys: map[string]value{}} // not listed
		return
	}
	p.current = &poolConf{name: strings.Clone(e.section), keys: map[string]value{}}
	p.pools = append(p.pools, p.current)
	if p.byName == nil {
		p.byName = map[string]*poolConf{}
	}
	p.byName[name] = p.current
}

var poolKeys = []string{"listen", "listen.backlog", "pm", "pm.max_children", "prefix", "slowlog", "request_slowlog_timeout"}
var globalKeys = []string{"error_log", "log_level", "prefix"}

func (p *parser) set(key string, v value) {
	keys := globalKeys
	if p.current != nil {
		keys = poolKeys
	}
	i := slices.Index(keys, key)
	if i < 0 {
		return
	}
	if p.current == nil {
		p.global[keys[i]] = v
	} else {
		if n := strings.Count(v.text, "$pool"); p.b.Unpack(int64(n*len(p.current.name))) != nil {
			return
		}
		v.text = strings.ReplaceAll(v.text, "$pool", p.current.name)
		p.current.keys[keys[i]] = v
	}
	if strings.Contains(v.text, "${") {
		p.problem(v.file, v.line, "%s = %s comes from an environment variable of php-fpm, which cannot be read", key, rootfs.Clip(v.text))
	}
}

func (p *parser) include(file string, e entry) {
	name := e.value
	if !path.IsAbs(name) {
		name = path.Join(p.prefix, name)
	}
	if len(p.chain) > maxIncludeDepth {
		p.problem(file, e.line, "include %s: nested deeper than %d", rootfs.Clip(name), maxIncludeDepth)
		return
	}
	names, err := p.root.Glob(name)
	if err != nil {
		p.problem(file, e.line, "include %s: %s", rootfs.Clip(name), rootfs.Plain(err))
		return
	}
	if len(names) == 0 && !rootfs.HasMeta(name) {
		p.problem(file, e.line, "include %s: no such file", rootfs.Clip(name))
	}
	for _, n := range names {
		if slices.Contains(p.chain, n) {
			p.problem(file, e.line, "include %s: it includes itself", rootfs.Clip(n))
			continue
		}
		if err := p.readFile(n); p.b.Err() != nil {
			return
		} else if err != nil {
			p.problem(file, e.line, "include %s: %s", rootfs.Clip(n), rootfs.Plain(err))
		}
	}
}

// pool is the pool's settings; sockets with a relative path lie below the
// pool's prefix, else php-fpm's.
func (c *poolConf) pool(prefix string) observe.FPMPool {
	listen := c.keys["listen"]
	if isPath(listen.text) && !path.IsAbs(listen.text) {
		if own := c.keys["prefix"].text; own != "" {
			prefix = own
		}
		listen.text = path.Join(prefix, listen.text)
	}
	return observe.FPMPool{Name: c.name, Listen: listen.setting(""),
		ListenBacklog: c.keys["listen.backlog"].setting(defaultBacklog),
		PM:            c.keys["pm"].setting(""), MaxChildren: c.keys["pm.max_children"].setting("")}
}

// isPath tells a socket path from "9000", "127.0.0.1:9000" and "[::]:9000".
func isPath(listen string) bool {
	if listen == "" || strings.ContainsRune(listen, ':') {
		return false
	}
	_, err := strconv.Atoi(listen)
	return err != nil
}
