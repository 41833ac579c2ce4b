package apache

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
	"github.com/slowray/slowray/internal/sense/app/pool"
)

// Bounds of a configuration, next to its budget. httpd takes lines of up to 16 MB
// (VARBUF_MAX_LEN, server/util.c): nobody writes such.
const (
	maxListens = 256
	maxLine    = 64 << 10
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
	b       *budget.Budget
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
	if slices.Contains(c.chain, name) {
		c.in.Gap(name, true, "it includes itself")
		return
	}
	if c.b.Depth(depth) != nil {
		return
	}
	text, err := c.in.ReadFile(name)
	if err != nil {
		if c.b.Err() == nil {
			c.in.Gap(name, c.read > 0, "the configuration of httpd (pid %d) cannot be read: %s", c.in.PID, rootfs.Plain(err))
		}
		return
	}
	c.read++
	c.chain = append(c.chain, name)
	defer func() { c.chain = c.chain[:len(c.chain)-1] }()
	var open sections
	lines := lines{rest: text}
	for c.b.Node() == nil && lines.next() {
		line := lines.text
		switch {
		case lines.long:
			c.in.Gap(fmt.Sprintf("%s:%d", name, lines.n), true, "a line of more than %d bytes was left out", maxLine)
		case line == "" || line[0] == '#':
		case line[0] == '<':
			c.bracket(&open, line)
		case open.skipped == 0:
			expanded, ok := c.expand(line)
			if !ok && c.b.Err() == nil {
				c.in.Gap(fmt.Sprintf("%s:%d", name, lines.n), true, "a line that its variables make longer than %d bytes was left out", maxLine)
			}
			c.directive(words(expanded), value{file: name, line: lines.n}, open.scopes > 0, depth)
		}
	}
}

// lines are those of a file; one that ends in a backslash goes on.
type lines struct {
	rest string
	text string
	n    int  // of the present one, its first, from 1
	long bool // it is longer than maxLine: its text is not given
	end  int  // of the present one, its last
}

func (l *lines) next() bool {
	if l.rest == "" {
		return false
	}
	l.n, l.long, l.text = l.end+1, false, ""
	var whole strings.Builder
	for more := true; more; {
		var part string
		part, l.rest, _ = strings.Cut(l.rest, "\n")
		l.end++
		part = strings.TrimSpace(part)
		part, more = strings.CutSuffix(part, "\\")
		more = more && l.rest != ""
		if l.long = l.long || whole.Len()+len(part) > maxLine; !l.long {
			whole.WriteString(part)
		}
	}
	if !l.long {
		l.text = strings.TrimSpace(whole.String())
	}
	return true
}

// section is one that is open: skipped when its condition does not hold, a
// scope when what stands in it is not for the whole server.
type section struct{ skipped, scope bool }

// sections are those that are open.
type sections struct {
	list            []section
	skipped, scopes int
}

func (s *sections) open(n section) { s.list = append(s.list, n); s.count(n, 1) }

func (s *sections) close() {
	if n := len(s.list) - 1; n >= 0 {
		s.count(s.list[n], -1)
		s.list = s.list[:n]
	}
}

func (s *sections) count(n section, by int) {
	if n.skipped {
		s.skipped += by
	}
	if n.scope {
		s.scopes += by
	}
}

func (c *parser) bracket(open *sections, line string) {
	if strings.HasPrefix(line, "</") {
		open.close()
		return
	}
	w := words(strings.Trim(line, "<>"))
	if len(w) == 0 {
		return
	}
	arg := ""
	if len(w) > 1 {
		arg = w[1]
	}
	not := strings.HasPrefix(arg, "!")
	arg = strings.TrimPrefix(arg, "!")
	switch strings.ToLower(w[0]) {
	case "ifmodule":
		open.open(section{skipped: c.loaded(arg) == not})
	case "ifdefine":
		_, ok := c.defines[arg]
		open.open(section{skipped: ok == not})
	case "ifversion", "iffile", "ifdirective", "ifsection":
		open.open(section{})
	default:
		open.open(section{scope: true})
	}
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
		if c.b.Err() == nil {
			c.in.Gap(name, true, "include: %s", rootfs.Plain(err))
		}
		return
	}
	for _, f := range found {
		if c.b.Err() != nil {
			return
		}
		c.file(f, depth+1)
	}
}

// expand replaces ${NAME} by a Define or a variable of the environment; false for a
// line that grows too long.
func (c *parser) expand(s string) (string, bool) {
	var out strings.Builder
	for range 64 {
		before, rest, ok := strings.Cut(s, "${")
		name, after, closed := strings.Cut(rest, "}")
		out.WriteString(before)
		if !ok || !closed {
			break
		}
		v, ok := c.defines[name]
		if !ok {
			v = c.in.Env(name)
		}
		if c.b.Unpack(int64(len(v))) != nil || out.Len()+len(v) > maxLine {
			return "", false
		}
		out.WriteString(v)
		s = after
	}
	return out.String(), true
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
	n := pool.Port(port)
	if n == 0 {
		return observe.AppListen{}
	}
	return observe.AppListen{Addr: addr, Port: n}
}
