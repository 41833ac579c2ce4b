package budget

import (
	"context"
	"errors"
	"io"
	"math"
	"strings"
	"sync"
	"testing"
	"time"
)

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestEachLimitEndsTheBudget(t *testing.T) {
	limits := Limits{Bytes: 1000, Unpacked: 1000, Files: 10, Nodes: 1000, Depth: 3, Wall: time.Hour}
	for name, use := range map[string]func(*Budget) error{
		"bytes":          func(b *Budget) error { _, err := b.ReadAll(zeros{}); return err },
		"unpacked bytes": func(b *Budget) error { _, err := io.Copy(io.Discard, b.Unpacked(zeros{})); return err },
		"files": func(b *Budget) (err error) {
			for err == nil {
				err = b.File()
			}
			return err
		},
		"items": func(b *Budget) (err error) {
			for err == nil {
				err = b.Node()
			}
			return err
		},
		"levels": func(b *Budget) (err error) {
			for i := 0; err == nil; i++ {
				err = b.Depth(i)
			}
			return err
		},
	} {
		b := New(context.Background(), limits)
		err := use(b)
		var e *Exceeded
		if !errors.As(err, &e) || e.What != name || !IsExceeded(err) {
			t.Errorf("%s: %v", name, err)
		}
		if again := b.Node(); again != err {
			t.Errorf("%s: after it: %v", name, again)
		}
	}
}

func TestAmountsThatOverflow(t *testing.T) {
	for _, n := range []int64{-1, math.MinInt64, math.MaxInt64, Default.Bytes + 1} {
		if New(context.Background(), Limits{}).Read(n) == nil {
			t.Errorf("%d bytes were allowed", n)
		}
	}
	b := New(context.Background(), Limits{Bytes: math.MaxInt64})
	if err := errors.Join(b.Read(math.MaxInt64-1), b.Read(1)); err != nil {
		t.Error(err)
	}
	if b.Read(math.MaxInt64) == nil {
		t.Error("more than all was allowed")
	}
}

func TestTimeAndContextEndIt(t *testing.T) {
	b := New(context.Background(), Limits{Wall: time.Nanosecond})
	time.Sleep(time.Millisecond)
	if err := b.Nodes(clockEvery); !IsExceeded(err) || !strings.Contains(err.Error(), "1ns") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b = New(ctx, Limits{})
	cancel()
	if _, err := b.ReadAll(zeros{}); !errors.Is(err, context.Canceled) || IsExceeded(err) {
		t.Error(err)
	}
}

func TestSharedByGoroutines(t *testing.T) {
	b := New(context.Background(), Limits{Nodes: 10_000, Wall: time.Hour})
	var allowed [8]int
	var wg sync.WaitGroup
	for i := range allowed {
		wg.Go(func() {
			for b.Node() == nil {
				allowed[i]++
			}
		})
	}
	wg.Wait()
	sum := 0
	for _, n := range allowed {
		sum += n
	}
	if sum > 10_000 || sum < 10_000-len(allowed) {
		t.Errorf("%d of 10000 items were allowed", sum)
	}
}

func TestPartsStayWithinTheWhole(t *testing.T) {
	whole := New(context.Background(), Limits{Nodes: 1000, Wall: time.Hour})
	first := whole.Sub(Limits{Nodes: 300})
	for range 300 {
		if err := first.Node(); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.Node(); !IsExceeded(err) || !first.Own() || whole.Err() != nil {
		t.Errorf("the first part: %v, own %v, the whole: %v", err, first.Own(), whole.Err())
	}
	// A hundred parts that want more than their share get what is left together.
	got := 0
	for range 100 {
		part := whole.Sub(Limits{Nodes: 300})
		for part.Node() == nil {
			got++
		}
	}
	if got != 700 {
		t.Errorf("%d items were allowed, want 700", got)
	}
	last := whole.Sub(Limits{})
	if err := last.Node(); !IsExceeded(err) || last.Own() {
		t.Errorf("after the whole: %v, own %v", err, last.Own())
	}
}

func TestPartsEndWithTime(t *testing.T) {
	whole := New(context.Background(), Limits{Wall: time.Hour})
	part := whole.Sub(Limits{Wall: time.Nanosecond})
	time.Sleep(time.Millisecond)
	if err := part.Err(); !IsExceeded(err) || !part.Own() || whole.Err() != nil {
		t.Errorf("%v, own %v, the whole: %v", err, part.Own(), whole.Err())
	}
	whole = New(context.Background(), Limits{Wall: time.Nanosecond})
	part = whole.Sub(Limits{Wall: time.Hour})
	time.Sleep(time.Millisecond)
	if err := part.Err(); !IsExceeded(err) || part.Own() {
		t.Errorf("%v, own %v", err, part.Own())
	}
	ctx, cancel := context.WithCancel(context.Background())
	part = New(ctx, Limits{}).Sub(Limits{})
	cancel()
	if err := part.Err(); !errors.Is(err, context.Canceled) || part.Own() {
		t.Errorf("%v, own %v", err, part.Own())
	}
	if left := New(context.Background(), Limits{Bytes: 10}).Sub(Limits{Bytes: 100}).Left(); left != 10 {
		t.Errorf("%d bytes are left, want 10", left)
	}
}
