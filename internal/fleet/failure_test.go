package fleet

import (
	"errors"
	"fmt"
	"testing"
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
	if !errors.Is(Permanent(plain), plain) {
		t.Error("what is behind a permanent error is not seen")
	}
}
