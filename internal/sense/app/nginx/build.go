package nginx

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
)

// build is what was fixed when the binary was compiled.
type build struct {
	prefix    string // ends in "/"
	confPath  string
	errorLog  string
	accessLog string
	version   [3]int // of nginx; zero when not found
}

// defaultBuild is a distribution's usual layout, for a binary that cannot be
// read.
func defaultBuild() build {
	return build{prefix: "/etc/nginx/", confPath: "/etc/nginx/nginx.conf",
		errorLog: "/var/log/nginx/error.log", accessLog: "/var/log/nginx/access.log"}
}

const (
	maxBinary  = 64 << 20
	scanBuffer = 1 << 20
	maxArgs    = 64 << 10
)

// readBuild finds the configure arguments that nginx carries for "nginx -V"
// in the text of the executable, which is never run.
func readBuild(b *budget.Budget, root rootfs.Root, procRoot string, pid int) (build, error) {
	part := b.Sub(budget.Limits{Wall: b.TimeLeft() / 4})
	f, err := root.With(part).OpenLink(filepath.Join(procRoot, strconv.Itoa(pid), "exe"))
	if err != nil {
		return defaultBuild(), err
	}
	defer f.Close()
	args, version, err := scanBuild(io.LimitReader(part.Reader(f), maxBinary))
	if err != nil {
		return defaultBuild(), cmp.Or(part.Err(), err)
	}
	return parseBuild(args, version), nil
}

var (
	markArgs    = []byte("configure arguments:")
	markVersion = []byte("nginx/")
)

var errNoArguments = errors.New("no configure arguments in the executable")

// scanBuild looks for the two strings in a stream of bytes. The overlap of the
// buffers is longer than either string may be.
func scanBuild(r io.Reader) (args, version string, err error) {
	buf := make([]byte, scanBuffer)
	have := 0
	for {
		n, err := io.ReadFull(r, buf[have:])
		data, last := buf[:have+n], err != nil
		if args == "" {
			args = stringAfter(data, markArgs, maxArgs)
		}
		if version == "" {
			version = findVersion(data)
		}
		if args != "" && version != "" {
			return args, version, nil
		}
		if last {
			break
		}
		have = copy(buf, data[len(data)-maxArgs-len(markArgs):])
	}
	if args == "" {
		return "", version, errNoArguments
	}
	return args, version, nil
}

func stringAfter(data, mark []byte, max int) string {
	for {
		i := bytes.Index(data, mark)
		if i < 0 {
			return ""
		}
		data = data[i+len(mark):]
		end := bytes.IndexByte(data[:min(len(data), max)], 0)
		if end >= 0 && bytes.Contains(data[:end], []byte("--")) {
			return string(data[:end])
		}
	}
}

func findVersion(data []byte) string {
	for {
		i := bytes.Index(data, markVersion)
		if i < 0 {
			return ""
		}
		data = data[i+len(markVersion):]
		end := 0
		for end < len(data) && end < 16 && (data[end] == '.' || data[end] >= '0' && data[end] <= '9') {
			end++
		}
		if end >= 5 && bytes.Count(data[:end], []byte(".")) >= 2 {
			return string(data[:end])
		}
	}
}

// parseBuild reads the configure arguments, with the defaults of auto/options
// and auto/init for what is not given.
func parseBuild(args, version string) build {
	var b build
	for _, a := range splitQuoted(args) {
		key, value, ok := strings.Cut(a, "=")
		if !ok {
			continue
		}
		switch key {
		case "--prefix":
			b.prefix = value
		case "--conf-path":
			b.confPath = value
		case "--error-log-path":
			b.errorLog = value
		case "--http-log-path":
			b.accessLog = value
		}
	}
	if b.prefix == "" {
		b.prefix = "/usr/local/nginx"
	}
	b.prefix = strings.TrimRight(b.prefix, "/") + "/"
	def := func(p *string, value string) {
		if *p == "" {
			*p = value
		}
		if !path.IsAbs(*p) && *p != "stderr" {
			*p = b.prefix + *p
		}
	}
	def(&b.confPath, "conf/nginx.conf")
	def(&b.errorLog, "logs/error.log")
	def(&b.accessLog, "logs/access.log")
	for i, part := range strings.SplitN(version, ".", 4) {
		if i < len(b.version) {
			b.version[i], _ = strconv.Atoi(part)
		}
	}
	return b
}

// splitQuoted splits at spaces outside single and double quotes, which are
// dropped, as in --with-cc-opt='-g -O2'.
func splitQuoted(s string) []string {
	var out []string
	var word strings.Builder
	quote, in := byte(0), false
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, in = c, true
		case quote == 0 && isSpace(c):
			if in {
				out = append(out, word.String())
				word.Reset()
				in = false
			}
		default:
			word.WriteByte(c)
			in = true
		}
	}
	if in {
		out = append(out, word.String())
	}
	return out
}

// atLeast compares the version of the binary; an unknown version is old.
func (b build) atLeast(major, minor, patch int) bool {
	want := [3]int{major, minor, patch}
	for i := range want {
		if b.version[i] != want[i] {
			return b.version[i] > want[i]
		}
	}
	return true
}
