package wait

import (
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/goroutine"
)

// goPool is goroutines that so many requests at a time have, and for one of which others
// wait: those that a semaphore lets through, or workers that are handed requests.
type goPool struct {
	looks, sum, most int
	does             map[string]int
	at               string
	stack            []string
}

const (
	// fewestWorkers is the least that a pool of goroutines has: what one at a time does is
	// done under a lock.
	fewestWorkers = 2
	maxGoPools    = 16 // of a program, that are followed
)

// notePools notes who has a request in hand while others wait for a channel.
func (w *goWatched) notePools(l *goListing) {
	waiting := map[string]int{} // requests that wait, by the function that they wait in
	lines := map[string]int{}   // of each, the first line where they do
	var others []*goroutine.Goroutine
	total := 0
	for i := range l.list {
		g := &l.list[i]
		own := l.program.Own(g)
		if len(own) == 0 {
			continue
		}
		if heldUpGo(g) && g.Wait != goroutine.Sleep && !g.Wait.Lock() {
			total++
			for j := range own {
				if f := &own[j]; waiting[f.Function] == 0 || f.Line < lines[f.Function] {
					lines[f.Function] = f.Line
				}
				waiting[own[j].Function]++
			}
		}
		others = append(others, g)
	}
	if total == 0 {
		return
	}
	inside, workers, idle := map[string][]*goroutine.Goroutine{}, map[string][]*goroutine.Goroutine{}, map[string]bool{}
	for _, g := range others {
		own := l.program.Own(g)
		if !g.Serves() {
			// What "go" calls with arguments is wrapped (cmd/compile).
			if n := len(own); n > 1 && strings.Contains(own[n-1].Function, ".gowrap") {
				own = own[:n-1]
			}
			root := own[len(own)-1].Function
			workers[root] = append(workers[root], g)
			idle[root] = idle[root] || g.State == goroutine.Waiting && g.Wait != goroutine.Sleep && g.Wait != goroutine.IO && !g.Wait.Lock() && !g.Calls() && len(own) == 1
			continue
		}
		for j := range own {
			if f := &own[j]; waiting[f.Function] > 0 && f.Line > lines[f.Function] {
				inside[f.Function] = append(inside[f.Function], g)
				break
			}
		}
	}
	for function, list := range inside {
		w.pool(function).note(l, list)
	}
	for root, list := range workers {
		if !idle[root] {
			w.pool(root).note(l, list)
		}
	}
}

// pool is the one of goroutines in a function, or that began with it.
func (w *goWatched) pool(function string) *goPool {
	p := w.pools[function]
	if p == nil {
		p = &goPool{does: map[string]int{}}
		if w.pools == nil {
			w.pools = map[string]*goPool{}
		}
		if len(w.pools) < maxGoPools {
			w.pools[function] = p
		}
	}
	return p
}

func (p *goPool) note(l *goListing, list []*goroutine.Goroutine) {
	p.looks++
	p.sum += len(list)
	p.most = max(p.most, len(list))
	for _, g := range list {
		switch {
		case g.State != goroutine.Waiting:
			p.does["running"]++
		case g.Wait == goroutine.Sleep:
			p.does["sleeping"]++
		case g.Wait == goroutine.IO, g.Calls():
			p.does["waiting for the network"]++
		default:
			p.does[g.Wait.String()]++
		}
	}
	p.at, p.stack = l.program.Place(list[0]).String(), stackText(l.program, list[0])
}

// goPools tells of the pools of goroutines of which all had a request in hand in nearly
// all looks at which others waited.
func (s *Sampler) goPools(readers map[int]map[int]bool) (out []observe.ThreadPool) {
	for _, w := range s.goes.programs {
		if w == nil || readers[w.master] == nil {
			continue
		}
		for function, p := range w.pools {
			if p.most < fewestWorkers || float64(p.sum) < alwaysAtWork*float64(p.most*p.looks) || 2*p.looks < len(w.moments) {
				continue
			}
			pool := observe.ThreadPool{PID: w.master, Goroutines: true, Root: (&goroutine.Frame{Function: function}).String(), Busy: p.most, Looks: p.looks, At: p.at, Stack: p.stack}
			for name, n := range p.does {
				pool.Does = append(pool.Does, observe.PoolCall{Name: name, Share: float64(n) / float64(p.sum)})
			}
			slices.SortFunc(pool.Does, moreOften)
			pool.Does = pool.Does[:min(len(pool.Does), maxPoolCalls)]
			out = append(out, pool)
		}
	}
	return out
}
