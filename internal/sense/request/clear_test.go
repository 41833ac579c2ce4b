package request

import (
	"testing"
	"time"

	"github.com/slowray/slowray/internal/sense/tlslib"
)

// TestClearJudge: a library is watched while its connections speak HTTP/2, or may.
func TestClearJudge(t *testing.T) {
	now := time.Unix(1000, 0)
	id := tlslib.ID{Device: "fe:00", Inode: 7}
	l := &library{number: 3, watched: true, since: now}
	p := &clearProcess{pid: 5, files: []tlslib.ID{id}, looked: now}
	c := &clearSide{libraries: map[tlslib.ID]*library{id: l}, processes: map[int]*clearProcess{5: p}}
	var seen [maxLibraries]uint64
	step := func(what string, later time.Duration, want bool) {
		t.Helper()
		now = now.Add(later)
		begin, end := c.judge(now, &seen)
		for range begin {
			l.watched = true
		}
		for range end {
			l.watched = false
		}
		if l.watched != want {
			t.Fatalf("%s: watched is %v", what, l.watched)
		}
	}
	step("nothing is known yet", time.Second, true)
	step("it does not speak HTTP/2", 3*time.Second, false)
	c.want(5, false)
	step("requests of HTTP/1", time.Second, false)
	seen[3]++
	step("HTTP/2 was agreed", time.Second, true)
	step("a pause", 50*time.Second, true)
	seen[3]++
	step("it goes on", time.Second, true)
	step("it goes on, then a pause", 50*time.Second, true)
	step("silence", 20*time.Second, false)
	c.want(5, false)
	step("an old connection goes on", 10*time.Minute, true)
	step("it is none of HTTP/2", 4*time.Second, false)
	c.want(5, false)
	step("again", time.Minute, false)
	c.want(5, true)
	step("requests overlap", 10*time.Minute, true)
}
