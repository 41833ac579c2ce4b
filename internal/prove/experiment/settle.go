package experiment

import (
	"context"
	"math"
	"time"
)

const (
	settleAgree  = 1.10 // two readings agree when they are within this factor
	settleEnough = 30   // requests, below which readings cannot be compared
	// settleReadings is how many it takes to see that two agree.
	settleReadings = 2
)

// settle waits before a phase: at least Settle, and until two successive readings
// agree and done, if given, is true of the last; at most MaxSettle, or twice that
// for done.
func (r *run) settle(ctx context.Context, phase string, done func(*Block) bool) error {
	r.settled = r.opt.Settle
	r.tell(Step{Phase: phase, Settling: true}, r.settleTakes()+r.blocksTake(r.opt.Blocks, nil))
	if !r.resize {
		return sleep(ctx, r.opt.Settle)
	}
	var last *Block
	var spent time.Duration
	for {
		b, err := r.meter.Block(ctx, r.opt.Settle)
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		spent += max(r.opt.Settle, time.Duration(b.Seconds*float64(time.Second)))
		r.settled = spent
		agrees := last == nil && b.Requests < settleEnough || last != nil && agree(last, &b)
		back := done == nil || done(&b)
		switch {
		case agrees && back, spent >= r.opt.MaxSettle && back, spent >= 2*r.opt.MaxSettle:
			return nil
		}
		last = &b
	}
}

// moves is done, for settle, when a service that stood still has answered in two
// readings: clients that got no answer to their SYN retransmits it after 1 s, 2 s, 4 s
// and so on. It is nil where the service did not stand still.
func (r *run) moves() func(*Block) bool {
	last := &r.phases[len(r.phases)-1]
	for i := range last.Blocks {
		if last.Blocks[i].Requests > 0 {
			return nil
		}
	}
	answered := false
	return func(b *Block) bool {
		before := answered
		answered = b.Requests > 0
		return before && answered
	}
}

// agree says whether two readings are near each other, as far as they tell.
func agree(a, b *Block) bool {
	for _, m := range []Metric{GoodRate, P50} {
		if m.weight(a) < settleEnough || m.weight(b) < settleEnough {
			continue
		}
		k := kinds[m]
		if math.Abs(k.score(m.value(a))-k.score(m.value(b))) > math.Log(settleAgree) {
			return false
		}
	}
	return true
}

// back says whether what came with the change has gone, by more than half.
func (r *run) back(b *Block) bool {
	if len(r.phases) < 2 {
		return true
	}
	before, with := r.phases[len(r.phases)-2], r.phases[len(r.phases)-1]
	for _, m := range []Metric{GoodRate, ErrorShare, P50} {
		k := kinds[m]
		if m == P50 && m.weight(b) < settleEnough {
			continue
		}
		was, on := phaseScore(m, k, &before), phaseScore(m, k, &with)
		if math.Abs(on-was) < k.sure || math.Abs(on-was) < 2*spreadOf(m, k, &before) {
			continue
		}
		if now := k.score(m.value(b)); (now-was)/(on-was) > 0.5 {
			return false
		}
	}
	return true
}

func scores(m Metric, k kind, p *Phase) []float64 {
	var s []float64
	for i := range p.Blocks {
		s = append(s, k.score(m.value(&p.Blocks[i])))
	}
	return s
}

func phaseScore(m Metric, k kind, p *Phase) float64 { return Median(scores(m, k, p)) }
func spreadOf(m Metric, k kind, p *Phase) float64   { return spread(scores(m, k, p)) }

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
