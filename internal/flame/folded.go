package flame

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// Folded writes one line for each stack: the process, the frames from the root
// to the leaf, and one value, as in "nginx;main;[libc.so.6+0x1234];do_syscall_64_[k] 12".
// It is the format of stackcollapse-perf.pl (github.com/brendangregg/FlameGraph):
// names are set apart by semicolons, those in names become colons, and frames of
// the kernel end in "_[k]". Processes are distinguished as in "nginx-123", threads
// as in "nginx-123/124", when o.Roots asks for that. Values are in the unit of
// their type. The error is w's, or an UnknownValue.
func Folded(w io.Writer, s *observe.Stacks, o Options) error {
	m := newModel(byFunction, s)
	value, err := o.value(m)
	if err != nil {
		return err
	}
	sums := map[string]int64{}
	for i := range m.samples {
		if x := &m.samples[i]; x.has(value) {
			line := m.folded(x, o.Roots)
			sums[line] = add(sums[line], x.values[0][value])
		}
	}
	lines := make([]string, 0, len(sums))
	for line := range sums {
		lines = append(lines, line)
	}
	slices.Sort(lines)
	b := bufio.NewWriter(w)
	for _, line := range lines {
		fmt.Fprintf(b, "%s %d\n", line, sums[line])
	}
	return b.Flush()
}

// noSemicolons keeps the frames of a line apart.
var noSemicolons = strings.NewReplacer(";", ":")

func (m *model) folded(s *sample, roots Roots) string {
	var parts []string
	for at := s.node; at > 0; at = m.nodes[at].parent {
		f := &m.functions[m.nodes[at].function]
		name := noSemicolons.Replace(f.Name)
		if f.Kind == observe.FrameKernel {
			name += "_[k]"
		}
		parts = append(parts, name)
	}
	t := m.threads[s.thread]
	root := t.comm
	switch roots {
	case RootProcess:
		root = fmt.Sprintf("%s-%d", t.comm, t.pid)
	case RootThread:
		root = fmt.Sprintf("%s-%d/%d", t.comm, t.pid, t.tid)
	}
	parts = append(parts, noSemicolons.Replace(root))
	slices.Reverse(parts)
	return strings.Join(parts, ";")
}
