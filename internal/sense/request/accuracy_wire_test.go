package request_test

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/lab/capture"
	"github.com/slowray/slowray/lab/link"
	"github.com/slowray/slowray/lab/netns"
)

// Frames of HTTP/2 that a test writes at both ends of a link, at times and positions that it
// knows: each stream is held against the packets that carried its own bytes.

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

var (
	hpackGet = []byte{0x82, 0x86, 0x84} // GET http /, RFC 7541, appendix A
	hpackOK  = []byte{0x88}             // :status 200
)

// wired is one connection.
type wired struct {
	*emulated
	client, server net.Conn
	asked          chan uint32 // streams that the server was asked for
	paused         atomic.Bool // the server reads no more

	mu       sync.Mutex
	out      map[bool]int // bytes written so far, by whether the server did
	answers  map[uint32]*span
	requests map[uint32]*span
}

// span is what was written of a stream at one end.
type span struct {
	from, upto int   // positions
	written    int64 // its first byte, wall clock
	ended      int64 // its last frame
}

// wire opens a connection of HTTP/2 across a link, on which streams are distinguished.
func (e *emulated) wire(setup func(server, client *net.TCPConn), settings []byte) *wired {
	e.t.Helper()
	var l net.Listener
	e.must(netns.Do(e.a.ns, func() (err error) { l, err = net.Listen("tcp", net.JoinHostPort(e.addrA.String(), "0")); return err }))
	e.cleanup(func() { l.Close() })
	open := func() *wired {
		w := &wired{emulated: e, client: e.dialNet(e.b, l.Addr()), asked: make(chan uint32, 100), out: map[bool]int{}, answers: map[uint32]*span{}, requests: map[uint32]*span{}}
		server, err := l.Accept()
		e.must(err)
		e.cleanup(func() { server.Close() })
		w.server = server
		return w
	}
	first := open()
	first.greet(nil)
	go first.readClient(0)
	for deadline, id := time.Now().Add(15*time.Second), uint32(1); e.streams.Load() == 0; id += 4 {
		first.ask(id, id+2)
		first.answer(<-first.asked, 100)
		first.answer(<-first.asked, 100)
		time.Sleep(20 * time.Millisecond)
		if time.Now().After(deadline) {
			e.t.Fatal("HTTP/2 is spoken, and no stream was distinguished")
		}
	}
	w := open()
	if setup != nil {
		setup(w.server.(*net.TCPConn), w.client.(*net.TCPConn))
	}
	w.greet(settings)
	time.Sleep(100 * time.Millisecond)
	return w
}

func (w *wired) greet(settings []byte) {
	w.write(false, 0, append([]byte(preface), frame(4, 0, 0, settings)...))
	go w.readServer()
	w.write(true, 0, frame(4, 0, 0, nil))
}

// write writes what is of a stream.
func (w *wired) write(server bool, id uint32, bytes []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, of := w.client, w.requests
	if server {
		c, of = w.server, w.answers
	}
	now := time.Now().UnixNano()
	s := of[id]
	if s == nil {
		s = &span{from: w.out[server], written: now}
		of[id] = s
	}
	w.out[server] += len(bytes)
	s.upto, s.ended = w.out[server], now
	if _, err := c.Write(bytes); err != nil {
		w.t.Error(err)
	}
}

// ask asks for streams, all in one segment.
func (w *wired) ask(ids ...uint32) {
	for _, id := range ids {
		w.write(false, id, frame(1, 5, id, hpackGet))
	}
}

// answer answers a stream in one write.
func (w *wired) answer(id uint32, size int) { w.write(true, id, answerOf(id, size)) }

func answerOf(id uint32, size int) []byte {
	b := frame(1, 4, id, hpackOK)
	for size > 16384 {
		b = append(b, frame(0, 0, id, make([]byte, 16384))...)
		size -= 16384
	}
	return append(b, frame(0, 1, id, make([]byte, size))...)
}

func (w *wired) readServer() {
	in := bufio.NewReader(w.server)
	_, _ = in.Discard(len(preface))
	for {
		head := make([]byte, 9)
		if _, err := io.ReadFull(in, head); err != nil {
			return
		}
		_, _ = in.Discard(int(head[0])<<16 | int(head[1])<<8 | int(head[2]))
		if head[3] == 1 {
			w.asked <- binary.BigEndian.Uint32(head[5:])
			for w.paused.Load() {
				time.Sleep(time.Millisecond)
			}
		}
	}
}

func (w *wired) readClient(pause time.Duration) {
	time.Sleep(pause)
	_, _ = io.Copy(io.Discard, w.client)
}

// truth is what the packets at one end say of what it sent of a stream.
type truth struct {
	sent, acked int64 // its first byte left; all of it was acknowledged
	resent      int   // segments that were retransmitted, of its bytes
}

// onWire says what the packets of this end's side say of a stream's bytes.
func (w *wired) onWire(packets []capture.Packet, from net.Addr, s *span) truth {
	var t truth
	begin, known := uint32(0), false
	self, port := from.(*net.TCPAddr).AddrPort(), w.client.LocalAddr().(*net.TCPAddr).Port
	sent := 0
	for _, p := range packets {
		if int(p.Src.Port()) != port && int(p.Dst.Port()) != port {
			continue
		}
		if p.Outgoing && p.Src == self {
			if p.Flags&capture.SYN != 0 {
				begin, known = p.Seq+1, true
			}
			if p.Len == 0 || !known {
				continue
			}
			at := int(p.Seq - begin)
			end := at + p.Len
			if end > s.from && t.sent == 0 {
				t.sent = p.TimeNS
			}
			if at < sent && at < s.upto && end > s.from {
				t.resent++
			}
			sent = max(sent, end)
		} else if known && p.Dst == self && t.acked == 0 && int32(p.Ack-begin) >= int32(s.upto) {
			t.acked = p.TimeNS
		}
	}
	return t
}

// streamsOf are the records of the connection's streams of a side, by stream.
func (w *wired) streamsOf(side observe.Side) map[uint32]*observe.Request {
	port, all := w.client.LocalAddr().(*net.TCPAddr).Port, map[uint32]*observe.Request{}
	for _, r := range w.of(side) {
		peer := r.Peer
		if side == observe.Called {
			peer = r.Local
		}
		if int(peer.Port()) != port || r.Flags&observe.FlagMultiplexed == 0 || r.Flags&observe.FlagUnfinished != 0 {
			continue
		}
		id := 2*r.Seq - 1
		if all[id] != nil {
			w.errorf("two records of stream %d", id)
		}
		all[id] = r
		var sum int64
		for p, ns := range r.Ledger {
			if observe.Part(p) != observe.AckDelay {
				sum += ns
			}
			if ns < 0 {
				w.errorf("a part is negative: %s", describe(r, r.StartNS))
			}
		}
		if sum != r.TotalNS() {
			w.errorf("parts add up to %d of %d", sum, r.TotalNS())
		}
	}
	return all
}

// TestStreamsLostByPosition: a lost segment is the time of the streams whose bytes are in it or
// behind it, and of no other; held against the packets.
func TestStreamsLostByPosition(t *testing.T) {
	measure(t, func(tr *trial) {
		const delay, size = 5 * time.Millisecond, 300
		const rtt = 2 * delay
		e := tr.across(link.Settings{Delay: delay}, link.Settings{Delay: delay})
		w := e.wire(nil, nil)
		go w.readClient(0)
		w.ask(1, 3, 5, 7, 9, 11, 13)
		for range 7 {
			<-w.asked
		}
		w.answer(11, size) // a round trip of its own
		time.Sleep(10 * rtt)
		w.answer(7, size) // right before what is lost
		time.Sleep(time.Millisecond)
		e.link.Pick(link.AtoB, &link.Pick{Push: true, Times: 1})
		w.answer(1, size)
		time.Sleep(50 * time.Millisecond)
		w.answer(3, size) // behind it
		time.Sleep(400 * time.Millisecond)
		w.answer(5, size)
		time.Sleep(10 * rtt)
		// In the socket, behind what waits for a window that what is lost keeps closed.
		e.link.Pick(link.AtoB, &link.Pick{Every: 9, Times: 1})
		w.answer(9, 60_000)
		w.answer(13, size)
		time.Sleep(settle + 400*time.Millisecond)
		tr.must(w.client.Close())
		time.Sleep(settle)
		e.finish()
		records := w.streamsOf(observe.Served)
		if len(records) != 7 {
			tr.errorf("%d records of 7 streams", len(records))
		}
		for _, id := range []uint32{1, 3, 5, 7, 9, 11, 13} {
			r, s := records[id], w.answers[id]
			if r == nil {
				continue
			}
			x := w.onWire(e.tapA.packets, w.server.LocalAddr(), s)
			lost := time.Duration(x.acked-s.ended) - rtt
			tr.t.Logf("stream %d: left after %s, acknowledged after %s, %d resent: %s", id, time.Duration(x.sent-s.written), time.Duration(x.acked-s.ended), x.resent, describe(r, r.StartNS))
			tr.within("server", time.Duration(r.StartNS+r.FirstByte-s.written), 0, little)
			tr.within("end − acknowledgement", time.Duration(r.StartNS+r.TotalNS()+r.Ledger[observe.AckDelay]-x.acked), 0, p99Limit)
			tr.below("unaccounted", time.Duration(r.Ledger[observe.Unaccounted]), 0)
			tr.below("stall", time.Duration(r.Ledger[observe.Stall]), 0)
			if int(r.Retrans) != x.resent {
				tr.errorf("stream %d: %d segments retransmitted, in the packets %d", id, r.Retrans, x.resent)
			}
			retrans := time.Duration(r.Ledger[observe.Retrans])
			switch id {
			case 1, 3:
				tr.within("retrans", retrans, lost, 2*time.Millisecond)
				tr.below("network", time.Duration(r.Ledger[observe.Network]), rtt+2*time.Millisecond)
			case 9, 13: // of many round trips
				tr.within("retrans", retrans, rtt, rtt)
				if retrans == 0 {
					tr.errorf("stream %d waited for nothing that was lost", id)
				}
			default:
				tr.below("retrans", retrans, 0)
			}
		}
	})
}

// TestStreamsLostRequest: the calling end knows which stream's request was lost.
func TestStreamsLostRequest(t *testing.T) {
	measure(t, func(tr *trial) {
		const delay, size = 5 * time.Millisecond, 300
		const pause = 20 * delay
		e := tr.across(link.Settings{Delay: delay}, link.Settings{Delay: delay})
		w := e.wire(nil, nil)
		go w.readClient(0)
		go func() {
			for id := range w.asked {
				w.answer(id, size)
			}
		}()
		w.ask(1)
		time.Sleep(pause)
		e.link.Pick(link.BtoA, &link.Pick{Push: true, Times: 1})
		w.ask(3)
		time.Sleep(400 * time.Millisecond)
		w.ask(5)
		time.Sleep(pause)
		tr.must(w.client.Close())
		time.Sleep(settle)
		e.finish()
		records := w.streamsOf(observe.Called)
		if len(records) != 3 {
			tr.errorf("%d records of 3 streams", len(records))
		}
		for id, r := range records {
			x := w.onWire(e.tapB.packets, w.client.LocalAddr(), w.requests[id])
			tr.t.Logf("stream %d: acknowledged after %s, %d resent: %s", id, time.Duration(x.acked-x.sent), x.resent, describe(r, r.StartNS))
			if int(r.Retrans) != x.resent {
				tr.errorf("stream %d: %d segments retransmitted, in the packets %d", id, r.Retrans, x.resent)
			}
			// The answer comes with the acknowledgement.
			more := time.Duration(x.acked - x.sent - r.MinRTTNS)
			if id == 3 {
				tr.within("retrans", time.Duration(r.Ledger[observe.Retrans]), more, 2*time.Millisecond)
				tr.below("server", time.Duration(r.Ledger[observe.Server]), 2*time.Millisecond)
			} else {
				tr.below("retrans", time.Duration(r.Ledger[observe.Retrans]), 0)
				tr.within("server", time.Duration(r.Ledger[observe.Server]), more, 2*time.Millisecond)
			}
		}
	})
}

// TestStreamsZeroWindow: a client that does not read, with as much of HTTP/2's windows as there
// can be. How long the receiver's window kept bytes back the kernel counts, too (TCP_INFO).
func TestStreamsZeroWindow(t *testing.T) {
	measure(t, func(tr *trial) {
		const pause = 400 * time.Millisecond
		e := tr.across(link.Settings{Delay: time.Millisecond}, link.Settings{Delay: time.Millisecond})
		most := []byte{0, 4, 0x7f, 0xff, 0xff, 0xff} // SETTINGS_INITIAL_WINDOW_SIZE
		w := e.wire(func(server, client *net.TCPConn) {
			tr.must(client.SetReadBuffer(20_000))
			tr.must(server.SetWriteBuffer(1 << 20))
		}, most)
		w.ask(1)
		<-w.asked
		w.answer(1, 300_000)
		go w.readClient(pause)
		time.Sleep(pause + 600*time.Millisecond)
		var limited time.Duration
		raw, err := w.server.(*net.TCPConn).SyscallConn()
		tr.must(err)
		tr.must(raw.Control(func(fd uintptr) {
			info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
			tr.must(err)
			limited = time.Duration(info.Rwnd_limited) * time.Microsecond
		}))
		tr.must(w.client.Close())
		time.Sleep(settle)
		e.finish()
		r := w.streamsOf(observe.Served)[1]
		if r == nil {
			tr.errorf("no record")
			return
		}
		tr.t.Log(describe(r, r.StartNS))
		if limited < pause/2 {
			tr.errorf("the kernel says that the window kept bytes back for %s of %s", limited, pause)
		}
		tr.within("send_wait", time.Duration(r.Ledger[observe.SendWait]), limited, limited/20)
		tr.below("server", time.Duration(r.Ledger[observe.Server]), 10*time.Millisecond)
		if r.Flags&observe.FlagRecvWindow == 0 {
			tr.errorf("flags %v", r.Flags.Names())
		}
	})
}

// TestStreamsPause: an application that pauses in its answer, and one that waits for the other
// end's flow control, which the recorder does not take for a pause.
func TestStreamsPause(t *testing.T) {
	measure(t, func(tr *trial) {
		const delay, pause = 2 * time.Millisecond, 120 * time.Millisecond
		e := tr.across(link.Settings{Delay: delay}, link.Settings{Delay: delay})
		w := e.wire(nil, nil)
		go w.readClient(0)
		w.ask(1, 3, 5)
		for range 3 {
			<-w.asked
		}
		half := func(id uint32, last byte) []byte { return frame(0, last, id, make([]byte, 500)) }
		for _, id := range []uint32{1, 3} {
			w.write(true, id, append(frame(1, 4, id, hpackOK), half(id, 0)...))
		}
		began := time.Now().UnixNano()
		w.answer(5, 100) // meanwhile
		time.Sleep(pause)
		w.write(false, 0, frame(8, 0, 3, []byte{0, 0, 1, 0})) // WINDOW_UPDATE of 3
		time.Sleep(delay + 10*time.Millisecond)
		w.write(true, 3, half(3, 1))
		w.write(true, 1, half(1, 1))
		paused := time.Duration(w.answers[1].ended - began)
		time.Sleep(settle)
		tr.must(w.client.Close())
		time.Sleep(settle)
		e.finish()
		for _, side := range []observe.Side{observe.Served, observe.Called} {
			records := w.streamsOf(side)
			for _, id := range []uint32{1, 3, 5} {
				if records[id] == nil {
					tr.errorf("%s: no record of stream %d", side, id)
					continue
				}
				r := records[id]
				tr.t.Logf("%s %d: %s", side, id, describe(r, r.StartNS))
				stall, unknown := time.Duration(r.Ledger[observe.Stall]), time.Duration(r.Ledger[observe.Unaccounted])
				switch id {
				case 1:
					tr.within("stall", stall, paused-2*delay, 2*time.Millisecond)
					tr.below("unaccounted", unknown, 0)
				case 3:
					tr.below("stall", stall, 20*time.Millisecond)
					tr.within("unaccounted", unknown, pause, 10*time.Millisecond)
				case 5:
					tr.below("stall", stall, 0)
				}
			}
		}
	})
}

// TestStreamsReadLate: requests that lie in the socket until the server reads them.
func TestStreamsReadLate(t *testing.T) {
	measure(t, func(tr *trial) {
		const late = 80 * time.Millisecond
		e := tr.across(link.Settings{Delay: time.Millisecond}, link.Settings{Delay: time.Millisecond})
		w := e.wire(nil, nil)
		go w.readClient(0)
		var read [2]int64
		w.paused.Store(true)
		w.ask(1) // the reader waits in its read call, and has this one
		<-w.asked
		w.ask(3)
		time.Sleep(late)
		read[0] = time.Now().UnixNano()
		w.paused.Store(false)
		<-w.asked
		read[1] = time.Now().UnixNano()
		w.answer(1, 100)
		w.answer(3, 100)
		time.Sleep(settle)
		tr.must(w.client.Close())
		time.Sleep(settle)
		e.finish()
		records := w.streamsOf(observe.Served)
		if records[1] == nil || records[3] == nil {
			tr.errorf("%d records of 2 streams", len(records))
			return
		}
		tr.below("read at once: recv_wait", time.Duration(records[1].Ledger[observe.RecvWait]), little)
		r := records[3]
		at := r.StartNS + r.Ledger[observe.Upload] + r.Ledger[observe.RecvWait]
		if at < read[0] || at > read[1] {
			tr.errorf("read between %d and %d, said to be %d: %s", 0, read[1]-read[0], at-read[0], describe(r, r.StartNS))
		}
		arrived := w.arrived(e.tapA.packets, w.requests[3].upto)
		tr.within("recv_wait", time.Duration(r.Ledger[observe.RecvWait]), time.Duration(at-arrived), p99Limit)
	})
}

// arrived is when the last byte up to a position came in that the client sent.
func (w *wired) arrived(packets []capture.Packet, upto int) int64 {
	begin, from := uint32(0), w.client.LocalAddr().(*net.TCPAddr).AddrPort()
	for _, p := range packets {
		if p.Outgoing || p.Src != from {
			continue
		}
		if p.Flags&capture.SYN != 0 {
			begin = p.Seq + 1
		} else if int(p.Seq-begin)+p.Len >= upto && p.Len > 0 {
			return p.TimeNS
		}
	}
	return 0
}
