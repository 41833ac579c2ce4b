package cause

import "slices"

// way is the processes on this host that requests to one of them may depend on:
// its family, all that these call, and what those call; and who calls it.
type way struct {
	graph *wayGraph
	on    []bool // by place in the graph
	other int    // the process itself, where the graph does not have it

	// For how long they waited for a CPU, s; known when any of them was measured to
	// run or to wait.
	delay float64
	known bool
	// In how many looks at their threads they were blocked on storage.
	blocked, samples int
}

func (w *way) has(pid int) bool {
	if at, known := w.graph.places[pid]; known {
		return w.on[at]
	}
	return pid == w.other && pid != 0
}

// wayGraph says of each process who its family is, what it serves and what it
// calls. Processes are numbered: a way is found for every finding, and on a host
// whose services all call each other it is most of them.
type wayGraph struct {
	pids   []int
	places map[int]int // in pids
	// Of each process: places of its family, of masters that its requests go to;
	// and the services, by their order, that it serves and that it connects to.
	family, masters, serves, connects [][]int
	// Of each service: places of its processes, and of who connects to it.
	members, callers [][]int
}

func (g *wayGraph) place(pid int) int {
	at, known := g.places[pid]
	if !known {
		at = len(g.pids)
		g.places[pid], g.pids = at, append(g.pids, pid)
		g.family, g.masters, g.serves, g.connects = append(g.family, nil), append(g.masters, nil), append(g.serves, nil), append(g.connects, nil)
	}
	return at
}

func (v *View) buildWayGraph() *wayGraph {
	g := &wayGraph{places: map[int]int{}, members: make([][]int, len(v.Services)), callers: make([][]int, len(v.Services))}
	for i := range v.Processes {
		g.place(v.Processes[i].PID)
	}
	for i, s := range v.Services {
		for _, pid := range s.PIDs {
			at := g.place(pid)
			g.members[i], g.serves[at] = append(g.members[i], at), append(g.serves[at], i)
		}
		for _, pid := range s.callers {
			at := g.place(pid)
			g.callers[i], g.connects[at] = append(g.callers[i], at), append(g.connects[at], i)
		}
	}
	type edge struct{ from, to int }
	seen := map[edge]bool{}
	for _, n := range v.lookedUp() { // over UDP, which nobody connects for
		for _, s := range n.servers {
			for _, pid := range v.namesAt(n.netns, s.Addr) {
				if e := (edge{g.place(n.pid), g.place(pid)}); !seen[e] {
					seen[e] = true
					g.masters[e.from] = append(g.masters[e.from], e.to)
				}
			}
		}
	}
	for _, l := range v.ledgers {
		if l.here == nil || l.here.pid == 0 {
			continue
		}
		for _, pid := range append([]int{l.pid}, l.PIDs...) {
			if e := (edge{g.place(pid), g.place(l.here.pid)}); !seen[e] {
				seen[e] = true
				g.masters[e.from] = append(g.masters[e.from], e.to)
			}
		}
	}
	for at := 0; at < len(g.pids); at++ {
		pid := g.pids[at]
		master := v.Master(pid)
		family := []int{at, g.place(master)}
		for _, child := range v.children[master] {
			if v.Master(child) == master {
				family = append(family, g.place(child))
			}
		}
		g.family[at] = family
	}
	return g
}

// wayOf is the way of the requests to a process.
func (v *View) wayOf(pid int) *way {
	return v.ways.of(pid, func() *way { return v.findWay(pid) })
}

func (v *View) findWay(pid int) *way {
	g := v.wayGraph()
	w := &way{graph: g, on: make([]bool, len(g.pids)), other: pid}
	theirs := make([]bool, len(v.Services)) // services of those on the way
	var queue []int
	addFamily := func(at int) {
		for _, one := range g.family[at] {
			if w.on[one] || g.pids[one] == 0 {
				continue
			}
			w.on[one] = true
			queue = append(queue, one)
			for _, s := range g.serves[one] {
				theirs[s] = true
			}
		}
	}
	if at, known := g.places[pid]; known {
		addFamily(at)
	}
	for s := range theirs { // those of who is added meanwhile, too
		if theirs[s] {
			for _, at := range slices.Concat(g.members[s], g.callers[s]) {
				addFamily(at)
			}
		}
	}
	for ; len(queue) > 0; queue = queue[1:] {
		v.addTo(w, g.pids[queue[0]])
		for _, s := range g.connects[queue[0]] {
			for _, at := range g.members[s] {
				addFamily(at)
			}
		}
		for _, at := range g.masters[queue[0]] {
			addFamily(at)
		}
	}
	return w
}

// addTo adds what was measured of a process to its way.
func (v *View) addTo(w *way, pid int) {
	p := v.Process(pid)
	if p == nil {
		return
	}
	w.delay += p.RunDelaySeconds
	w.known = w.known || p.RunDelaySeconds > 0 || p.CPUSeconds() > 0
	if p.States != nil {
		w.blocked += p.States.Disk
		w.samples += p.States.Samples
	}
}
