package cause

// callGraph says who calls whom on this host, by the masters of the processes.
type callGraph struct {
	callers map[int][]int // over TCP, by who is called
	unix    []unixCall    // over unix sockets, in the order in which they were seen
}

// unixCall is a connect() to a unix socket.
type unixCall struct {
	caller  int
	servers []int
}

func (v *View) buildCallGraph() *callGraph {
	g := &callGraph{callers: map[int][]int{}}
	type edge struct{ from, to int }
	seen := map[edge]bool{}
	for _, l := range v.ledgers {
		if l.here == nil || l.pid == 0 || l.here.pid == 0 {
			continue
		}
		if e := (edge{l.pid, l.here.pid}); !seen[e] {
			seen[e] = true
			g.callers[e.to] = append(g.callers[e.to], e.from)
		}
	}
	for i := range v.Connects {
		c := &v.Connects[i]
		if c.Family != "unix" {
			continue
		}
		call := unixCall{caller: v.Master(c.PID)}
		for _, s := range v.reachable.by(c, v.owners) {
			for _, pid := range s.PIDs {
				call.servers = append(call.servers, v.Master(pid))
			}
		}
		g.unix = append(g.unix, call)
	}
	return g
}

// dependents lists the masters whose requests may wait for this one: itself, who
// calls it over a unix socket, and whoever calls those over TCP, however many
// hops away.
func (g *callGraph) dependents(master int) []int {
	if master == 0 {
		return nil
	}
	out, seen := []int{master}, map[int]bool{0: true, master: true}
	add := func(pid int) {
		if !seen[pid] {
			seen[pid] = true
			out = append(out, pid)
		}
	}
	for i := len(g.unix) - 1; i >= 0; i-- {
		for _, pid := range g.unix[i].servers {
			if seen[pid] && pid != 0 {
				add(g.unix[i].caller)
				break
			}
		}
	}
	for i := 0; i < len(out); i++ {
		for _, pid := range g.callers[out[i]] {
			add(pid)
		}
	}
	return out
}
