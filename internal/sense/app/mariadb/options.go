package mariadb

import (
	"path"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
)

// Bounds of the option files, next to their budget.
const (
	maxDepth     = 10 // of includes, as the server's own (my_default.c)
	maxFileBytes = 1 << 20
	maxValue     = 4096 // bytes
)

// commandLine stands for the file of an option that was given as an argument.
const commandLine = "command line"

// options are the server's options by name, dashes as underscores.
type options struct {
	b        *budget.Budget
	root     rootfs.Root
	values   map[string]observe.Setting
	files    []string
	problems []string
	suffix   string // --defaults-group-suffix
}

// readOptions reads what the server read at its start: option files, then its
// own arguments, of which the last one counts.
func readOptions(b *budget.Budget, root rootfs.Root, args []string) *options {
	o := &options{b: b, root: root.With(b), values: map[string]observe.Setting{}}
	files := []string{"/etc/my.cnf", "/etc/mysql/my.cnf"}
	var extra []string
	for _, a := range args {
		name, value, _ := strings.Cut(a, "=")
		switch name {
		case "--no-defaults":
			files = nil
		case "--defaults-file":
			files = []string{value}
		case "--defaults-extra-file":
			extra = append(extra, value)
		case "--defaults-group-suffix":
			o.suffix = value
		}
	}
	if files != nil {
		files = append(files, extra...)
	}
	for _, f := range files {
		o.read(f, 0)
	}
	for i := 0; i < len(args); i++ {
		name, value, ok := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		if !strings.HasPrefix(args[i], "--") {
			if args[i] == "-P" && i+1 < len(args) {
				name, value, ok = "port", args[i+1], true
				i++
			} else {
				continue
			}
		} else if !ok && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			value = args[i+1]
			i++
		}
		o.set(name, observe.Setting{Value: value, File: commandLine})
	}
	return o
}

// Option tells where an option is written, by its name as SET GLOBAL has it, and
// the first of the option files that were read; both may be empty, and are where the
// files are over the budget.
func Option(b *budget.Budget, root rootfs.Root, args []string, name string) (where observe.Setting, main string) {
	o := readOptions(b, root, args)
	if b.Err() != nil {
		return where, main
	}
	if len(o.files) > 0 {
		main = o.files[0]
	}
	return o.values[name], main
}

// groups are those that the server reads; the ones with a version
// ([mariadb-10.11]) are taken for its own.
func (o *options) ours(group string) bool {
	group = strings.TrimSuffix(group, o.suffix)
	for _, g := range []string{"mysqld", "server", "mariadb", "mariadbd", "client-server", "galera"} {
		if group == g || strings.HasPrefix(group, g+"-") && len(group) > len(g)+1 && group[len(g)+1] >= '0' && group[len(g)+1] <= '9' {
			return true
		}
	}
	return false
}

func (o *options) read(name string, depth int) {
	if depth > maxDepth {
		o.problems = append(o.problems, name+": too many option files")
		return
	}
	text, _, err := o.root.ReadFile(name, maxFileBytes)
	if err != nil {
		if depth > 0 && o.b.Err() == nil {
			o.problems = append(o.problems, name+": "+rootfs.Plain(err))
		}
		return
	}
	if !slices.Contains(o.files, name) {
		o.files = append(o.files, name)
	}
	ours, n := false, 0
	for line := range strings.SplitSeq(text, "\n") {
		n++
		if o.b.Node() != nil {
			return
		}
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#' || line[0] == ';':
		case line[0] == '[':
			group, _, _ := strings.Cut(line[1:], "]")
			ours = o.ours(strings.TrimSpace(group))
		case line[0] == '!':
			o.include(line, depth)
		case ours:
			key, value, _ := strings.Cut(line, "=")
			if value = unquote(value); len(value) <= maxValue { // no longer one is of interest
				o.set(strings.TrimSpace(key), observe.Setting{Value: strings.Clone(value), File: name, Line: n})
			}
		}
	}
}

// include reads "!include FILE" and "!includedir DIR", which takes the files
// that end in .cnf.
func (o *options) include(line string, depth int) {
	if dir, ok := strings.CutPrefix(line, "!includedir"); ok {
		dir = strings.TrimSpace(dir)
		names, err := o.root.ReadDir(dir)
		if err != nil {
			o.problems = append(o.problems, dir+": "+rootfs.Plain(err))
			return
		}
		for _, n := range names {
			if o.b.Err() != nil {
				return
			}
			if strings.HasSuffix(n, ".cnf") {
				o.read(path.Join(dir, n), depth+1)
			}
		}
	} else if name, ok := strings.CutPrefix(line, "!include"); ok {
		o.read(strings.TrimSpace(name), depth+1)
	}
}

// unquote takes a comment behind a value away, and its quotes.
func unquote(v string) string {
	v = strings.TrimSpace(v)
	if len(v) >= 2 && (v[0] == '"' || v[0] == '\'') {
		if end := strings.IndexByte(v[1:], v[0]); end >= 0 {
			return v[1 : end+1]
		}
	}
	if i := strings.Index(v, " #"); i >= 0 {
		v = strings.TrimSpace(v[:i])
	}
	return v
}

func (o *options) set(name string, v observe.Setting) {
	name = strings.ToLower(strings.ReplaceAll(name, "-", "_"))
	name = strings.TrimPrefix(name, "loose_")
	if new, ok := aliases[name]; ok {
		name = new
	}
	for prefix, value := range map[string]string{"skip_": "0", "disable_": "0", "enable_": "1"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok && rest == "slow_query_log" {
			name, v.Value = rest, value
		}
	}
	o.values[name] = v
}

// aliases are the names that MariaDB 10.11 gave to older options.
var aliases = map[string]string{
	"log_slow_query": "slow_query_log", "log_slow_query_file": "slow_query_log_file", "log_slow_query_time": "long_query_time",
	"log_slow_queries": "slow_query_log",
}

// get is an option, or the server's default.
func (o *options) get(name, otherwise string) observe.Setting {
	if v, ok := o.values[name]; ok {
		return v
	}
	return observe.Setting{Value: otherwise, Default: true}
}

// on reads a switch; one without a value is on.
func on(s observe.Setting) bool {
	switch strings.ToLower(s.Value) {
	case "0", "off", "false", "no":
		return false
	}
	return true
}
