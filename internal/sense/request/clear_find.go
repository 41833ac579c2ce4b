package request

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/sense/tlslib"
)

// find looks for libraries in the files of processes, and watches which protocol their
// connections agree on.
func (c *clearSide) find(ctx context.Context, processes []*clearProcess) (f found) {
	f = found{files: map[*clearProcess]tlslib.Process{}}
	begun := time.Now()
	defer func() { f.took = time.Since(begun) }()
	taken := map[tlslib.ID]bool{}
	var numbers [maxLibraries]bool
	var seen [maxLibraries]uint64
	_ = c.objects.Http2By.Get(&seen) // mapped memory
	for id, l := range c.libraries {
		taken[id], numbers[l.number] = true, true
	}
	for i, is := range processes {
		if time.Since(begun) > lookWall {
			f.later = processes[i:]
			break
		}
		p, err := c.finder.Find(ctx, is.pid)
		if err != nil {
			continue // it is gone, or its files are more than can be read
		}
		f.files[is] = p
		for _, file := range p.Files {
			if taken[file.ID] { // the finder has forgotten it
				file.Close()
				continue
			}
			number := slices.Index(numbers[:], false)
			if number < 0 {
				f.full = true
				c.finder.Forget(file.ID)
				file.Close()
				continue
			}
			l := &library{file: file, number: uint64(number), seen: seen[number], since: time.Now()}
			taken[file.ID], numbers[number] = true, true
			l.protocol, l.err = c.attach(l, tlslib.Kind.OncePerConnection)
			f.libraries = append(f.libraries, l)
		}
	}
	return f
}

// giveUp takes out the libraries that no process has any more, as of containers that ended:
// others get their numbers.
func (c *clearSide) giveUp(running func(pid int) bool) (unused []*library) {
	used := map[tlslib.ID]bool{}
	for pid, p := range c.processes {
		if !running(pid) {
			if p.other == "" {
				delete(c.processes, pid)
			}
			continue
		}
		for _, id := range p.files {
			used[id] = true
		}
	}
	for id, l := range c.libraries {
		if !used[id] {
			delete(c.libraries, id)
			unused = append(unused, l)
		}
	}
	return unused
}

func running(pid int) bool { return !errors.Is(unix.Kill(pid, 0), unix.ESRCH) }
