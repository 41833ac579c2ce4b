package request

import (
	"math/bits"

	"github.com/cilium/ebpf"

	"github.com/slowray/slowray/internal/bpf"
)

// Which connections are followed, see follow_share in connection.h.

const (
	// roundSeconds is how long a round lasts at least: then each connection has had its
	// turn, in a window of ten seconds several times.
	roundSeconds = 1
	// A fifth of a second is how late a call may be seen where nothing tells of its
	// sending: by its acknowledgement (TCP_DELACK_MAX, include/net/tcp.h).
	seenLatePerSecond = 5
)

// round is the time that it takes for each connection to have its turn.
type round struct {
	bits uint // log2 of its jiffies
	hz   uint32
}

func roundOf(hz uint32) round {
	if hz == 0 {
		hz = 250
	}
	return round{uint(bits.Len32(roundSeconds * hz)), hz}
}

// slice is how many jiffies a turn has where one of 2^share is followed; reach for how long
// connections are looked at.
func (r round) slice(share uint, sendsSeen bool) (slice, reach uint32) {
	slice = 1 << (r.bits - min(share, r.bits))
	reach = slice + 2 // a time in ns is that of a jiffy more or less
	if !sendsSeen {
		reach += r.hz / seenLatePerSecond
	}
	return slice, min(reach, 1<<r.bits)
}

// followVariables are those of programs that follow connections.
type followVariables struct {
	shift, mask, slice, reach, share, sends *ebpf.Variable
}

func (v *followVariables) set(r round, share uint, sendsSeen bool) {
	slice, reach := r.slice(share, sendsSeen)
	// The variables are mapped memory: setting them cannot fail after Start. The share
	// comes last: what is counted too little for an instant is little.
	_ = v.shift.Set(uint32(32 - r.bits))
	_ = v.mask.Set(uint32(1)<<r.bits - 1)
	_ = v.slice.Set(slice)
	_ = v.reach.Set(reach)
	_ = v.sends.Set(flag(sendsSeen))
	_ = v.share.Set(uint8(share))
}

// follow has one of 2^share connections followed.
func (r *Recorder) follow(share uint) {
	r.share = share
	if r.round.bits == 0 {
		var hz uint32
		_ = r.objects.Hz.Get(&hz)
		r.round = roundOf(hz)
	}
	seen := r.sendingLink != nil || r.extra[bpf.RequestProgSent] != nil
	o := &r.objects
	(&followVariables{o.FollowShift, o.FollowMask, o.FollowSlice, o.FollowReach, o.FollowShare, o.FollowSends}).set(r.round, share, seen)
	for _, p := range r.streamReaders() {
		p.set(r.round, share, seen)
	}
}
