package packets

import (
	"encoding/binary"
	"net/netip"

	"github.com/gopacket/gopacket/layers"
)

// TCP flags (RFC 9293, 3.1).
const (
	flagFIN = 1 << iota
	flagSYN
	flagRST
	_
	flagACK
)

// segment is a TCP segment as it was captured.
type segment struct {
	timeNS   int64
	src, dst netip.AddrPort
	seq, ack uint32
	flags    uint8
	window   uint32 // as it stands in the header, not scaled
	scale    uint8  // of the window, in a SYN; 255 = no such option
	mss      int    // in a SYN; 0 = no such option
	length   int    // of the payload as it was sent, also where less was captured
	payload  []byte // what was captured of it; valid until the next packet is read
	id       uint16 // of the IPv4 packet
}

// Ethernet's types of what it carries.
const (
	etherIPv4  = 0x0800
	etherIPv6  = 0x86dd
	etherVLAN  = 0x8100
	etherQinQ  = 0x88a8
	etherMPLS  = 0x8847
	protoTCP   = 6
	maxOptions = 8 // extension headers of IPv6, VLAN tags
)

// network strips the link's header: what is left begins with the IP header. nil
// where it is no IP, or of a link type that is not known.
func network(link layers.LinkType, b []byte) []byte {
	be16 := func(at int) uint16 {
		if len(b) < at+2 {
			return 0
		}
		return binary.BigEndian.Uint16(b[at:])
	}
	cut := func(n int) []byte {
		if len(b) < n {
			return nil
		}
		return b[n:]
	}
	switch link {
	case layers.LinkTypeEthernet:
		at, kind := 14, be16(12)
		for range maxOptions {
			if kind != etherVLAN && kind != etherQinQ {
				break
			}
			at, kind = at+4, be16(at+2)
		}
		if kind == etherMPLS {
			return ipInMPLS(cut(at))
		}
		if kind != etherIPv4 && kind != etherIPv6 {
			return nil
		}
		return cut(at)
	case layers.LinkTypeLinuxSLL: // https://www.tcpdump.org/linktypes/LINKTYPE_LINUX_SLL.html
		if kind := be16(14); kind != etherIPv4 && kind != etherIPv6 {
			return nil
		}
		return cut(16)
	case layers.LinkTypeLinuxSLL2:
		if kind := be16(0); kind != etherIPv4 && kind != etherIPv6 {
			return nil
		}
		return cut(20)
	case layers.LinkTypeNull, layers.LinkTypeLoop:
		return cut(4)
	case layers.LinkTypeRaw, layers.LinkTypeIPv4, layers.LinkTypeIPv6, 12, 14: // DLT_RAW of some systems
		return b
	}
	return nil
}

// ipInMPLS strips the labels, of which the last has the bottom bit.
func ipInMPLS(b []byte) []byte {
	for range maxOptions {
		if len(b) < 4 {
			return nil
		}
		last := b[2]&1 != 0
		b = b[4:]
		if last {
			return b
		}
	}
	return nil
}

// known says whether network knows a link type.
func known(link layers.LinkType) bool {
	switch link {
	case layers.LinkTypeEthernet, layers.LinkTypeLinuxSLL, layers.LinkTypeLinuxSLL2, layers.LinkTypeNull, layers.LinkTypeLoop,
		layers.LinkTypeRaw, layers.LinkTypeIPv4, layers.LinkTypeIPv6, 12, 14:
		return true
	}
	return false
}

// decode reads an IP packet; false when it is not TCP, a later fragment, or cut
// off before the end of the TCP header. full is the length that the packet had on
// the wire from b's first byte on.
func (s *segment) decode(b []byte, full int) bool {
	if len(b) < 1 {
		return false
	}
	switch b[0] >> 4 {
	case 4:
		return s.decodeIPv4(b, full)
	case 6:
		return s.decodeIPv6(b, full)
	}
	return false
}

func (s *segment) decodeIPv4(b []byte, full int) bool {
	if len(b) < 20 {
		return false
	}
	head, total := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
	if total == 0 { // written by the device (segmentation offload of more than 64 KB)
		total = full
	}
	later := binary.BigEndian.Uint16(b[6:])&0x1fff != 0
	if b[9] != protoTCP || later || head < 20 || head > len(b) || total < head {
		return false
	}
	s.id = binary.BigEndian.Uint16(b[4:])
	src, dst := netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	return s.decodeTCP(src, dst, b[head:], total-head)
}

func (s *segment) decodeIPv6(b []byte, full int) bool {
	if len(b) < 40 {
		return false
	}
	length, next, rest := int(binary.BigEndian.Uint16(b[4:])), b[6], b[40:]
	if length == 0 { // a jumbogram, or written by the device
		length = full - 40
	}
	for range maxOptions {
		var size int
		switch next {
		case protoTCP:
			s.id = 0
			src, dst := netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
			return s.decodeTCP(src, dst, rest, length)
		case 0, 43, 60: // hop-by-hop, routing, destination options (RFC 8200)
			if len(rest) < 8 {
				return false
			}
			size = int(rest[1])*8 + 8
		case 44: // fragment
			if len(rest) < 8 || binary.BigEndian.Uint16(rest[2:])&0xfff8 != 0 {
				return false
			}
			size = 8
		default:
			return false
		}
		if len(rest) < size {
			return false
		}
		next, rest, length = rest[0], rest[size:], length-size
	}
	return false
}

func (s *segment) decodeTCP(src, dst netip.Addr, b []byte, length int) bool {
	if len(b) < 20 {
		return false
	}
	head := int(b[12]>>4) * 4
	if head < 20 || length < head {
		return false
	}
	s.src = netip.AddrPortFrom(src, binary.BigEndian.Uint16(b))
	s.dst = netip.AddrPortFrom(dst, binary.BigEndian.Uint16(b[2:]))
	s.seq, s.ack = binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
	s.flags, s.window = b[13], uint32(binary.BigEndian.Uint16(b[14:]))
	s.scale, s.mss, s.length, s.payload = 255, 0, length-head, nil
	if len(b) > head {
		s.payload = b[head:min(len(b), length)]
	}
	if s.flags&flagSYN != 0 {
		s.options(b[20:min(head, len(b))])
	}
	return true
}

// options reads what a SYN says of segments and windows (RFC 9293, RFC 7323).
func (s *segment) options(b []byte) {
	for len(b) > 0 {
		switch {
		case b[0] == 0:
			return
		case b[0] == 1:
			b = b[1:]
			continue
		case len(b) < 2 || b[1] < 2 || int(b[1]) > len(b):
			return
		case b[0] == 2 && b[1] == 4:
			s.mss = int(binary.BigEndian.Uint16(b[2:]))
		case b[0] == 3 && b[1] == 3:
			s.scale = min(b[2], 14)
		}
		b = b[b[1]:]
	}
}
