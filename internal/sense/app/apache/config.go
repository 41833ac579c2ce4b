package apache

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
	"github.com/slowray/slowray/internal/sense/app/pool"
)

// Bounds of a configuration.
const (
	maxFiles   = 2000
	maxDepth   = 20
	maxListens = 256
)

type value struct {
	text, file string
	line       int
}

func (v value) setting() observe.Setting {
	return observe.Setting{Value: v.text, File: v.file, Line: v.line}
}

// parser reads the directives of interest, by their names in lower case. The
// last one counts, as in httpd.
type parser struct {
	in      *pool.Instance
	root    string
	defines map[string]string
	modules map[string]bool // loaded, or the MPM
	values  map[string]value
	listens []observe.AppListen
	read    int
	chain   []string
}

var wanted = []string{"maxrequestworkers", "maxclients", "serverlimit", "threadsperchild", "listenbacklog", "errorlog"}

// file reads one file and what it includes.
func (c *parser) file(name string, depth int) {
	if depth > maxDepth || c.read >= maxFiles || slices.Contains(c.chain, name) {
		c.in.Gap(name, true, "too many files, or a file that includes itself")
		return
	}
	text, err := c.in.ReadFile(name)
	if err != nil {
		c.in.Gap(name, c.read > 0, "the configuration of httpd (pid %d) cannot be read: %s", c.in.PID, rootfs.Plain(err))
		return
	}
	c.read++
	c.chain = append(c.chain, name)
	defer func() { c.chain = c.chain[:len(c.chain)-1] }()
	var sections []section
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		at := i + 1
		line := strings.TrimSpace(lines[i])
		for strings.HasSuffix(line, "\\") && i+1 < len(lines) {
			i++
			line = strings.TrimSuffix(line, "\\") + strings.TrimSpace(lines[i])
		}
		if line == "" || line[0] == '#' {
			continue
		}
		if line[0] == '<' {
			sections = c.bracket(sections, line)
			continue
		}
		if slices.ContainsFunc(sections, func(s section) bool { return s.skipped }) {
			continue
		}
		inside := slices.ContainsFunc(sections, func(s section) bool { return s.scope })
		c.directive(words(c.expand(line)), value{file: name, line: at}, inside, depth)
	}
}

// section is one that is open: skipped when its condition does not hold, a
// scope when what stands in it is not for the whole server.
type section struct{ skipped, scope bool }

func (c *parser) bracket(open []section, line string) []section {
	if strings.HasPrefix(line, "</") {
		return open[:max(0, len(open)-1)]
	}
	w := words(strings.Trim(line, "<>"))
	if len(w) == 0 {
		return open
	}
	arg := ""
	if len(w) > 1 {
		arg = w[1]
	}
	not := strings.HasPrefix(arg, "!")
	arg = strings.TrimPrefix(arg, "!")
	switch strings.ToLower(w[0]) {
	case "ifmodule":
		return append(open, section{skipped: c.loaded(arg) == not})
	case "ifdefine":
		_, ok := c.defines[arg]
		return append(open, section{skipped: ok == not})
	case "ifversion", "iffile", "ifdirective", "ifsection":
		return append(open, section{})
	}
	return append(open, section{scope: true})
}

// loaded is sure only of MPMs. Others are loaded where a LoadModule was seen,
// and those that are built in (mod_so.c, core.c) are named by their source.
func (c *parser) loaded(module string) bool {
	if strings.HasPrefix(module, "mpm_") || slices.Contains([]string{"prefork.c", "worker.c", "event.c"}, module) {
		return c.modules[module]
	}
	return c.modules[module] || strings.HasSuffix(module, ".c")
}

func (c *parser) directive(w []string, v value, inside bool, depth int) {
	if len(w) < 2 {
		return
	}
	name := strings.ToLower(w[0])
	v.text = w[1]
	switch {
	case name == "define":
		c.defines[w[1]] = ""
		if len(w) > 2 {
			c.defines[w[1]] = w[2]
		}
	case name == "loadmodule":
		c.modules[w[1]] = true
		if len(w) > 2 {
			c.modules[strings.TrimSuffix(path.Base(w[2]), ".so")+".c"] = true
		}
	case name == "serverroot" && !inside:
		c.root = w[1]
	case name == "include" || name == "includeoptional":
		c.include(w[1], depth)
	case name == "listen" && !inside && len(c.listens) < maxListens:
		c.listens = append(c.listens, listen(w[1]))
	case slices.Contains(wanted, name) && !inside:
		if name == "maxclients" {
			name = "maxrequestworkers"
		}
		c.values[name] = v
	}
}

func (c *parser) include(name string, depth int) {
	name = c.in.Abs(c.root, name)
	if !rootfs.HasMeta(name) {
		if st, err := c.in.Root.Stat(name); err == nil && st.Mode&0o170000 == 0o040000 {
			name = path.Join(name, "*")
		} else {
			c.file(name, depth+1)
			return
		}
	}
	found, err := c.in.Root.Glob(name)
	if err != nil {
		c.in.Gap(name, true, "include: %s", rootfs.Plain(err))
		return
	}
	for _, f := range found {
		c.file(f, depth+1)
	}
}

// expand replaces ${NAME} by a Define or a variable of the environment.
func (c *parser) expand(s string) string {
	var out strings.Builder
	for range 64 {
		before, rest, ok := strings.Cut(s, "${")
		name, after, closed := strings.Cut(rest, "}")
		out.WriteString(before)
		if !ok || !closed {
			break
		}
		if v, ok := c.defines[name]; ok {
			out.WriteString(v)
		} else {
			out.WriteString(c.in.Env(name))
		}
		s = after
	}
	return out.String()
}

// words splits at spaces outside quotes.
func words(s string) []string {
	var out []string
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimSpace(s) {
		if s[0] == '"' || s[0] == '\'' {
			text, rest, _ := strings.Cut(s[1:], s[:1])
			out, s = append(out, text), rest
			continue
		}
		i := strings.IndexAny(s, " \t")
		if i < 0 {
			return append(out, s)
		}
		out, s = append(out, s[:i]), s[i:]
	}
	return out
}

// listen reads "80", "1.2.3.4:80", "[::]:80"; the port is 0 when it is none.
func listen(s string) observe.AppListen {
	addr, port := "", s
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		addr, port = strings.Trim(s[:i], "[]"), s[i+1:]
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535 {
		return observe.AppListen{}
	}
	return observe.AppListen{Addr: addr, Port: n}
}
