package nginx

import (
	"path"
	"slices"
	"strings"
)

const (
	whatError  = "error"
	whatAccess = "access"
)

// logSpec is one log file as the configuration names it.
type logSpec struct {
	path     string // inside the root; or as written when there is a problem
	what     string
	formats  []*format // access: those it is written in
	counted  bool      // access: its lines stand for requests not counted elsewhere
	buffered bool      // access: written in blocks, so lines come late
	problem  string    // why it cannot be followed
}

type logSet struct {
	c     *config
	whole bool // the configuration was read to its end
	list  []*logSpec
	index map[string]*logSpec
}

// Bounds of the logs of an instance.
const (
	maxSpecs       = 4 * maxLogs
	maxFormats     = 256
	maxFormatsOf   = 8 // one log
	maxFormatBytes = 16 << 10
)

// logs finds all logs, error logs first. Of a configuration that was not read to its
// end it gives those that it names, not those that nginx takes where none is named.
func (c *config) logs(defaultError string, whole bool) []*logSpec {
	s := &logSet{c: c, whole: whole, index: map[string]*logSpec{}}
	if whole && find(c.main, "error_log") == nil {
		s.errorLog(defaultError)
	}
	s.errorLogs(c.main)
	for _, top := range c.main {
		if top.name == "http" {
			s.accessLogs(top)
		}
	}
	return s.list
}

func (s *logSet) add(spec *logSpec) *logSpec {
	key := spec.what + "|" + spec.path
	if old := s.index[key]; old != nil {
		return old
	}
	if len(s.list) < maxSpecs {
		s.index[key] = spec
		s.list = append(s.list, spec)
	}
	return spec
}

func (s *logSet) full(p string) string {
	if !path.IsAbs(p) {
		p = path.Join(s.c.prefix, p)
	}
	return path.Clean(p)
}

func (s *logSet) errorLogs(ds []*directive) {
	for _, d := range ds {
		if d.name == "error_log" && len(d.args) > 0 {
			s.errorLog(d.args[0])
		}
		s.errorLogs(d.block)
	}
}

func (s *logSet) errorLog(name string) {
	spec := &logSpec{path: name, what: whatError}
	switch {
	case name == "stderr":
		spec.problem = "the error log goes to standard error, not to a file"
	case strings.HasPrefix(name, "syslog:"):
		spec.problem = "the error log goes to syslog, not to a file"
	case strings.HasPrefix(name, "memory:"):
		spec.problem = "the error log goes to a memory buffer, not to a file"
	default:
		spec.path = s.full(name)
	}
	s.add(spec)
}

func (s *logSet) accessLogs(http *directive) {
	formats := map[string]*format{"combined": combined}
	for _, d := range http.block {
		if d.name == "log_format" && len(d.args) > 1 && len(formats) < maxFormats {
			formats[d.args[0]] = compileFormat(joinFormat(d.args[1:]))
		}
	}
	own := s.level(http.block, formats)
	for _, d := range http.block {
		if d.name == "server" {
			s.level(d.block, formats)
			s.below(d.block, formats)
		}
	}
	// A server that names no log, in an http block that names none, has the
	// compiled-in one (ngx_http_log_merge_loc_conf).
	if s.whole && !own && hasServerWithoutLog(http.block) {
		spec := s.add(&logSpec{path: s.full(s.c.build.accessLog), what: whatAccess})
		spec.counted = true
		spec.addFormat(combined)
	}
}

func hasServerWithoutLog(ds []*directive) bool {
	for _, d := range ds {
		if d.name == "server" && find(d.block, "access_log") == nil {
			return true
		}
	}
	return false
}

func (s *logSet) below(ds []*directive, formats map[string]*format) {
	for _, d := range ds {
		switch d.name {
		case "location", "if", "limit_except":
			s.level(d.block, formats)
			s.below(d.block, formats)
		}
	}
}

// level adds the access logs of one level, and says whether it has any. Each request is written to all logs
// of its level, so only one of them is counted: the first that can be read and
// has no condition.
func (s *logSet) level(ds []*directive, formats map[string]*format) bool {
	var specs []*logSpec
	best := -1
	any, bestConditional := false, false
	for _, d := range ds {
		if d.name != "access_log" || len(d.args) == 0 {
			continue
		}
		any = true
		if d.args[0] == "off" {
			continue
		}
		spec, conditional := s.accessLog(d, formats)
		specs = append(specs, spec)
		if spec.problem == "" && (best < 0 || bestConditional && !conditional) {
			best, bestConditional = len(specs)-1, conditional
		}
	}
	if best >= 0 {
		specs[best].counted = true
	}
	return any
}

func (s *logSet) accessLog(d *directive, formats map[string]*format) (spec *logSpec, conditional bool) {
	spec = &logSpec{path: d.args[0], what: whatAccess}
	switch {
	case strings.HasPrefix(spec.path, "syslog:"):
		spec.problem = "the access log goes to syslog, not to a file"
	case strings.Contains(spec.path, "$"):
		spec.problem = "the path of the access log depends on the request"
	default:
		spec.path = s.full(spec.path)
	}
	f := combined
	for i, a := range d.args[1:] {
		switch {
		case a == "gzip" || strings.HasPrefix(a, "gzip="):
			spec.problem = "the access log is written compressed"
		case strings.HasPrefix(a, "buffer="), strings.HasPrefix(a, "flush="):
			spec.buffered = true
		case strings.HasPrefix(a, "if="):
			conditional = true
		case i == 0:
			f = formats[a]
		}
	}
	buffered := spec.buffered
	spec = s.add(spec)
	spec.buffered = spec.buffered || buffered
	spec.addFormat(f)
	return spec, conditional
}

func (s *logSpec) addFormat(f *format) {
	if f != nil && len(s.formats) < maxFormatsOf && !slices.Contains(s.formats, f) {
		s.formats = append(s.formats, f)
	}
}

// joinFormat is the text of a log_format: its strings, without escape=.
func joinFormat(args []string) string {
	if len(args) > 0 && strings.HasPrefix(args[0], "escape=") {
		args = args[1:]
	}
	text := strings.Join(args, "")
	return text[:min(len(text), maxFormatBytes)]
}
