package simulate

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/store"
)

// Run says what is shipped.
type Run struct {
	From  int64         // s since 1970: the first second
	For   time.Duration // whole seconds
	Every int           // seconds of a batch; default 5
	Fast  bool          // as fast as the target takes it, not as fast as time passes
	// Tell is called after each batch of seconds; it may be nil.
	Tell func(at int64, s Shipped)
}

// Shipped is what a Run has sent.
type Shipped struct {
	Seconds, Requests, Batches uint64
	Skipped                    uint64 // records that the target had already
}

// positions leaves room for so many records of a stream of a host in a second.
const positions = 1 << 16

// outbox is what a host has to ship.
type outbox struct {
	host     *Host
	seconds  list[store.Second]
	requests list[store.Request]
}

type list[T any] struct {
	records []T
	at      []fleet.Position
	mark    fleet.Position
}

// add appends a record of a second: its position tells the second and its number in it,
// so that the same run made again has the same positions.
func (l *list[T]) add(at int64, v T) {
	p := fleet.Position(at) * positions
	if n := len(l.at); n > 0 && l.at[n-1] >= p {
		p = l.at[n-1]
	}
	l.records = append(l.records, v)
	l.at = append(l.at, p+1)
}

func (l *list[T]) all() iter.Seq2[fleet.Position, *T] {
	return func(yield func(fleet.Position, *T) bool) {
		for i := range l.records {
			if !yield(l.at[i], &l.records[i]) {
				return
			}
		}
	}
}

// helloEvery is how often agents say Hello, s.
const helloEvery = 60

// Ship makes the seconds of a run and sends them to a target, host by host, as their
// agents would. It ends when the context does, with what was shipped until then.
func (f *Fleet) Ship(ctx context.Context, t fleet.Target, run Run) (s Shipped, err error) {
	if run.Every <= 0 {
		run.Every = 5
	}
	boxes := map[string]*outbox{}
	for _, h := range f.Hosts {
		b := &outbox{host: h}
		if err := t.Hello(ctx, &h.Host, time.Unix(run.From, 0)); err != nil {
			return s, fmt.Errorf("host %s: %w", h.Name, err)
		}
		if b.seconds.mark, err = mark(ctx, t, &h.Host, fleet.Seconds); err != nil {
			return s, err
		}
		if b.requests.mark, err = mark(ctx, t, &h.Host, fleet.Requests); err != nil {
			return s, err
		}
		boxes[h.Name] = b
	}
	comms := map[string]string{}
	for _, v := range f.services {
		comms[v.name] = v.comm
	}
	for at := run.From; at < run.From+int64(run.For/time.Second); at++ {
		if !run.Fast {
			select {
			case <-ctx.Done():
				return s, ctx.Err()
			case <-time.After(time.Until(time.Unix(at+1, 0))):
			}
		}
		if at > run.From && (at-run.From)%helloEvery == 0 {
			for _, h := range f.Hosts {
				if err := t.Hello(ctx, &h.Host, time.Unix(at, 0)); err != nil {
					return s, fmt.Errorf("host %s: %w", h.Name, err)
				}
			}
		}
		f.Second(at, func(p *fleet.Point) {
			comm := p.Service
			if c, ok := comms[comm]; ok {
				comm = c
			}
			boxes[p.Host].seconds.add(at, second(p, comm))
		})
		f.requests(at, func(h *Host, r *store.Request) { boxes[h.Name].requests.add(at, *r) })
		last := at+1 == run.From+int64(run.For/time.Second)
		// A batch lies within a day.
		if (at-run.From+1)%int64(run.Every) != 0 && (at+1)%day != 0 && !last {
			continue
		}
		for _, h := range f.Hosts {
			if err := boxes[h.Name].send(ctx, t, &s); err != nil {
				return s, fmt.Errorf("host %s: %w", h.Name, err)
			}
		}
		if run.Tell != nil {
			run.Tell(at+1, s)
		}
	}
	return s, nil
}

// mark is what of a stream is there already; a target that cannot tell begins anew.
func mark(ctx context.Context, t fleet.Target, h *fleet.Host, stream fleet.Stream) (fleet.Position, error) {
	p, err := t.Mark(ctx, h, stream)
	if err != nil && err != fleet.ErrNoMark {
		return 0, fmt.Errorf("host %s: %w", h.Name, err)
	}
	return p, nil
}

func (b *outbox) send(ctx context.Context, t fleet.Target, s *Shipped) error {
	s.Skipped += b.seconds.skip() + b.requests.skip()
	if n := len(b.seconds.at); n > 0 {
		err := t.Send(ctx, &fleet.Batch{
			Host: &b.host.Host, Stream: fleet.Seconds, First: b.seconds.at[0], Last: b.seconds.at[n-1], Count: n,
			Day: int(b.seconds.records[0].At / day), Seconds: b.seconds.all(),
		})
		if err != nil {
			return err
		}
		s.Seconds += uint64(n)
		s.Batches++
	}
	if n := len(b.requests.at); n > 0 {
		err := t.Send(ctx, &fleet.Batch{
			Host: &b.host.Host, Stream: fleet.Requests, First: b.requests.at[0], Last: b.requests.at[n-1], Count: n,
			Day: int(b.requests.records[0].StartNS / 1e9 / day), Requests: b.requests.all(),
		})
		if err != nil {
			return err
		}
		s.Requests += uint64(n)
		s.Batches++
	}
	b.seconds.clear()
	b.requests.clear()
	return nil
}

// skip leaves out what is there already.
func (l *list[T]) skip() uint64 {
	k := 0
	for k < len(l.at) && l.at[k] <= l.mark {
		k++
	}
	l.at, l.records = l.at[k:], l.records[k:]
	return uint64(k)
}

func (l *list[T]) clear() { l.at, l.records = l.at[:0], l.records[:0] }
