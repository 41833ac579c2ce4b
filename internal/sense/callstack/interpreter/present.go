package interpreter

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"

	"go.opentelemetry.io/ebpf-profiler/interpreter/interpreterconfig"

	"github.com/slowray/slowray/internal/budget"
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

// alone are the binaries of interpreters whose stacks nothing else reads: those of Python
// are read from its memory.
var alone = regexp.MustCompile(`^(libjvm\.so|php|libphp|node|nsolid|libnode)`)

// Alone says whether a process runs Java, PHP or Node.
func Alone(pid int) bool {
	maps, err := budget.Head(filepath.Join("/proc", strconv.Itoa(pid), "maps"), maxMaps)
	if err != nil {
		return false
	}
	for line := range bytes.Lines(maps) {
		if at := bytes.IndexByte(line, '/'); at >= 0 && alone.MatchString(path.Base(string(bytes.TrimSpace(line[at:])))) {
			return true
		}
	}
	return false
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
		maps, err := budget.Head(filepath.Join("/proc", strconv.Itoa(pid), "maps"), maxMaps)
		if err != nil {
			continue // ended, or a kernel thread
		}
		enable(&c, maps, met)
	}
	return c
}

// Bounds of what processes can make of their maps (proc_pid_maps(5)): a program may map
// the same few bytes of many files with long names.
const (
	maxMaps = 4 << 20 // bytes of one process
	maxMet  = 1 << 16 // files of all of them
)

// enable turns on the interpreters of a process with this memory map. met are the files
// that were seen before.
func enable(c *interpreterconfig.Config, maps []byte, met map[string]bool) {
	for line := range bytes.Lines(maps) {
		at := bytes.IndexByte(line, '/')
		if at < 0 || met[string(line[at:])] { // no copy
			continue
		}
		if len(met) < maxMet {
			met[string(line[at:])] = true
		}
		name := path.Base(string(bytes.TrimSpace(line[at:])))
		for _, r := range runtimes {
			if r.binary.MatchString(name) {
				r.enable(c)
			}
		}
	}
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
