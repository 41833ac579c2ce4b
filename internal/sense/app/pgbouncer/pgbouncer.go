package pgbouncer

import (
	"fmt"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
	"github.com/slowray/slowray/internal/sense/app/pool"
)

// Discover finds the running PgBouncers among the processes.
func Discover(procs []observe.Process, procRoot string) []*pool.Instance {
	return pool.Masters(procs, procRoot, pool.Server{Kind: observe.KindPgBouncer, Begin: begin}, func(p *observe.Process) bool { return p.Name() == "pgbouncer" })
}

// Defaults of PgBouncer (doc/config.md), and bounds.
const (
	defaultPoolSize = "20"
	defaultPort     = "6432"

	maxDepth = 8   // of %include
	maxPools = 512 // that are reported
	maxLine  = 8 << 10
)

// begin reads the configuration.
func begin(in *pool.Instance) {
	name := configFile(in.Args())
	if name == "" {
		in.Gap("", true, "the configuration file of PgBouncer (pid %d) is not known", in.PID)
		return
	}
	c := &config{in: in, values: map[string]observe.Setting{
		"default_pool_size": {Value: defaultPoolSize, Default: true}, "listen_port": {Value: defaultPort, Default: true}, "pool_mode": {Value: "session", Default: true},
	}}
	in.Out.Config = in.Abs("", name)
	c.read(in.Out.Config, 0)
	if in.Budget.Err() != nil {
		return
	}
	in.Out.Model = c.values["pool_mode"].Value
	listen := observe.AppListen{Port: pool.Count(c.values["listen_port"].Value)}
	add := func(name, knob string, s observe.Setting) {
		in.Out.Pools = append(in.Out.Pools, observe.WorkerPool{Name: name, Knob: knob, Setting: s, Limit: pool.Count(s.Value), Listens: []observe.AppListen{listen}})
	}
	add("", "default_pool_size", c.values["default_pool_size"])
	for _, d := range c.databases {
		add(d.name, "pool_size", d.size)
	}
}

// configFile is the file in a command line: the only word that is no option, nor the
// value of one.
func configFile(args []string) (name string) {
	for i := 1; i < len(args); i++ {
		switch a := args[i]; {
		case a == "-u" || a == "--user":
			i++
		case a != "" && a[0] != '-':
			name = a
		}
	}
	return name
}

// config is the configuration while it is read.
type config struct {
	in        *pool.Instance
	section   string
	values    map[string]observe.Setting // of [pgbouncer]
	databases []database                 // that have a size of their own
}

type database struct {
	name string
	size observe.Setting
}

// read takes up one file, and those that it includes.
func (c *config) read(name string, depth int) {
	text, err := c.in.ReadFile(name)
	if err != nil {
		if c.in.Budget.Err() == nil {
			c.in.Gap(name, true, "the configuration of PgBouncer (pid %d) cannot be read: %s", c.in.PID, rootfs.Plain(err))
		}
		return
	}
	n := 0
	for raw := range strings.SplitSeq(text, "\n") {
		n++
		if c.in.Budget.Node() != nil {
			return
		}
		line := strings.TrimSpace(raw)
		switch {
		case line == "" || line[0] == ';' || line[0] == '#':
		case len(line) > maxLine:
			c.in.Gap(fmt.Sprintf("%s:%d", name, n), true, "a line of more than %d bytes was left out", maxLine)
		case line[0] == '[':
			c.section = strings.ToLower(strings.Trim(line, "[] \t"))
		case strings.HasPrefix(line, "%include"):
			if file := strings.TrimSpace(strings.TrimPrefix(line, "%include")); file != "" && depth < maxDepth {
				c.read(c.in.Abs("", file), depth+1)
			}
		default:
			c.line(line, name, n)
		}
	}
}

func (c *config) line(line, file string, n int) {
	key, value, ok := strings.Cut(line, "=")
	if !ok {
		return
	}
	key, value = strings.ToLower(strings.TrimSpace(key)), strings.TrimSpace(value)
	setting := func(v string) observe.Setting {
		return observe.Setting{Value: logtail.Printable([]byte(v), 64), File: strings.Clone(file), Line: n}
	}
	switch c.section {
	case "pgbouncer":
		if _, wanted := c.values[key]; wanted {
			c.values[key] = setting(value)
		}
	case "databases":
		for word := range strings.FieldsSeq(value) {
			if size, ok := strings.CutPrefix(word, "pool_size="); ok && len(c.databases) < maxPools {
				c.databases = append(c.databases, database{logtail.Printable([]byte(strings.Trim(key, `"`)), 64), setting(strings.Trim(size, "'"))})
			}
		}
	}
}
