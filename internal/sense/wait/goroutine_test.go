package wait

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

type purse struct {
	owner string
	mu    sync.Mutex
	coins int
}

// pay takes both locks, in the order in which it gets them.
func pay(from, to *purse, met *sync.WaitGroup) {
	from.mu.Lock()
	met.Done()
	met.Wait()
	to.mu.Lock()
	from.coins--
	to.coins++
	to.mu.Unlock()
	from.mu.Unlock()
}

// count waits for one lock.
func count(p *purse) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.coins
}

// circles is how often the deadlock was planted in this process, where it stays.
var circles int

// TestGoroutinesInACircle plants a deadlock of two goroutines in this process,
// for good, and one that waits behind it.
func TestGoroutinesInACircle(t *testing.T) {
	circles++
	a, b := &purse{owner: "a"}, &purse{owner: "b"}
	var met sync.WaitGroup
	met.Add(2)
	go pay(a, b, &met)
	go pay(b, a, &met)
	time.Sleep(100 * time.Millisecond)
	go count(a)
	time.Sleep(100 * time.Millisecond)

	l, listing := lookAtOwn(t)
	p := l.process(os.Getpid())
	inCircle, behind := 0, 0
	for _, group := range listing.groups() {
		c := l.goChain(p, listing, group.members)
		if !strings.Contains(strings.Join(c.Hops[0].Stack, " "), "wait.pay ") && !strings.Contains(strings.Join(c.Hops[0].Stack, " "), "wait.count ") {
			continue
		}
		for i := range c.Hops[1:] {
			if c.Hops[i+1].How != observe.HowInferred {
				t.Errorf("an owner is said to be known: %+v", c.Hops[i+1])
			}
		}
		switch {
		case c.End == observe.EndCycle && c.BackTo == 0 && len(c.Hops) == 2:
			inCircle += c.Count
		case c.End == observe.EndCycle && c.BackTo == 1:
			behind += c.Count
		default:
			t.Errorf("a chain of %d hops that ends with %q: %s", len(c.Hops), c.End, c.Text)
		}
		if c.Sure {
			t.Error("a deadlock whose owners are inferred is said to be sure")
		}
	}
	if inCircle != 2*circles || behind != circles {
		t.Errorf("%d goroutines in circles and %d behind them, want %d and %d", inCircle, behind, 2*circles, circles)
	}
}

// lookAtOwn lists the goroutines of the test itself; the look ends with the test.
func lookAtOwn(t *testing.T) (*look, *goListing) {
	t.Helper()
	l := newLook(NewReader(host.Default()), lookLimits)
	t.Cleanup(l.close)
	program := l.openGo(os.Getpid())
	if program == nil {
		t.Skip(l.unseen)
	}
	t.Cleanup(func() { program.Close() })
	listing, err := l.listGo(program)
	if err != nil {
		t.Fatal(err)
	}
	return l, listing
}
