package packets

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Blocks of a pcapng file (draft-ietf-opsawg-pcapng), of which nothing is kept but
// what times and links are: names, comments, secrets and statistics are passed over,
// however long they are.
const (
	blockInterface = 1
	blockPacket    = 2 // obsolete
	blockSimple    = 3
	blockEnhanced  = 6
	blockSection   = 0x0a0d0d0a
	byteOrderMagic = 0x1a2b3c4d

	optionEnd        = 0
	optionResolution = 9
	optionOffset     = 14

	// maxInterfaces bounds those of a section. No host has as many.
	maxInterfaces = 1 << 16
)

// device is an interface that packets were captured at.
type device struct {
	link      layers.LinkType
	snap      uint32
	perSecond uint64 // units of its clock
	offset    int64  // of its clock, s
}

// pcapng reads the packets of a pcapng file.
type pcapng struct {
	r       *bufio.Reader
	order   binary.ByteOrder
	devices []device
	timeNS  int64 // of the last packet that had a time
	buf     []byte
	link    layers.LinkType // of the last packet
}

// block is what is left of the one that is read.
type block struct {
	kind uint32
	left int64 // bytes of its body
}

var errBlock = errors.New("a block is shorter than what it holds")

// next reads the head of the next block. The error is io.EOF where the file ends.
func (p *pcapng) next() (block, error) {
	head, err := p.r.Peek(8)
	if err != nil {
		if len(head) > 0 && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return block{}, err
	}
	known := int64(8)
	if binary.LittleEndian.Uint32(head) == blockSection { // the same in both orders
		if head, err = p.r.Peek(12); err != nil {
			return block{}, whole(err)
		}
		switch {
		case binary.LittleEndian.Uint32(head[8:]) == byteOrderMagic:
			p.order = binary.LittleEndian
		case binary.BigEndian.Uint32(head[8:]) == byteOrderMagic:
			p.order = binary.BigEndian
		default:
			return block{}, errors.New("a section in no known order of bytes")
		}
		p.devices = p.devices[:0]
		known = 12
	}
	b := block{p.order.Uint32(head), int64(p.order.Uint32(head[4:]))}
	// The length stands there twice: before the body and behind it.
	if b.left < known+4 {
		return b, errBlock
	}
	b.left -= known + 4
	_, err = p.r.Discard(int(known))
	return b, err
}

// whole is the error of a file that ends where it must not.
func whole(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// read reads n bytes of a block. They are valid until the next ones are read.
func (p *pcapng) read(b *block, n int64) ([]byte, error) {
	if n > b.left {
		return nil, errBlock
	}
	if int64(cap(p.buf)) < n {
		p.buf = make([]byte, n, max(n, 1<<16))
	}
	b.left -= n
	_, err := io.ReadFull(p.r, p.buf[:n])
	return p.buf[:n], whole(err)
}

// skip passes over the rest of a block and what follows its body.
func (p *pcapng) skip(b *block) error {
	_, err := p.r.Discard(int(b.left + 4))
	return whole(err)
}

// ZeroCopyReadPacketData gives the next packet; its data is valid until the next call.
func (p *pcapng) ZeroCopyReadPacketData() ([]byte, gopacket.CaptureInfo, error) {
	for {
		b, err := p.next()
		if err != nil {
			return nil, gopacket.CaptureInfo{}, err
		}
		switch b.kind {
		case blockInterface:
			err = p.device(&b)
		case blockEnhanced, blockPacket, blockSimple:
			data, info, err := p.packet(&b)
			if err == nil {
				err = p.skip(&b)
			}
			return data, info, err
		}
		if err == nil {
			err = p.skip(&b)
		}
		if err != nil {
			return nil, gopacket.CaptureInfo{}, err
		}
	}
}

// device takes in the description of an interface.
func (p *pcapng) device(b *block) error {
	if len(p.devices) >= maxInterfaces {
		return fmt.Errorf("a section of more than %d interfaces", maxInterfaces)
	}
	head, err := p.read(b, 8)
	if err != nil {
		return err
	}
	d := device{link: layers.LinkType(p.order.Uint16(head)), snap: p.order.Uint32(head[4:]), perSecond: 1e6}
	for b.left >= 4 {
		head, err := p.read(b, 4)
		if err != nil {
			return err
		}
		kind, length := p.order.Uint16(head), int64(p.order.Uint16(head[2:]))
		if kind == optionEnd {
			break
		}
		value, err := p.read(b, min((length+3)&^3, b.left))
		if err != nil {
			return err
		}
		switch {
		case kind == optionResolution && length >= 1 && len(value) >= 1:
			if d.perSecond, err = resolution(value[0]); err != nil {
				return err
			}
		case kind == optionOffset && length >= 8 && len(value) >= 8:
			d.offset = int64(p.order.Uint64(value))
		}
	}
	p.devices = append(p.devices, d)
	return nil
}

// resolution is how many units of a clock a second has: a negative power of 10, or
// with the highest bit of 2.
func resolution(b byte) (uint64, error) {
	power, most, base := b&0x7f, byte(19), uint64(10)
	if b&0x80 != 0 {
		most, base = 63, 2
	}
	if power > most {
		return 0, fmt.Errorf("a clock of %d to the power of -%d seconds", base, power)
	}
	per := uint64(1)
	for range power {
		per *= base
	}
	return per, nil
}

// lastSecond bounds times, s since 1970, so that none of their differences overflows.
const lastSecond = 1 << 33

// time is a moment by the clock of d, ns since 1970; false for one that cannot be.
func (d *device) time(units uint64) (int64, bool) {
	seconds := int64(units/d.perSecond) + d.offset
	if seconds < 0 || seconds >= lastSecond {
		return 0, false
	}
	hi, lo := bits.Mul64(units%d.perSecond, uint64(time.Second))
	ns, _ := bits.Div64(hi, lo, d.perSecond) // what is divided is less than a second of units
	return seconds*int64(time.Second) + int64(ns), true
}

// packet reads a packet but for its options.
func (p *pcapng) packet(b *block) ([]byte, gopacket.CaptureInfo, error) {
	var info gopacket.CaptureInfo
	head, err := p.read(b, map[uint32]int64{blockEnhanced: 20, blockPacket: 20, blockSimple: 4}[b.kind])
	if err != nil {
		return nil, info, err
	}
	var at int
	var captured int64
	switch b.kind {
	case blockEnhanced:
		at = int(p.order.Uint32(head))
	case blockPacket:
		at = int(p.order.Uint16(head))
	}
	if at >= len(p.devices) {
		return nil, info, fmt.Errorf("a packet of interface %d, where %d are described", at, len(p.devices))
	}
	d := &p.devices[at]
	p.link = d.link
	if b.kind == blockSimple { // it has no time: that of the one before is the nearest
		info.Length = int(p.order.Uint32(head))
		captured = min(int64(info.Length), b.left)
		if d.snap != 0 {
			captured = min(captured, int64(d.snap))
		}
	} else {
		if at, ok := d.time(uint64(p.order.Uint32(head[4:]))<<32 | uint64(p.order.Uint32(head[8:]))); ok {
			p.timeNS = at
		}
		captured, info.Length = int64(p.order.Uint32(head[12:])), int(p.order.Uint32(head[16:]))
	}
	if captured > maxSnap {
		return nil, info, fmt.Errorf("a packet of %d bytes", captured)
	}
	info.Timestamp, info.CaptureLength = time.Unix(0, p.timeNS), int(captured)
	data, err := p.read(b, captured)
	return data, info, err
}
