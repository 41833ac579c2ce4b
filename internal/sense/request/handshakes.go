package request

import (
	"net/netip"

	"github.com/slowray/slowray/internal/observe"
)

// What is known of a handshake: enum tls_is (internal/bpf/headers/connection.h).
const (
	tlsV12 uint16 = 1 << iota
	tlsV13
	tlsFull
	tlsResumed
	tlsOffered
)

// handshakePeer is the two ends of handshakes.
type handshakePeer struct {
	at   counterKey
	addr netip.Addr
}

// handshake counts a handshake of TLS, and those that it stands for. As many addresses have room as in the kernel.
func (r *Recorder) handshake(rec *record) {
	c := Counters{Side: observe.Side(rec.side), NetNS: uint64(rec.netns)}
	at := rec.addrPort(&rec.localAddr, rec.localPort)
	if c.Side == observe.Called {
		at = rec.addrPort(&rec.peerAddr, rec.peerPort)
	}
	c.Addr, c.Port = at.Addr(), at.Port()
	t := r.handshakes[c.key()]
	if t == nil {
		if len(r.handshakes) >= maxAddresses {
			return
		}
		if r.handshakes == nil {
			r.handshakes = map[counterKey]*Counters{}
		}
		t = &c
		r.handshakes[c.key()] = t
	}
	n := uint64(1) << (rec.share & 31) // it stands for so many
	if observe.Status(rec.status) == observe.StatusError {
		t.TLSFailed += n
		return
	}
	t.TLS += n
	t.TLSNS += int64(n) * rec.parts[observe.TLS]
	s := &t.TLSStats
	s.ServerNS += int64(n) * rec.parts[observe.Server]
	s.ClientNS += int64(n) * rec.parts[observe.Upload]
	s.NetworkNS += int64(n) * rec.parts[observe.Network]
	for _, k := range [...]struct {
		is    uint16
		count *uint64
	}{{tlsV12, &s.V12}, {tlsV13, &s.V13}, {tlsFull, &s.Full}, {tlsResumed, &s.Resumed}, {tlsFull | tlsOffered, &s.Refused}} {
		if rec.http&k.is == k.is {
			*k.count += n
		}
	}
	peer := handshakePeer{c.key(), rec.addrPort(&rec.peerAddr, 0).Addr()}
	if c.Side == observe.Called {
		peer.addr = rec.addrPort(&rec.localAddr, 0).Addr()
	}
	if rec.http&tlsFull != 0 && r.shookHands[peer] {
		s.Again += n
	}
	if len(r.shookHands) >= maxAddresses {
		clear(r.shookHands)
	}
	if r.shookHands == nil {
		r.shookHands = map[handshakePeer]bool{}
	}
	r.shookHands[peer] = true
}
