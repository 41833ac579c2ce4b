package request

import (
	"net/netip"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/slowray/slowray/internal/observe"
)

// record is struct record (internal/bpf/headers/request.h).
type record struct {
	commit    uint64
	kind      uint8
	side      uint8
	family    uint8
	status    uint8
	flags     uint32
	start     uint64
	parts     [observe.NumParts]int64
	bytesIn   uint64
	bytesOut  uint64
	endpoint  uint32
	seq       uint32
	pid       uint32
	tid       uint32
	requests  uint32
	weight    uint32
	retrans   uint32
	unacked   uint32
	rttUS     uint32
	minRTTUS  uint32
	connectUS uint32
	dnsUS     uint32
	idleUS    uint32
	_         uint32
	mss       uint16
	http      uint16
	localPort uint16
	peerPort  uint16
	netns     uint32
	proto     uint8
	kept      uint8 // keptHead, keptContext
	hasWork   uint8
	share     uint8
	firstByte uint64
	localAddr [16]byte
	peerAddr  [16]byte
	headers   uint64
	work      [observe.NumServerParts]int64
}

// ring is struct ring.
type ring struct {
	head    uint64
	lost    uint64
	skipped uint64
	busy    uint64
	leftOut uint64
	_       [3]uint64
	tail    uint64
	_       [7]uint64
}

const (
	recordSize   = int(unsafe.Sizeof(record{}))
	ringSize     = int(unsafe.Sizeof(ring{}))
	countersSize = int(unsafe.Sizeof(kernelCounters{}))

	kindRequest = 1
	kindClosed  = 2
	kindTLS     = 3

	familyInet6 = 10
)

func (r *Recorder) ring(cpu int) *ring {
	return (*ring)(unsafe.Pointer(&r.rings[cpu*ringSize]))
}

func (r *Recorder) record(cpu int, number uint64) *record {
	return (*record)(unsafe.Pointer(&r.records[(cpu*int(r.slots)+int(number&(r.slots-1)))*recordSize]))
}

// Poll hands out the records that were written since the last call, oldest
// first for each CPU, and says how many. The request is valid during the call
// of each only. Nothing wakes user space: call it about every 20 ms. It also
// adapts the sampling of records to the budget.
func (r *Recorder) Poll(each func(*observe.Request)) int {
	r.each = each
	n := r.drainAll(each)
	now := time.Now()
	r.tellStreams(now)
	r.tellClear(now)
	r.tellContexts(now)
	r.govern(now)
	return n
}

func (r *Recorder) drainAll(each func(*observe.Request)) int {
	// What streams said before the records up to here were written is there by then.
	for cpu := range r.cpus {
		r.ends[cpu] = atomic.LoadUint64(&r.ring(cpu).head)
	}
	r.headers.poll()
	n := 0
	for cpu := range r.cpus {
		n += r.drain(cpu, r.ends[cpu], each)
	}
	r.stats.Records += uint64(n)
	return n
}

func (r *Recorder) drain(cpu int, head uint64, each func(*observe.Request)) int {
	ring := r.ring(cpu)
	number := ring.tail
	n := 0
	for ; number != head; number++ {
		rec := r.record(cpu, number)
		if atomic.LoadUint64(&rec.commit) != number+1 {
			break // being written: next time
		}
		switch rec.kind {
		case kindRequest:
			r.decode(rec, cpu, number)
			if rec.proto != protoSealed || r.waited(&r.request) {
				each(&r.request)
			}
			n++
		case kindClosed:
			if r.onClosed != nil {
				r.onClosed(r.decodeClosed(rec))
			}
		case kindTLS:
			r.handshake(rec)
		}
		// Give the slots back now and then, not at the end only: the ring
		// must not run full behind a slow consumer.
		if number&255 == 255 {
			atomic.StoreUint64(&ring.tail, number+1)
		}
	}
	atomic.StoreUint64(&ring.tail, number)
	return n
}

func (r *Recorder) decode(rec *record, cpu int, number uint64) {
	q := &r.request
	q.Side = observe.Side(rec.side)
	q.StartNS = int64(rec.start) + r.clock
	q.NetNS = uint64(rec.netns)
	q.Local = rec.addrPort(&rec.localAddr, rec.localPort)
	q.Peer = rec.addrPort(&rec.peerAddr, rec.peerPort)
	q.PID, q.TID = int(rec.pid), int(rec.tid)
	q.Seq, q.Requests, q.Weight = rec.seq, rec.requests, rec.weight
	q.Ledger = rec.parts
	q.BytesIn, q.BytesOut = rec.bytesIn, rec.bytesOut
	q.Unacked, q.Retrans = rec.unacked, rec.retrans
	q.RTTNS, q.MinRTTNS = int64(rec.rttUS)*1000, int64(rec.minRTTUS)*1000
	q.Opening = observe.Opening{}
	if rec.connectUS != 0 {
		q.Opening = observe.Opening{DNS: int64(rec.dnsUS) * 1000, Connect: int64(rec.connectUS) * 1000, Idle: int64(rec.idleUS) * 1000}
	}
	q.MSS = uint32(rec.mss)
	q.Share = rec.share
	q.Status = observe.Status(rec.status)
	q.HTTP = int(rec.http)
	q.Flags = observe.RequestFlags(rec.flags)
	q.FirstByte = int64(rec.firstByte)
	// Frames under TLS are none that programs at packets could read.
	if q.Flags&observe.FlagOverlapped != 0 && rec.proto != protoSealed {
		r.streams.overlap = true
	}
	if rec.proto == protoSealed || !r.payload && q.Flags&observe.FlagOverlapped != 0 {
		r.clear.want(q.PID, q.Flags&observe.FlagOverlapped != 0)
	}
	if q.Followed = rec.hasWork != 0; q.Followed {
		q.Split = rec.work
		q.Split.Fit(q.Ledger[observe.Server])
		r.threads.follow(q.PID)
	}
	q.Label, q.Trace = "", observe.Trace{}
	whole := true
	if rec.kept&keptHead != 0 {
		whole = r.readHead(rec, r.head(cpu, number))
	} else if rec.headers != 0 {
		r.readHeaders(rec)
	}
	if r.opt.Labels {
		r.contexts.want(q.PID)
	}
	if rec.kept&keptContext != 0 && !q.Trace.Known() {
		r.contexts.read(q, r.context(cpu, number))
	}
	if !whole && !q.Trace.Known() {
		r.stats.Headers++
	}
}

func (rec *record) addrPort(addr *[16]byte, port uint16) netip.AddrPort {
	if rec.family == familyInet6 {
		return netip.AddrPortFrom(netip.AddrFrom16(*addr).Unmap(), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(addr[:4])), port)
}

func (r *Recorder) decodeClosed(rec *record) *observe.Closed {
	return &observe.Closed{
		Side: observe.Side(rec.side), TimeNS: int64(rec.start) + r.clock, NetNS: uint64(rec.netns),
		Local: rec.addrPort(&rec.localAddr, rec.localPort), Peer: rec.addrPort(&rec.peerAddr, rec.peerPort),
		Seq: rec.seq, BytesOut: rec.bytesOut, BytesIn: rec.bytesIn, Unacked: rec.unacked, Retrans: rec.retrans,
		MinRTTNS: int64(rec.minRTTUS) * 1000, MSS: uint32(rec.mss),
		Reset: observe.RequestFlags(rec.flags)&observe.FlagReset != 0,
	}
}
