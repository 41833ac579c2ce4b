package budget

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// However much those before it take, each of those who take turns has its share.
func TestShares(t *testing.T) {
	const n, all = 100, 100_000
	whole := New(context.Background(), Limits{Nodes: all, Bytes: all, Files: all, Unpacked: all, Wall: time.Hour})
	greedy := func(b *Budget) (taken int64) {
		for b.Node() == nil {
			taken++
		}
		return taken
	}
	var last, sum int64
	for i := range n {
		share := whole.Share(n - i)
		if i%2 == 0 {
			sum += share.nodes.Load()
			continue // it needs nothing
		}
		took := greedy(share)
		if took < all/n-1 {
			t.Fatalf("the %dth had %d items of %d", i, took, all/n)
		}
		sum, last = sum+took, took
	}
	if last < 2*all/n || sum < all-n || sum > all {
		t.Errorf("%d items of %d were taken, %d by the last one", sum, all, last)
	}
}

func TestHead(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(name, bytes.Repeat([]byte("x"), 100), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]int{{10, 10}, {100, 100}, {1000, 100}} {
		if b, err := Head(name, int64(c[0])); err != nil || len(b) != c[1] {
			t.Errorf("%d bytes of 100, at most %d: %v", len(b), c[0], err)
		}
	}
	if _, err := Head(name+"y", 1); err == nil {
		t.Error("what is not there was read")
	}
}

func TestLimitsAreReadable(t *testing.T) {
	for want, use := range map[string]func(*Budget) error{
		"over the reading budget: more than 64 MB":          func(b *Budget) error { return b.Read(1 << 40) },
		"over the reading budget: more than 64 MB unpacked": func(b *Budget) error { return b.Unpack(1 << 40) },
		"over the reading budget: more than 1048576 items":  func(b *Budget) error { return b.Nodes(1 << 40) },
	} {
		if err := use(New(context.Background(), Limits{})); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
