package function

import (
	"time"

	"golang.org/x/sys/unix"
)

// The structures of function.bpf.c, in its order.

type (
	argumentLayout struct {
		Where, Type, Size, Scale uint8
		Reg, Second              uint16
		Offset                   int64
	}
	siteLayout struct {
		Probe                   uint32
		Flags, Failed, NArgs, _ uint8
		Args                    [MaxArgs]argumentLayout
	}
	value struct {
		Number uint64
		Length int32
		_      uint32
		Text   [128]byte
	}
	frameLayout struct {
		SP, Start, CPU, Switches uint64
		Site, Probe              uint32
	}
	threadKey struct {
		ID     uint64
		TGID   uint32
		Domain uint32
	}
	threadLayout struct {
		PidTgid uint64
		Depth   uint32
		_       uint32
		Frames  [32]frameLayout
	}
	sumsLayout struct {
		Calls, Returns, Total, CPU, Max, Failed, Left, Deep, Early, Untimed uint64
	}
	bystanderKey struct {
		Probe, TID uint32
	}
	bystanderLayout struct {
		Calls, Total, Max uint64
		TGID              uint32
		_                 uint32
		Comm              [16]byte
	}
	callLayout struct {
		Probe, Site                   uint32
		PidTgid, Start, Duration, CPU uint64
		Result                        uint64
		UserBytes, KernelBytes        int32
		Comm                          [16]byte
		WithValues, Caller            uint64
		User, Kernel                  [64]uint64
		Values                        [MaxArgs]value
	}
)

const (
	typeNumber = iota
	typeText
	typeTextLength
)

// layout is a site as the programs read it.
func (p *Plan) layout(s *site) siteLayout {
	out := siteLayout{Probe: uint32(s.probe), Flags: s.flags, Failed: failedKinds[p.probes[s.probe].Errors], NArgs: uint8(len(p.probes[s.probe].wanted))}
	for i, at := range s.args {
		a := argumentLayout{Where: uint8(at.where), Size: uint8(at.size), Scale: uint8(at.scale), Reg: at.reg, Second: at.second, Offset: at.offset}
		if at.second == 0 && at.scale == 0 {
			a.Second = noRegister // R15 is never an argument's length
		}
		switch kind := p.probes[s.probe].wanted[i].Type; {
		case at.text:
			a.Type = typeTextLength
		case kind == "gostr":
			a.Type = typeTextLength
		case kind == "str":
			a.Type = typeText
		}
		out.Args[i] = a
	}
	return out
}

// monotonic is the clock of the programs, ns.
func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail on Linux
	return t.Nano()
}

// wallOffset is how far the wall clock is ahead of the monotonic one, ns.
func wallOffset() int64 {
	best, offset := int64(1<<62), int64(0)
	for range 5 {
		before := monotonic()
		wall := time.Now().UnixNano()
		if took := monotonic() - before; took < best {
			best, offset = took, wall-before-took/2
		}
	}
	return offset
}
