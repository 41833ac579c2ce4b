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

// TestClearGiveUp: libraries of containers that ended are given up, those of processes that
// run are not.
func TestClearGiveUp(t *testing.T) {
	ids := []tlslib.ID{{Inode: 1}, {Inode: 2}, {Inode: 3}}
	c := &clearSide{libraries: map[tlslib.ID]*library{}, processes: map[int]*clearProcess{
		5: {pid: 5, files: ids[:1]}, 6: {pid: 6, files: ids[:2]}, 7: {pid: 7, files: ids[1:]}, 8: {pid: 8, other: "rustls"},
	}}
	for _, id := range ids {
		c.libraries[id] = &library{number: id.Inode}
	}
	unused := c.giveUp(func(pid int) bool { return pid == 6 })
	if len(unused) != 1 || unused[0].number != 3 || c.libraries[ids[2]] != nil || len(c.libraries) != 2 {
		t.Errorf("given up: %+v, left: %v", unused, c.libraries)
	}
	if len(c.processes) != 2 || c.processes[8] == nil {
		t.Errorf("processes that are left: %v", c.processes)
	}
}
