package web

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// Bounds of a wait graph that somebody looks at.
const (
	maxGraphChains = 40
	maxGraphNodes  = 120
)

type waitNode struct {
	ID        string `json:"id"`
	Kind      string `json:"kind"` // "process", "thread", or an observe.WaitKind: what is waited for
	Title     string `json:"title"`
	PID       int    `json:"pid,omitempty"`
	TID       int    `json:"tid,omitempty"`
	Comm      string `json:"comm,omitempty"`
	Container string `json:"container,omitempty"`
	Detail    string `json:"detail,omitempty"`
	Text      string `json:"text,omitempty"`
	Culprit   bool   `json:"culprit"` // a chain ends here
	Seconds   figure `json:"seconds"` // that threads waited in chains through it
}

type waitEdge struct {
	From        string `json:"from"`
	To          string `json:"to"`
	Seconds     figure `json:"seconds"` // over all threads
	SlowSeconds figure `json:"slow_seconds"`
	Threads     int    `json:"threads"`
	How         string `json:"how"`
	Kind        string `json:"kind"`
	Text        string `json:"text"`
}

type graphChain struct {
	Nodes        []string `json:"nodes"`
	Seconds      figure   `json:"seconds"`
	SlowSeconds  figure   `json:"slow_seconds"`
	SlowRequests figure   `json:"slow_requests"`
	Longest      figure   `json:"longest_s"`
	Text         string   `json:"text"`
	End          string   `json:"end"`
	Cycle        bool     `json:"cycle"`
	Deadlock     bool     `json:"deadlock"`
}

// waitGraph is put together of chains.
type waitGraph struct {
	nodes  map[string]*waitNode
	edges  map[[3]string]*waitEdge
	chains map[string]*graphChain
}

func newWaitGraph() *waitGraph {
	return &waitGraph{nodes: map[string]*waitNode{}, edges: map[[3]string]*waitEdge{}, chains: map[string]*graphChain{}}
}

// add puts a share of a window's waits into the graph.
func (g *waitGraph) add(w *observe.WaitShare) {
	c := &w.Chain
	if len(c.Hops) == 0 {
		return
	}
	seconds, slow := figure(float64(w.ThreadNS)/1e9), figure(float64(w.SlowNS)/1e9)
	path := make([]string, len(c.Hops))
	for i := range c.Hops {
		path[i] = g.hop(c, i, seconds)
		if i > 0 {
			h := &c.Hops[i]
			g.edge(path[i-1], path[i], string(c.Hops[i-1].Kind), string(h.How), cmp.Or(h.Why, c.Hops[i-1].Sought()), seconds, slow, w.Threads)
		}
	}
	last := &c.Hops[len(c.Hops)-1]
	switch id := g.object(c, last, seconds); {
	case c.BackTo >= 0 && c.BackTo < len(path):
		g.edge(path[len(path)-1], path[c.BackTo], string(last.Kind), string(last.How), last.Sought(), seconds, slow, w.Threads)
		g.nodes[path[c.BackTo]].Culprit = true
	case id != "":
		g.edge(path[len(path)-1], id, string(last.Kind), "", last.Sought(), seconds, slow, w.Threads)
		g.nodes[id].Culprit = c.Culprit()
		path = append(path, id)
	default:
		n := g.nodes[path[len(path)-1]]
		n.Culprit = n.Culprit || c.Culprit()
	}
	key := strings.Join(path, "\x00") + "\x00" + string(c.End)
	gc := g.chains[key]
	if gc == nil {
		gc = &graphChain{Nodes: path, Text: c.Text, End: string(c.End), Cycle: c.BackTo >= 0}
		g.chains[key] = gc
	}
	gc.Seconds += seconds
	gc.SlowSeconds += slow
	gc.SlowRequests += figure(w.SlowRequests)
	gc.Longest = max(gc.Longest, figure(float64(w.LongestNS)/1e9))
	gc.Deadlock = gc.Deadlock || c.Deadlock()
}

// hop is the node of a thread in a chain: that of its process, or, where a
// thread waits for another of its own process, one of its own.
func (g *waitGraph) hop(c *observe.WaitChain, i int, seconds figure) string {
	h := &c.Hops[i]
	n := waitNode{ID: "p" + strconv.Itoa(h.Process.PID), Kind: "process", Title: h.Process.Comm, PID: h.Process.PID, Comm: h.Process.Comm,
		Container: cmp.Or(h.Process.ContainerName, h.Process.Container)}
	if i > 0 && c.Hops[i-1].Process.PID == h.Process.PID {
		n.ID = fmt.Sprintf("t%d.%d", h.Process.PID, h.TID)
		n.Kind, n.TID, n.Title = "thread", h.TID, cmp.Or(h.Comm, h.Process.Comm)
	}
	if i == len(c.Hops)-1 {
		n.Detail, n.Text = strings.Join(h.Stack, "\n"), stateText(h)
	}
	return g.node(n, seconds)
}

// object is the node of what a chain ends at outside of all threads; "" when it
// ends with a thread.
func (g *waitGraph) object(c *observe.WaitChain, h *observe.WaitHop, seconds figure) string {
	n := waitNode{Kind: string(h.Kind), Detail: h.Detail}
	switch c.End {
	case observe.EndRemote:
		n.ID, n.Kind, n.Title = "remote "+h.Remote, "remote", cmp.Or(h.Remote, "another host")
	case observe.EndDisk:
		n.Title = cmp.Or(c.Path, h.Object, "disk")
	case observe.EndFuse, observe.EndKernel:
		n.Title = cmp.Or(c.Path, h.Object, h.Wchan, string(c.End))
	case observe.EndNoHolder, observe.EndUnseen, observe.EndGone:
		n.Title = cmp.Or(h.Object, string(h.Kind))
		n.Text = map[observe.WaitEnd]string{observe.EndNoHolder: "nobody is seen at the other end", observe.EndUnseen: "there is more that could not be seen",
			observe.EndGone: "its owner has ended without letting go"}[c.End]
	default:
		return ""
	}
	if n.ID == "" {
		n.ID = n.Kind + " " + n.Title
		if h.Kind != observe.WaitDisk && h.Kind != observe.WaitFuse {
			n.ID += fmt.Sprintf(" of %d", h.Process.PID) // descriptors are those of one process
		}
	}
	return g.node(n, seconds)
}

func (g *waitGraph) node(n waitNode, seconds figure) string {
	have := g.nodes[n.ID]
	if have == nil {
		have = &n
		g.nodes[n.ID] = have
	}
	have.Seconds += seconds
	have.Text, have.Detail = cmp.Or(have.Text, n.Text), cmp.Or(have.Detail, n.Detail)
	return n.ID
}

func (g *waitGraph) edge(from, to, kind, how, text string, seconds, slow figure, threads int) {
	key := [3]string{from, to, kind}
	e := g.edges[key]
	if e == nil {
		e = &waitEdge{From: from, To: to, Kind: kind, How: how, Text: text}
		g.edges[key] = e
	}
	e.Seconds += seconds
	e.SlowSeconds += slow
	e.Threads = max(e.Threads, threads)
}

// stateText says what the last thread of a chain does.
func stateText(h *observe.WaitHop) string {
	switch {
	case h.Kind == observe.WaitRunnable:
		return "runs, or is ready to"
	case h.Syscall != "" && h.Object != "":
		return "in " + h.Syscall + ", " + h.Object
	case h.Syscall != "":
		return "in " + h.Syscall
	}
	return string(h.Kind)
}

// graphJSON is the graph with what matters most first, in bounds.
func (g *waitGraph) graph(lost *losses) (nodes []*waitNode, edges []*waitEdge, chains []*graphChain) {
	chains = slices.SortedFunc(maps.Values(g.chains), func(a, b *graphChain) int {
		return cmp.Or(cmp.Compare(b.SlowSeconds, a.SlowSeconds), cmp.Compare(b.Seconds, a.Seconds), slices.Compare(a.Nodes, b.Nodes))
	})
	if n := len(chains) - maxGraphChains; n > 0 {
		lost.add("chains with less time are left out", int64(n))
		chains = chains[:maxGraphChains]
	}
	used := map[string]bool{}
	for i, c := range chains {
		if len(used) >= maxGraphNodes {
			lost.add("chains with less time are left out", int64(len(chains)-i))
			chains = chains[:i]
			break
		}
		for _, id := range c.Nodes {
			used[id] = true
		}
	}
	nodes, edges = []*waitNode{}, []*waitEdge{}
	for _, n := range slices.SortedFunc(maps.Values(g.nodes), func(a, b *waitNode) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), strings.Compare(a.ID, b.ID))
	}) {
		if used[n.ID] {
			nodes = append(nodes, n)
		}
	}
	for _, e := range slices.SortedFunc(maps.Values(g.edges), func(a, b *waitEdge) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), strings.Compare(a.From, b.From), strings.Compare(a.To, b.To), strings.Compare(a.Kind, b.Kind))
	}) {
		if used[e.From] && used[e.To] {
			edges = append(edges, e)
		}
	}
	if chains == nil {
		chains = []*graphChain{}
	}
	return nodes, edges, chains
}

// waits is who waited for whom in the range.
func (s *server) waits(ctx context.Context, q *query) (answer, error) {
	lost := losses{}
	facts, err := s.within(ctx, q.timeRange, maxWindows, unjudged, &lost)
	if err != nil {
		return answer{}, err
	}
	g, watched, unseen := newWaitGraph(), 0, 0
	for _, f := range facts {
		if f.waits == nil {
			continue
		}
		watched++
		unseen += len(f.waits.Unseen)
		for i := range f.waits.Shares {
			w := &f.waits.Shares[i]
			from := f.Start.Add(nanoseconds(w.FirstNS))
			if (timeRange{from, f.Start.Add(nanoseconds(max(w.LastNS, w.FirstNS) + max(f.waits.EveryNS, 1)))}).overlap(q.timeRange) > 0 {
				g.add(w)
			}
		}
	}
	lost.add("things about waits that could not be read", int64(unseen))
	nodes, edges, chains := g.graph(&lost)
	because := ""
	switch {
	case len(facts) == 0:
		because = "no window was saved in this range"
	case watched == 0:
		because = "the waits of threads were not watched"
	case len(chains) == 0:
		because = "no thread was seen waiting for anything but work"
	}
	return jsonAnswer(map[string]any{"nodes": nodes, "edges": edges, "chains": chains, "because": orNull(because), "windows": len(facts), "losses": lost})
}
