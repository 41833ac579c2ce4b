package nginx

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
	"golang.org/x/sys/unix"
)

// directive is one directive of the configuration with the place it was
// written; included files stand in the place of their include.
type directive struct {
	name  string
	args  []string
	file  string
	line  int
	block []*directive
}

func (d *directive) arg(i int) string {
	if i < len(d.args) {
		return d.args[i]
	}
	return ""
}

// problem says what of the configuration could not be understood.
type problem struct {
	file string
	line int
	text string
}

// configFile is a file that was read, for the question whether it has been
// changed since the workers started.
type configFile struct {
	path    string
	changed time.Time // the later of mtime and ctime: a file moved into place keeps its mtime
}

func lastChange(st *unix.Stat_t) time.Time {
	return time.Unix(0, max(st.Mtim.Nano(), st.Ctim.Nano()))
}

// Bounds of a configuration, next to its budget, which keeps a cycle, a generated
// monster or binary junk from taking the memory of the host.
const (
	maxFileBytes  = 16 << 20
	maxBlockDepth = 100  // of one file
	maxWords      = 1024 // of a directive
	maxProblems   = 64
	maxFiles      = 4096 // that are listed
)

// kept is what a directive that is kept takes of the budget, next to its words: it
// takes as much memory.
const kept = 4

type parser struct {
	b          *budget.Budget
	root       rootfs.Root
	confPrefix string // relative includes start here: the directory of the main file
	files      []configFile
	problems   []problem
	dropped    int // problems beyond maxProblems
	chain      []string
	parsed     map[string]parsed // files by name: a directive knows the one it stands in
	nodes      int64             // taken of the budget so far
}

// parsed is a file with all that it includes. The directives of a file that is
// included again are the same ones.
type parsed struct {
	list  []*directive
	nodes int64
}

func (p *parser) problem(file string, line int, format string, args ...any) {
	if len(p.problems) >= maxProblems {
		p.dropped++
		return
	}
	p.problems = append(p.problems, problem{file, line, fmt.Sprintf(format, args...)})
}

// take counts words and directives; false when there is no room for them.
func (p *parser) take(n int64) bool {
	p.nodes += n
	return p.b.Nodes(n) == nil
}

// readFile parses one file and all it includes.
func (p *parser) readFile(name string) ([]*directive, error) {
	if old, ok := p.parsed[name]; ok {
		p.take(old.nodes)
		return old.list, nil
	}
	text, st, err := p.root.ReadFile(name, maxFileBytes)
	if err != nil {
		return nil, err
	}
	if len(p.files) < maxFiles {
		p.files = append(p.files, configFile{name, lastChange(&st)})
	}
	p.chain = append(p.chain, name)
	before := p.nodes
	ds := p.parse(name, text)
	p.chain = p.chain[:len(p.chain)-1]
	if p.parsed == nil {
		p.parsed = map[string]parsed{}
	}
	p.parsed[name] = parsed{ds, p.nodes - before + 1}
	return ds, nil
}

// parse parses text as the contents of a file.
func (p *parser) parse(file, text string) []*directive {
	l := newLexer(text)
	ds, closed := p.block(l, file, 0)
	for closed {
		p.problem(file, l.line, "unexpected \"}\"")
		var more []*directive
		more, closed = p.block(l, file, 0)
		ds = append(ds, more...)
	}
	return ds
}

// block parses directives up to the "}" that closes the block (true) or to
// the end of the file (false).
func (p *parser) block(l *lexer, file string, depth int) (ds []*directive, closed bool) {
	var words []token
	for {
		t := l.next()
		if !p.take(1) {
			return ds, false
		}
		switch t.kind {
		case tokenWord:
			if len(words) < maxWords {
				words = append(words, t)
			} else if len(words) == maxWords && matters(words[0].text) {
				p.problem(file, t.line, "directive %q has more than %d words", rootfs.Clip(words[0].text), maxWords)
			}
			continue
		case tokenEOF:
			if len(words) > 0 {
				p.problem(file, words[0].line, "directive %q is not ended by \";\"", rootfs.Clip(words[0].text))
			}
			return ds, false
		case tokenClose:
			if len(words) > 0 {
				p.problem(file, words[0].line, "directive %q is not ended by \";\"", rootfs.Clip(words[0].text))
			}
			return ds, true
		}
		d := newDirective(file, t.line, words)
		words = words[:0]
		if matters(d.name) && !p.take(kept) {
			return ds, false
		}
		if t.kind == tokenOpen {
			p.openBlock(l, d, depth)
		}
		switch {
		case d.name == "":
			if t.kind == tokenOpen {
				p.problem(file, t.line, "unexpected \"{\"")
			}
		case d.name == "include" && t.kind == tokenEnd && len(d.args) == 1:
			ds = append(ds, p.include(d)...)
		case matters(d.name):
			ds = append(ds, d)
		}
	}
}

func newDirective(file string, line int, words []token) *directive {
	d := &directive{file: file, line: line}
	if len(words) == 0 {
		return d
	}
	d.name, d.line = words[0].text, words[0].line
	if !matters(d.name) {
		return d
	}
	// Copies: the text of the file need not stay for them.
	d.name = strings.Clone(d.name)
	d.args = make([]string, 0, len(words)-1)
	for _, w := range words[1:] {
		d.args = append(d.args, strings.Clone(w.text))
	}
	return d
}

// matters says whether anybody asks for a directive of that name, or for what is in
// its block. All others are passed over.
func matters(name string) bool {
	switch name {
	case "include", "worker_processes", "worker_rlimit_nofile", "events", "worker_connections", "http", "stream", "mail", "server", "location",
		"if", "limit_except", "listen", "upstream", "keepalive", "proxy_http_version", "proxy_set_header", "fastcgi_keep_conn",
		"error_log", "access_log", "log_format",
		"limit_req", "limit_conn", "limit_req_zone", "limit_conn_zone", "limit_req_status", "limit_conn_status":
		return true
	}
	return strings.HasSuffix(name, "_pass")
}

// openBlock parses what is inside the braces of a directive.
func (p *parser) openBlock(l *lexer, d *directive, depth int) {
	if strings.HasSuffix(d.name, "_by_lua_block") {
		if !l.skipLua() {
			p.problem(d.file, d.line, "the Lua block of %q has no end", rootfs.Clip(d.name))
		}
		return
	}
	if depth >= maxBlockDepth {
		p.problem(d.file, d.line, "more than %d nested blocks: the rest of the file is left out", maxBlockDepth)
		l.pos = len(l.text)
		return
	}
	block, closed := p.block(l, d.file, depth+1)
	if !closed && p.b.Err() == nil {
		p.problem(d.file, d.line, "block %q is not closed", rootfs.Clip(d.name))
	}
	if matters(d.name) {
		d.block = block
	}
}

// include reads the files an include names. Only a name without wildcards
// must exist (ngx_conf_include).
func (p *parser) include(d *directive) []*directive {
	name := d.args[0]
	if !path.IsAbs(name) {
		name = path.Join(p.confPrefix, name)
	}
	if p.b.Depth(len(p.chain)) != nil {
		return nil
	}
	names := []string{path.Clean(name)}
	if rootfs.HasMeta(name) {
		var err error
		if names, err = p.root.Glob(name); err != nil {
			p.problem(d.file, d.line, "include %s: %s", rootfs.Clip(name), rootfs.Plain(err))
			return nil
		}
	}
	var ds []*directive
	for _, n := range names {
		if slices.Contains(p.chain, n) {
			p.problem(d.file, d.line, "include %s: it includes itself", rootfs.Clip(n))
			continue
		}
		more, err := p.readFile(n)
		ds = append(ds, more...)
		if p.b.Err() != nil {
			break
		}
		if err != nil {
			p.problem(d.file, d.line, "include %s: %s", rootfs.Clip(n), rootfs.Plain(err))
		}
	}
	return ds
}
