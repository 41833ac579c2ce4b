package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Flags are the flags of a TCP header.
type Flags uint8

// The flags, RFC 9293 section 3.1.
const (
	FIN Flags = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
)

// Packet is a TCP segment as it crossed an interface. With segmentation
// offload (GSO, GRO) one packet stands for many on a wire.
type Packet struct {
	// TimeNS is CLOCK_REALTIME when the kernel's packet tap saw it: after the
	// TCP stack sent it, before the TCP stack received it.
	TimeNS int64
	// Outgoing tells a packet that was being sent from one that had arrived.
	// On lo every packet is seen twice, once each way.
	Outgoing bool
	Src, Dst netip.AddrPort
	Seq, Ack uint32
	Flags    Flags
	Window   uint16 // as in the header, not scaled
	Len      int    // payload bytes
	MSS      int    // of the option in a SYN; 0 = none
	TSVal    uint32 // of the time stamp option; 0 = none
	Data     []byte // what was kept of the payload, see Options.Snap
}

// String is one line like tcpdump's.
func (p Packet) String() string {
	way := "in"
	if p.Outgoing {
		way = "out"
	}
	flags := ""
	for i, name := range []string{"F", "S", "R", "P", ".", "U"} {
		if p.Flags&(1<<i) != 0 {
			flags += name
		}
	}
	return fmt.Sprintf("%s %-3s %s > %s [%s] seq %d ack %d win %d len %d",
		time.Unix(0, p.TimeNS).UTC().Format("15:04:05.000000000"), way, p.Src, p.Dst, flags, p.Seq, p.Ack, p.Window, p.Len)
}

var (
	errNotTCP = errors.New("not TCP")
	errShort  = errors.New("cut before the end of its headers")
)

// parse reads the headers of a packet that begins with its IP header. The
// length is that of the whole packet, which may be longer than what was kept.
func parse(b []byte, length int) (Packet, error) {
	if len(b) < 20 {
		return Packet{}, errNotTCP
	}
	switch b[0] >> 4 {
	case 4:
		return parse4(b, length)
	case 6:
		return parse6(b, length)
	}
	return Packet{}, errNotTCP
}

func parse4(b []byte, length int) (Packet, error) {
	const protocolTCP = 6
	header := int(b[0]&15) * 4
	if b[9] != protocolTCP || header < 20 || binary.BigEndian.Uint16(b[6:])&0x1fff != 0 {
		return Packet{}, errNotTCP
	}
	// An Ethernet frame may be padded. A super-frame above 64 KiB has the
	// length 0 (BIG TCP, Linux 6.3, b1a78b9b9886).
	if total := int(binary.BigEndian.Uint16(b[2:])); total != 0 {
		length = total
	}
	src, dst := netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	return parseTCP(b, header, length, src, dst)
}

func parse6(b []byte, length int) (Packet, error) {
	const headerTCP, headerHopByHop, headerLen = 6, 0, 40
	if len(b) < headerLen {
		return Packet{}, errShort
	}
	next, at := b[6], headerLen
	if next == headerHopByHop { // the jumbo option of a super-frame above 64 KiB
		if len(b) < at+8 {
			return Packet{}, errShort
		}
		next, at = b[at], at+8+int(b[at+1])*8
	}
	if next != headerTCP {
		return Packet{}, errNotTCP
	}
	if payload := int(binary.BigEndian.Uint16(b[4:])); payload != 0 {
		length = headerLen + payload
	}
	return parseTCP(b, at, length, netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40])))
}

// parseTCP reads the TCP header that begins at an offset.
func parseTCP(b []byte, at, length int, src, dst netip.Addr) (Packet, error) {
	if len(b) < at+20 {
		return Packet{}, errShort
	}
	h := b[at:]
	header := int(h[12]>>4) * 4
	if header < 20 || len(h) < header || length < at+header {
		return Packet{}, errShort
	}
	p := Packet{
		Src:    netip.AddrPortFrom(src, binary.BigEndian.Uint16(h)),
		Dst:    netip.AddrPortFrom(dst, binary.BigEndian.Uint16(h[2:])),
		Seq:    binary.BigEndian.Uint32(h[4:]),
		Ack:    binary.BigEndian.Uint32(h[8:]),
		Flags:  Flags(h[13] & 0x3f),
		Window: binary.BigEndian.Uint16(h[14:]),
		Len:    length - at - header,
	}
	p.options(h[20:header])
	p.Data = h[header:min(len(h), header+p.Len)]
	return p, nil
}

// options reads the options that are of use here and stops at a broken one.
func (p *Packet) options(b []byte) {
	const end, nop, mss, timestamp = 0, 1, 2, 8
	for len(b) > 0 && b[0] != end {
		if b[0] == nop {
			b = b[1:]
			continue
		}
		if len(b) < 2 || b[1] < 2 || int(b[1]) > len(b) {
			return
		}
		switch option := b[:b[1]]; {
		case b[0] == mss && len(option) == 4:
			p.MSS = int(binary.BigEndian.Uint16(option[2:]))
		case b[0] == timestamp && len(option) == 10:
			p.TSVal = binary.BigEndian.Uint32(option[2:])
		}
		b = b[b[1]:]
	}
}
