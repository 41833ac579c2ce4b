package link

import "encoding/binary"

// Fate is what becomes of a packet that is picked.
type Fate string

// The fates.
const (
	Lost      Fate = ""
	Damaged   Fate = "damaged"   // a bit of it is another, and its checksum wrong
	Overtaken Fate = "overtaken" // by the next packet, if that comes in before this one has left
	Outdated  Fate = "outdated"  // its TCP timestamp is older than any that the other end has seen
)

// Pick chooses packets by what they are, to lose them or to harm them otherwise.
// Retransmissions count as packets of their own.
type Pick struct {
	Fate  Fate
	Port  int  // TCP port of either end; 0 = any
	SYN   bool // segments that open a connection, and not those with payload
	Push  bool // only segments with the PSH flag: the last of what was written
	Every int  // the Every-th of those that match is lost, and so on; 0 and 1 = each
	Times int  // after so many, no more are lost; 0 = no end
}

// outdatedBy is how much older a timestamp is made, in its unit of 1 ms.
const outdatedBy = 1 << 20

// damage turns a bit of the last byte.
func damage(packet []byte) {
	if len(packet) > 0 {
		packet[len(packet)-1] ^= 1
	}
}

// outdate sets the timestamp of a TCP segment back, with its checksum.
func outdate(packet []byte) {
	const end, nop, timestamp = 0, 1, 8
	tcp := tcpSegment(packet)
	if len(tcp) < 20 {
		return
	}
	head := min(len(tcp), int(tcp[12]>>4)*4)
	for at := 20; at+1 < head && tcp[at] != end; {
		size := int(tcp[at+1])
		switch {
		case tcp[at] == nop:
			at++
			continue
		case size < 2 || at+size > head:
			return
		case tcp[at] != timestamp || size != 10:
			at += size
			continue
		}
		// Of its upper half, which RFC 1624 has the checksum follow: at an odd offset
		// with its bytes the other way round.
		was := binary.BigEndian.Uint16(tcp[at+2:])
		is := was - outdatedBy>>16
		binary.BigEndian.PutUint16(tcp[at+2:], is)
		if at%2 != 0 {
			was, is = was<<8|was>>8, is<<8|is>>8
		}
		sum := uint32(^binary.BigEndian.Uint16(tcp[16:])) + uint32(^was) + uint32(is)
		for sum > 0xffff {
			sum = sum&0xffff + sum>>16
		}
		binary.BigEndian.PutUint16(tcp[16:], ^uint16(sum))
		return
	}
}

// picker is a Pick with its counts.
type picker struct {
	Pick
	seen, taken int
}

// takes reports whether this packet is to be lost.
func (p *picker) takes(packet []byte) bool {
	if p.Times > 0 && p.taken >= p.Times || !p.matches(packet) {
		return false
	}
	if p.seen++; p.seen < p.Every {
		return false
	}
	p.seen = 0
	p.taken++
	return true
}

const (
	protoTCP = 6
	flagSYN  = 0x02
	flagPSH  = 0x08
)

func (p *picker) matches(packet []byte) bool {
	tcp := tcpSegment(packet)
	if len(tcp) < 20 {
		return false
	}
	src, dst := int(binary.BigEndian.Uint16(tcp)), int(binary.BigEndian.Uint16(tcp[2:]))
	if p.Port != 0 && src != p.Port && dst != p.Port {
		return false
	}
	flags := tcp[13]
	if p.SYN {
		return flags&flagSYN != 0
	}
	payload := len(tcp) - int(tcp[12]>>4)*4
	return payload > 0 && (!p.Push || flags&flagPSH != 0)
}

// tcpSegment gives the TCP header and payload of an IP packet, or nil. IPv6
// extension headers and later fragments are none.
func tcpSegment(packet []byte) []byte {
	switch {
	case len(packet) >= 20 && packet[0]>>4 == 4:
		head := int(packet[0]&0xf) * 4
		total := int(binary.BigEndian.Uint16(packet[2:]))
		offset := binary.BigEndian.Uint16(packet[6:]) & 0x1fff
		if packet[9] == protoTCP && offset == 0 && head <= total && total <= len(packet) {
			return packet[head:total]
		}
	case len(packet) >= 40 && packet[0]>>4 == 6:
		const head = 40
		total := head + int(binary.BigEndian.Uint16(packet[4:]))
		if packet[6] == protoTCP && total <= len(packet) {
			return packet[head:total]
		}
	}
	return nil
}
