package cause

import "testing"

// With all workers but one waiting for their turn more of them answer no more; with
// none waiting, in proportion.
func TestMoreInTurns(t *testing.T) {
	for _, tt := range []struct{ busy, want, held, least, most float64 }{
		{8, 32, 7, 1, 1.01},
		{8, 32, 0, 3.9, 4.01},
		{8, 32, 4, 1, 2},
		{8, 8, 4, 1, 1},
		{1, 4, 0, 3.9, 4.01},
		{0.2, 4, 0.1, 1, 4},
	} {
		if got := moreInTurns(tt.busy, tt.want, tt.held); got < tt.least || got > tt.most {
			t.Errorf("%v busy, %v wait: %v workers give %v times the answers, not %v to %v", tt.busy, tt.held, tt.want, got, tt.least, tt.most)
		}
	}
	// The more of them wait, the less further ones help.
	last := 5.0
	for held := 0.0; held < 8; held++ {
		got := moreInTurns(8, 32, held)
		if got > last {
			t.Errorf("%v of 8 wait: %v times the answers, more than with one fewer", held, got)
		}
		last = got
	}
}

func TestGain(t *testing.T) {
	pool := Finding{crew: &crew{pid: 7, unit: "children of php-fpm", busy: 8, waiting: 16, want: 24}}
	lock := Finding{held: held{by: map[int]float64{7: 7}, turns: true}}
	call := Finding{held: held{by: map[int]float64{7: 6}}}
	other := Finding{held: held{by: map[int]float64{9: 7}, turns: true}}
	v := &View{}
	for _, tt := range []struct {
		root *Finding
		want []any
	}{
		{&lock, []any{7.0, 8.0, 1.0}},
		{&call, []any{6.0, 4.0, 3.0}},
		{&other, nil},
	} {
		v.Gain(tt.root, &pool)
		if len(tt.root.Evidence) != len(tt.want) {
			t.Fatalf("%d lines of evidence, not %d", len(tt.root.Evidence), len(tt.want))
		}
		for i, e := range tt.root.Evidence {
			if e.Value != tt.want[i] {
				t.Errorf("%s: %v, not %v", e.Fact, e.Value, tt.want[i])
			}
		}
	}
}
