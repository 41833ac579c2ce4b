package wait

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
)

const (
	maxInferred  = 4       // hops of a search through event loops
	maxOutputs   = 8       // pipes that one process writes to and that are searched
	fullUnixSend = 1 << 17 // bytes of memory: most of net.core.wmem_default, 208 KiB
)

// stuckInstead looks for what holds up a process that has no thread blocked and
// yet does not read: an event loop (Go, Node, nginx) never sleeps in a write,
// it leaves what it cannot write for later and stops reading. Its own output
// that does not move is then the likely reason. Nil when there is none, or when
// nothing is to be explained.
func (l *look) stuckInstead(last *step, t *thread, k *link) *link {
	if last.link.wants != observe.WantsRoom || rank(k) <= likely {
		return nil
	}
	return l.stuckOutput(t, map[int]bool{last.t.p.pid: true}, 0)
}

// stuckOutput is the output of a process that does not move, as a wait of its
// thread t; nil when there is none.
func (l *look) stuckOutput(t *thread, seen map[int]bool, depth int) *link {
	if seen[t.p.pid] || depth > maxInferred {
		return nil
	}
	seen[t.p.pid] = true
	held := l.opened().by(t.p.pid)
	if k := l.stuckSocket(t, held); k != nil {
		return k
	}
	searched := 0
	for _, h := range held {
		if h.key&1 != 0 || searched == maxOutputs {
			continue
		}
		if _, write := accessOf(l.fdInfo(int(h.pid), int(h.fd))); !write {
			continue
		}
		searched++
		if k := l.stuckPipe(t, l.object(t, int(h.fd)), seen, depth); k != nil {
			return k
		}
	}
	return l.stuckFIFO(t, seen, depth, searched)
}

// stuckSocket is the socket of a process whose bytes to send lie longest.
func (l *look) stuckSocket(t *thread, held []holding) *link {
	n := l.networkOf(t.p)
	if n == nil {
		return nil
	}
	l.unixSockets(n)
	var worst *link
	var most uint32
	for _, h := range held {
		if h.key&1 == 0 {
			continue
		}
		inode := h.key >> 1
		o := object{kind: socketObject, fd: int(h.fd), inode: inode, link: fmt.Sprintf("socket:[%d]", inode)}
		if i, ok := n.byInode[inode]; ok {
			q := &n.tcp[i]
			if q.State != "LISTEN" && q.Send > most && q.InfoKnown && q.LastSent >= stuckSince {
				most, worst = q.Send, l.onTCP(t, o, n, q, writing)
			}
		} else if i, ok := n.byUnix[inode]; ok {
			u := &n.unix[i]
			if !u.Listening && u.Type != unix.SOCK_DGRAM && u.Send >= fullUnixSend && u.Send > most {
				most, worst = u.Send, l.onUnix(t, o, n, u, writing)
			}
		}
	}
	if worst == nil {
		return nil
	}
	return inferred(worst)
}

// inferred marks a wait that was not seen in a call.
func inferred(k *link) *link {
	out := *k
	out.sure = false
	out.detail = join(out.detail, "inferred: no thread is in a call on it, but it does not move")
	return &out
}

// stuckPipe is a pipe that a process writes to, when its reader is stuck.
func (l *look) stuckPipe(t *thread, o object, seen map[int]bool, depth int) *link {
	if o.kind != pipeObject && o.kind != fifoObject {
		return nil
	}
	k := l.onPipe(t, o, writing)
	for _, to := range k.targets {
		reader := l.process(to.pid)
		if reader.gone || len(reader.threads) == 0 || seen[reader.pid] {
			continue
		}
		if l.stuckReader(reader, seen, depth) {
			out := inferred(k)
			out.targets = []target{to}
			return out
		}
	}
	return nil
}

// stuckReader says whether a process cannot come round to reading: because it
// is stopped, or cannot get rid of its own output.
func (l *look) stuckReader(p *process, seen map[int]bool, depth int) bool {
	l.complete(p)
	for _, t := range p.threads {
		k := l.linkOf(t)
		if rank(k) == 0 && k.wants != observe.WantsRelease {
			return true
		}
	}
	// The search itself must stay able to come by here again.
	return l.stuckOutput(p.threads[0], cloneSet(seen), depth+1) != nil
}

func cloneSet(s map[int]bool) map[int]bool {
	out := make(map[int]bool, len(s))
	for k, v := range s {
		out[k] = v
	}
	return out
}

// stuckFIFO is a FIFO that a process writes to, when its reader is stuck.
func (l *look) stuckFIFO(t *thread, seen map[int]bool, depth, searched int) *link {
	var fds []int
	for _, list := range l.opened().named {
		for _, h := range list {
			if int(h.pid) == t.p.pid {
				fds = append(fds, int(h.fd))
			}
		}
	}
	slices.Sort(fds)
	for _, fd := range fds {
		if searched == maxOutputs {
			return nil
		}
		o := l.object(t, fd)
		if o.kind != fifoObject {
			continue
		}
		if _, write := accessOf(l.fdInfo(t.p.pid, fd)); !write {
			continue
		}
		searched++
		if k := l.stuckPipe(t, o, seen, depth); k != nil {
			return k
		}
	}
	return nil
}
