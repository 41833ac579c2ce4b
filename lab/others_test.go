package lab

import "testing"

func TestParseCPUTimes(t *testing.T) {
	got, parent := parseCPUTimes([]byte("42 (a ) b) S 7 1 1 0 -1 4194560 1 2 3 4 100 50 30 20 20 0 1 0 5 6 7\n"))
	if want := (cpuTimes{own: 1.5, children: 0.5}); got != want || parent != "7" {
		t.Errorf("got %v of parent %q, want %v of 7", got, parent, want)
	}
}

func TestUsedBetween(t *testing.T) {
	before := map[string]cpuTimes{"1": {own: 10, children: 5}, "2": {own: 3}}
	after := map[string]cpuTimes{
		"1": {own: 11, children: 9}, // waited for 2, which had used 1 more, when it ended
		"3": {own: 0.5},
	}
	if got := usedBetween(before, after); got != 2.5 {
		t.Errorf("got %v s, want 1 of process 1, 1 of the ended one, 0.5 of the new one", got)
	}
}
