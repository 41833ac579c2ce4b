package fleet

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestTemporary(t *testing.T) {
	plain := errors.New("connection refused")
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false}, {plain, true}, {ErrNoMark, true}, {Permanent(plain), false},
		{fmt.Errorf("shard 2: %w", Permanent(plain)), false}, {Permanent(nil), false},
	} {
		if got := Temporary(c.err); got != c.want {
			t.Errorf("%v: temporary is %v", c.err, got)
		}
	}
	for _, c := range []struct {
		err  error
		want time.Duration
	}{{nil, 0}, {plain, 0}, {Later(plain, 0), 0}, {Later(nil, time.Second), 0}, {fmt.Errorf("otlp: %w", Later(plain, time.Second)), time.Second}} {
		if got := After(c.err); got != c.want || c.want > 0 && (!Temporary(c.err) || !errors.Is(c.err, plain)) {
			t.Errorf("%v: after %s, want %s", c.err, got, c.want)
		}
	}
	if !errors.Is(Permanent(plain), plain) {
		t.Error("what is behind a permanent error is not seen")
	}
}
