package interpreter

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"

	"go.opentelemetry.io/ebpf-profiler/interpreter/interpreterconfig"
)

// runtimes are the interpreters that the library unwinds, with the binaries by
// which a process is known to run one, and the switch that turns them on.
var runtimes = []struct {
	binary *regexp.Regexp // base name
	enable func(*interpreterconfig.Config)
}{
	{regexp.MustCompile(`^(lib)?python[0-9]`), func(c *interpreterconfig.Config) { c.Python.Disabled = false }},
	{regexp.MustCompile(`^libjvm\.so`), func(c *interpreterconfig.Config) { c.Hotspot.Disabled = false }},
	{regexp.MustCompile(`^(php|libphp)`), func(c *interpreterconfig.Config) { c.PHP.Disabled = false }},
	{regexp.MustCompile(`^(node|nsolid|libnode)`), func(c *interpreterconfig.Config) { c.V8.Disabled = false }},
	{regexp.MustCompile(`^(ruby|libruby)`), func(c *interpreterconfig.Config) { c.Ruby.Disabled = false }},
	{regexp.MustCompile(`^(perl$|libperl)`), func(c *interpreterconfig.Config) { c.Perl.Disabled = false }},
	{regexp.MustCompile(`^libcoreclr\.so`), func(c *interpreterconfig.Config) { c.Dotnet.Disabled = false }},
	{regexp.MustCompile(`^beam\.smp`), func(c *interpreterconfig.Config) { c.BEAM.Disabled = false }},
}

// present turns on the interpreters that processes run now; all processes when
// none are given. Loading those for the others takes longer than all the rest.
func present(pids []int) interpreterconfig.Config {
	c := interpreterconfig.NoInterpreters()
	c.Go.Disabled = false // it needs no program of its own
	c.Go.Labels.Disabled = true
	if len(pids) == 0 {
		pids = processes()
	}
	met := map[string]bool{}
	for _, pid := range pids {
		maps, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "maps"))
		if err != nil {
			continue // ended, or a kernel thread
		}
		for line := range bytes.Lines(maps) {
			at := bytes.IndexByte(line, '/')
			if at < 0 || met[string(line[at:])] { // no copy
				continue
			}
			met[string(line[at:])] = true
			name := path.Base(string(bytes.TrimSpace(line[at:])))
			for _, r := range runtimes {
				if r.binary.MatchString(name) {
					r.enable(&c)
				}
			}
		}
	}
	return c
}

func processes() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
