package postgres

import (
	"math"
	"path"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
)

// Bounds of the configuration, next to its budget.
const (
	maxDepth     = 10 // of includes, as the server's own (CONF_FILE_MAX_DEPTH)
	maxFileBytes = 1 << 20
	maxProblems  = 64
)

const commandLine = "command line"

// config is the settings as the server read them, by lower-case name. The last
// place where one is written counts: files, postgresql.auto.conf, arguments.
type config struct {
	b        *budget.Budget
	root     rootfs.Root
	values   map[string]observe.Setting
	files    []string
	chain    []string // that are being read
	problems []string
}

// read takes up one file; what it includes is taken up where it says so.
func (c *config) read(name string, depth int) error {
	text, _, err := c.root.ReadFile(name, maxFileBytes)
	if err != nil {
		return err
	}
	if !slices.Contains(c.files, name) {
		c.files = append(c.files, name)
	}
	c.chain = append(c.chain, name)
	defer func() { c.chain = c.chain[:len(c.chain)-1] }()
	n := 0
	for line := range strings.SplitSeq(text, "\n") {
		n++
		if err := c.b.Node(); err != nil {
			return err
		}
		key, value := assignment(line)
		switch key {
		case "":
		case "include", "include_if_exists", "include_dir":
			c.include(key, path.Dir(name), value, depth)
		default:
			c.values[key] = observe.Setting{Value: strings.Clone(value), File: name, Line: n}
		}
	}
	return nil
}

func (c *config) include(how, dir, name string, depth int) {
	if !path.IsAbs(name) {
		name = path.Join(dir, name)
	}
	if depth >= maxDepth {
		c.problem(name + ": too many files are included")
		return
	}
	names := []string{name}
	if how == "include_dir" {
		names = nil
		list, err := c.root.ReadDir(name)
		if err != nil {
			c.problem(name + ": " + rootfs.Plain(err))
		}
		for _, n := range list {
			if strings.HasSuffix(n, ".conf") && n[0] != '.' {
				names = append(names, path.Join(name, n))
			}
		}
	}
	for _, n := range names {
		if slices.Contains(c.chain, n) { // the server itself would read it again, up to its bound, and not start
			c.problem(n + ": it includes itself")
			continue
		}
		err := c.read(n, depth+1)
		if c.b.Err() != nil {
			return
		}
		if err != nil && how != "include_if_exists" {
			c.problem(n + ": " + rootfs.Plain(err))
		}
	}
}

func (c *config) problem(text string) {
	if len(c.problems) < maxProblems {
		c.problems = append(c.problems, text)
	}
}

// assignment reads "name = value # comment": the equals sign may be missing, a
// value may be quoted, a quote in it doubled.
func assignment(line string) (key, value string) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' {
		return "", ""
	}
	i := strings.IndexAny(line, " \t=")
	if i <= 0 {
		return "", ""
	}
	key = strings.ToLower(line[:i])
	rest := strings.TrimLeft(line[i:], " \t")
	rest = strings.TrimLeft(strings.TrimPrefix(rest, "="), " \t")
	if rest != "" && rest[0] == '\'' {
		var b strings.Builder
		for j := 1; j < len(rest); j++ {
			switch {
			case rest[j] == '\'' && j+1 < len(rest) && rest[j+1] == '\'', rest[j] == '\\' && j+1 < len(rest):
				j++
				b.WriteByte(rest[j])
			case rest[j] == '\'':
				return key, b.String()
			default:
				b.WriteByte(rest[j])
			}
		}
		return key, b.String()
	}
	value, _, _ = strings.Cut(rest, "#")
	return key, strings.TrimSpace(value)
}

// arguments takes up what the postmaster was started with.
func (c *config) arguments(args []string) {
	short := map[string]string{"-N": "max_connections", "-p": "port", "-k": "unix_socket_directories", "-h": "listen_addresses", "-D": "data_directory"}
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "-c" && i+1 < len(args):
			i++
			c.argument(args[i])
		case strings.HasPrefix(a, "--"):
			c.argument(a[2:])
		case len(a) == 2 && short[a] != "" && i+1 < len(args):
			i++
			c.values[short[a]] = observe.Setting{Value: args[i], File: commandLine}
		case len(a) > 2 && a[:2] == "-c":
			c.argument(a[2:])
		case len(a) > 2 && short[a[:2]] != "":
			c.values[short[a[:2]]] = observe.Setting{Value: a[2:], File: commandLine}
		}
	}
}

func (c *config) argument(text string) {
	if key, value, ok := strings.Cut(text, "="); ok {
		c.values[strings.ToLower(strings.ReplaceAll(key, "-", "_"))] = observe.Setting{Value: value, File: commandLine}
	}
}

func (c *config) get(name, otherwise string) observe.Setting {
	if v, ok := c.values[name]; ok {
		return v
	}
	return observe.Setting{Value: otherwise, Default: true}
}

func on(s observe.Setting) bool {
	switch strings.ToLower(s.Value) {
	case "on", "true", "yes", "1", "t", "y":
		return true
	}
	return false
}

// milliseconds reads a time as PostgreSQL writes it: without a unit, ms. -1
// means switched off. It takes no more than 24 days (INT_MAX).
func milliseconds(text string) (ms float64, ok bool) {
	text = strings.TrimSpace(text)
	end := strings.LastIndexAny(text, "0123456789.") + 1
	unit := map[string]float64{"": 1, "us": 1e-3, "ms": 1, "s": 1e3, "min": 60e3, "h": 3600e3, "d": 86400e3}
	factor, ok := unit[strings.TrimSpace(text[end:])]
	if !ok {
		return 0, false
	}
	n, err := parseFloat(text[:end])
	ms = n * factor
	return ms, err == nil && math.Abs(ms) <= math.MaxInt32
}
