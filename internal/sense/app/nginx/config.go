package nginx

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

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

// Bounds of a configuration. Real ones stay far below; they keep a cycle, a
// generated monster or binary junk from taking the memory of the host.
const (
	maxIncludeDepth = 32
	maxFiles        = 4096
	maxFileBytes    = 16 << 20
	maxTotalBytes   = 64 << 20
	maxBlockDepth   = 100
	maxDirectives   = 500_000
	maxProblems     = 64
)

type parser struct {
	root       rootfs.Root
	confPrefix string // relative includes start here: the directory of the main file
	files      []configFile
	problems   []problem
	dropped    int // problems beyond maxProblems
	chain      []string
	bytes      int64
	directives int
}

func (p *parser) problem(file string, line int, format string, args ...any) {
	if len(p.problems) >= maxProblems {
		p.dropped++
		return
	}
	p.problems = append(p.problems, problem{file, line, fmt.Sprintf(format, args...)})
}

// readFile parses one file and all it includes.
func (p *parser) readFile(name string) ([]*directive, error) {
	text, st, err := p.root.ReadFile(name, min(maxFileBytes, maxTotalBytes-p.bytes))
	if err != nil {
		return nil, err
	}
	p.bytes += int64(len(text))
	p.files = append(p.files, configFile{name, lastChange(&st)})
	p.chain = append(p.chain, name)
	ds := p.parse(name, string(text))
	p.chain = p.chain[:len(p.chain)-1]
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
		switch t.kind {
		case tokenWord:
			words = append(words, t)
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
		case p.directives >= maxDirectives:
			if p.directives == maxDirectives {
				p.problem(file, d.line, "more than %d directives: the rest is left out", maxDirectives)
			}
			p.directives++
		default:
			p.directives++
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
	for _, w := range words[1:] {
		d.args = append(d.args, w.text)
	}
	return d
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
	if !closed && depth < maxBlockDepth {
		p.problem(d.file, d.line, "block %q is not closed", rootfs.Clip(d.name))
	}
	switch d.name {
	case "map", "types", "geo", "split_clients", "charset_map", "match":
		// Lists of values, often long; only their files matter.
		p.directives = max(0, p.directives-len(block))
	default:
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
	if len(p.chain) > maxIncludeDepth {
		p.problem(d.file, d.line, "include %s: nested deeper than %d", rootfs.Clip(name), maxIncludeDepth)
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
		if len(p.files) >= maxFiles {
			p.problem(d.file, d.line, "include %s: more than %d files", rootfs.Clip(n), maxFiles)
			break
		}
		more, err := p.readFile(n)
		if err != nil {
			p.problem(d.file, d.line, "include %s: %s", rootfs.Clip(n), rootfs.Plain(err))
			continue
		}
		ds = append(ds, more...)
	}
	return ds
}
