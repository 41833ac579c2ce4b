package logtail

import (
	"cmp"
	"math"
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

const (
	maxUpstreams = 64      // per kind; the rest is counted under ""
	maxSeconds   = 100_000 // distinct seconds remembered per kind and upstream
	maxClients   = 64      // distinct ones that are distinguished
	exampleBytes = 256
)

// Counts counts log lines by kind and upstream. The zero Counts is ready.
type Counts struct {
	kinds map[string]*kindCounts
	// Folded is how many lines named an upstream beyond the first 64 of their
	// kind and were counted under "".
	Folded int64
}

type kindCounts struct {
	none       *count
	byUpstream map[string]*count
}

type count struct {
	raw       int64 // since the last Settle
	total     float64
	estimated bool
	seconds   map[int64]struct{}
	last      int64
	clients   map[string]struct{}
	number    int
	example   string
}

// Add counts one line. The second is Unix time, or 0 when the line has none.
func (c *Counts) Add(kind string, upstream []byte, second int64, number int, line []byte) {
	k := c.kinds[kind]
	if k == nil {
		if c.kinds == nil {
			c.kinds = map[string]*kindCounts{}
		}
		k = &kindCounts{}
		c.kinds[kind] = k
	}
	n := c.find(k, upstream)
	n.raw++
	if n.example == "" {
		n.example = Printable(line, exampleBytes)
	}
	if n.number == 0 {
		n.number = number
	}
	if second != 0 && second != n.last && len(n.seconds) < maxSeconds {
		if n.seconds == nil {
			n.seconds = map[int64]struct{}{}
		}
		n.seconds[second] = struct{}{}
		n.last = second
	}
}

// AddClient notes a client that a line counted before names.
func (c *Counts) AddClient(kind string, upstream, client []byte) {
	k := c.kinds[kind]
	if k == nil || len(client) == 0 || len(client) > 64 {
		return
	}
	n := k.none
	if len(upstream) > 0 && k.byUpstream[string(upstream)] != nil {
		n = k.byUpstream[string(upstream)]
	}
	if n == nil || len(n.clients) >= maxClients {
		return
	}
	if n.clients == nil {
		n.clients = map[string]struct{}{}
	}
	n.clients[string(client)] = struct{}{}
}

func (c *Counts) find(k *kindCounts, upstream []byte) *count {
	if len(upstream) > 0 {
		if n := k.byUpstream[string(upstream)]; n != nil {
			return n
		}
		if len(k.byUpstream) < maxUpstreams {
			if k.byUpstream == nil {
				k.byUpstream = map[string]*count{}
			}
			n := &count{}
			k.byUpstream[string(upstream)] = n
			return n
		}
		c.Folded++
	}
	if k.none == nil {
		k.none = &count{}
	}
	return k.none
}

// Settle multiplies what was added since the last Settle by the scale of the
// log it came from.
func (c *Counts) Settle(scale float64) {
	settle := func(n *count) {
		if n == nil || n.raw == 0 {
			return
		}
		n.total += float64(n.raw) * scale
		n.estimated = n.estimated || scale > 1
		n.raw = 0
	}
	for _, k := range c.kinds {
		settle(k.none)
		for _, n := range k.byUpstream {
			settle(n)
		}
	}
}

// Kinds is all that was counted and settled, sorted by kind and upstream.
func (c *Counts) Kinds() []observe.LogKind {
	var out []observe.LogKind
	add := func(kind, upstream string, n *count) {
		if n == nil {
			return
		}
		out = append(out, observe.LogKind{Kind: kind, Upstream: Printable([]byte(upstream), exampleBytes),
			Count: int64(math.Round(n.total)) + n.raw, Estimated: n.estimated,
			Seconds: len(n.seconds), Clients: len(n.clients), Number: n.number, Example: n.example})
	}
	for kind, k := range c.kinds {
		add(kind, "", k.none)
		for upstream, n := range k.byUpstream {
			add(kind, upstream, n)
		}
	}
	slices.SortFunc(out, func(a, b observe.LogKind) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Upstream, b.Upstream))
	})
	return out
}
