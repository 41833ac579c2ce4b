package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// counted has the kernel count the runs of BPF programs, of those that were not
// there before. It ends when its descriptor is closed.
type counted struct {
	stats io.Closer
	first ebpf.ProgramID
}

// countPrograms begins to count. It needs CAP_SYS_ADMIN and Linux 5.8.
func countPrograms() (*counted, error) {
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		return nil, fmt.Errorf("the kernel does not count what programs cost: %w", err)
	}
	c := &counted{stats: stats}
	for id := ebpf.ProgramID(0); ; c.first = id {
		next, err := ebpf.ProgramGetNextID(id)
		if err != nil {
			break
		}
		id = next
	}
	return c, nil
}

// look tells what the programs that are new have cost until now. They are only
// slowray's own if nobody else loaded some meanwhile.
func (c *counted) look(elapsed time.Duration) []Program {
	list := []Program{}
	at := map[string]int{} // what is loaded twice, as for reads and for writes, is one of its name
	if c == nil || elapsed <= 0 {
		return list
	}
	for id := c.first; ; {
		next, err := ebpf.ProgramGetNextID(id)
		if err != nil {
			break
		}
		id = next
		p, err := cost(id, elapsed)
		if err != nil || p.Calls == 0 {
			continue
		}
		if i, ok := at[p.Name]; ok {
			list[i].add(&p)
		} else {
			at[p.Name] = len(list)
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b Program) int {
		return cmp.Or(cmp.Compare(b.CPUShare, a.CPUShare), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// add counts another program of the same name.
func (p *Program) add(other *Program) {
	calls := p.Calls + other.Calls
	p.EachNS = (p.EachNS*float64(p.Calls) + other.EachNS*float64(other.Calls)) / float64(calls)
	p.Calls, p.CPUShare = calls, p.CPUShare+other.CPUShare
}

func cost(id ebpf.ProgramID, elapsed time.Duration) (Program, error) {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return Program{}, err
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return Program{}, err
	}
	stats, err := p.Stats()
	if err != nil {
		return Program{}, err
	}
	if stats.RunCount == 0 {
		return Program{}, errors.New("did not run")
	}
	return Program{Name: info.Name, Calls: stats.RunCount, EachNS: float64(stats.Runtime.Nanoseconds()) / float64(stats.RunCount),
		CPUShare: stats.Runtime.Seconds() / elapsed.Seconds()}, nil
}

func (c *counted) close() {
	if c != nil {
		c.stats.Close()
	}
}
