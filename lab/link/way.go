package link

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	defaultQueue = 1000
	// underWayMax bounds the packets in memory: 17 ms at the 100,000 packets a
	// second that a thread can pass on are 1,700.
	underWayMax = 1 << 16
	// batch is how many packets are read before those that are due are sent.
	batch = 64
)

// way passes packets on in one direction, on a thread of its own.
type way struct {
	in, out  int
	settings atomic.Pointer[Settings]
	picks    atomic.Pointer[picker]
	stopped  atomic.Bool
	wake     waker
	count    count
	base     time.Time

	// Of the thread only. What is lost must not depend on whether there is
	// jitter, so each has its own source.
	loss, jitter *rand.Rand
	packets      ring
	leaves       int64 // when the last packet has left the queue, ns since base
	due          int64 // of the last packet: none overtakes it
	overtake     bool  // … but for the next one
}

func newWay(in, out int, s Settings, seed *rand.PCG) (*way, error) {
	w := &way{in: in, out: out, base: time.Now()}
	w.loss = rand.New(seed)
	w.jitter = rand.New(rand.NewPCG(seed.Uint64(), 1))
	w.set(s)
	return w, w.wake.open()
}

func (w *way) set(s Settings) {
	if s.Queue <= 0 {
		s.Queue = defaultQueue
	}
	w.settings.Store(&s)
}

func (w *way) pick(p *Pick) {
	if p == nil {
		w.picks.Store(nil)
		return
	}
	w.picks.Store(&picker{Pick: *p})
}

func (w *way) stop() {
	w.stopped.Store(true)
	w.wake.wake()
}

func (w *way) now() int64 { return int64(time.Since(w.base)) }

// run passes packets on until it is stopped. Its thread ends with it.
func (w *way) run() {
	runtime.LockOSThread()
	// By default a sleeping thread may be woken up to 50 µs late.
	unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	// The servers may use all of the CPU. Without the right to do so (it takes
	// CAP_SYS_NICE) packets are later, which the counters tell.
	unix.Setpriority(unix.PRIO_PROCESS, 0, -20)
	for !w.stopped.Load() {
		w.send()
		if w.wait() {
			w.receive()
		}
	}
}

// send passes on what is due.
func (w *way) send() {
	for p := w.packets.first(); p != nil && p.due <= w.now(); p = w.packets.first() {
		if _, err := unix.Write(w.out, p.data[:p.length]); err != nil {
			w.count.refused.Add(1)
		} else {
			w.count.sent.Add(1)
			w.count.sentBytes.Add(uint64(p.length))
			w.count.wasLate(w.now() - p.due)
		}
		w.packets.drop()
	}
}

// wait sleeps until the next packet is due and reports whether one came in.
func (w *way) wait() bool {
	fds := [2]unix.PollFd{{Fd: int32(w.in), Events: unix.POLLIN}, {Fd: int32(w.wake.fd), Events: unix.POLLIN}}
	var timeout *unix.Timespec
	if p := w.packets.first(); p != nil {
		ts := unix.NsecToTimespec(max(0, p.due-w.now()))
		timeout = &ts
	}
	n, err := unix.Ppoll(fds[:], timeout, nil)
	return err == nil && n > 0 && fds[0].Revents&unix.POLLIN != 0
}

// receive takes what has come in and decides what becomes of it.
func (w *way) receive() {
	s, picks := w.settings.Load(), w.picks.Load()
	for range batch {
		p := w.packets.spare()
		n, err := unix.Read(w.in, p.data[:])
		if err != nil || n <= 0 {
			return
		}
		w.count.received.Add(1)
		w.count.receivedBytes.Add(uint64(n))
		now := w.now()
		switch {
		// Chance is asked about each packet, whatever else happens to it: so
		// its answers depend on their order only.
		case s.Loss > 0 && w.loss.Float64() < s.Loss:
			w.count.lost.Add(1)
		case picks != nil && picks.takes(p.data[:n]):
			w.count.picked.Add(1)
			w.picked(p, n, now, s, picks.Fate)
		case w.packets.full() || s.Rate > 0 && w.packets.waiting(now) >= s.Queue:
			w.count.tailDropped.Add(1)
		default:
			w.admit(p, n, now, s)
		}
	}
}

// picked does to a packet what it was picked for.
func (w *way) picked(p *packet, n int, now int64, s *Settings, fate Fate) {
	switch fate {
	case Lost:
		return
	case Damaged:
		damage(p.data[:n])
	case Outdated:
		outdate(p.data[:n])
	}
	if w.packets.full() {
		return
	}
	w.admit(p, n, now, s)
	w.overtake = fate == Overtaken
}

// admit puts a packet under way.
func (w *way) admit(p *packet, n int, now int64, s *Settings) {
	w.leaves = max(w.leaves, now)
	if s.Rate > 0 {
		w.leaves += int64(float64(n) * 8 * float64(time.Second) / s.Rate)
	} else {
		w.leaves = now
	}
	due := w.leaves + int64(s.Delay)
	if s.Jitter > 0 {
		due += int64((2*w.jitter.Float64() - 1) * float64(s.Jitter))
	}
	w.due = max(w.due, due)
	p.length, p.leaves, p.due = n, w.leaves, w.due
	w.packets.push()
	if w.overtake {
		w.overtake = false
		w.packets.swap()
	}
}

// packet is one packet under way.
type packet struct {
	length      int
	leaves, due int64 // ns since the base
	data        [2048]byte
}

// ring holds the packets under way in the order in which they are due. It
// grows, and keeps what it once needed.
type ring struct {
	slots             []*packet
	head, queue, next uint64 // first under way, first still waiting for the rate, next free
	over              packet // for one packet more than there may be
}

func (r *ring) at(n uint64) *packet { return r.slots[n%uint64(len(r.slots))] }

func (r *ring) full() bool { return r.next-r.head >= underWayMax }

// spare is where the next packet goes.
func (r *ring) spare() *packet {
	if r.full() {
		return &r.over
	}
	if r.next-r.head == uint64(len(r.slots)) {
		r.grow()
	}
	return r.at(r.next)
}

func (r *ring) grow() {
	more := make([]*packet, max(256, 2*len(r.slots)))
	count := r.next - r.head
	for n := range count {
		more[n] = r.at(r.head + n)
	}
	fresh := make([]packet, uint64(len(more))-count)
	for n := range fresh {
		more[count+uint64(n)] = &fresh[n]
	}
	r.queue -= r.head
	r.slots, r.head, r.next = more, 0, count
}

func (r *ring) push() { r.next++ }

// swap has the last packet leave in the place of the one before it.
func (r *ring) swap() {
	if r.next-r.head < 2 {
		return
	}
	a, b := r.at(r.next-2), r.at(r.next-1)
	a.data, b.data = b.data, a.data
	a.length, b.length = b.length, a.length
}

func (r *ring) first() *packet {
	if r.head == r.next {
		return nil
	}
	return r.at(r.head)
}

func (r *ring) drop() {
	r.head++
	r.queue = max(r.queue, r.head)
}

// waiting is how many packets still wait for the rate.
func (r *ring) waiting(now int64) int {
	for r.queue < r.next && r.at(r.queue).leaves <= now {
		r.queue++
	}
	return int(r.next - r.queue)
}

// waker ends a wait.
type waker struct {
	fd   int
	once sync.Once
}

func (k *waker) open() (err error) {
	if k.fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("link: eventfd: %w", err)
	}
	return nil
}

func (k *waker) wake() {
	one := uint64(1)
	unix.Write(k.fd, (*[8]byte)(unsafe.Pointer(&one))[:])
}

func (k *waker) close() { k.once.Do(func() { unix.Close(k.fd) }) }
