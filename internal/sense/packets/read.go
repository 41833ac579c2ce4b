package packets

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/klauspost/compress/zstd"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
)

// magic is the first bytes of what can be read.
var magic = [][]byte{
	{0xd4, 0xc3, 0xb2, 0xa1}, {0xa1, 0xb2, 0xc3, 0xd4}, // pcap, µs
	{0x4d, 0x3c, 0xb2, 0xa1}, {0xa1, 0xb2, 0x3c, 0x4d}, // pcap, ns
	{0x0a, 0x0d, 0x0d, 0x0a}, // pcapng
}

var (
	gzipMagic = []byte{0x1f, 0x8b}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

// File is a capture or log, to the size that it had when it was opened.
type File struct {
	io.Reader
	io.Closer
	size int64
}

// Open opens a file that is read twice: to see what it is, and then for what is in
// it. The error says so where it cannot be: of a pipe what was read is gone.
func Open(path string) (*File, error) {
	f, size, err := observe.OpenSaved(path)
	if err != nil {
		return nil, err
	}
	return &File{io.LimitReader(f, size), f, size}, nil
}

// Recognises says whether a file is a capture, also a compressed one.
func Recognises(path string) bool {
	f, err := Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	r, err := Unpack(f)
	if err != nil {
		return false
	}
	head, _ := r.Peek(4)
	return isCapture(head)
}

func isCapture(head []byte) bool {
	for _, m := range magic {
		if bytes.Equal(head, m) {
			return true
		}
	}
	return false
}

const (
	// maxDistance is what zstd may refer back to, bytes: that of its level 21.
	maxDistance = 64 << 20
	// Captures become smaller by a factor of 3 to 30. A file may unpack to as many
	// times its size, and to minUnpacked: what is beyond was made to keep a reader busy.
	maxFactor   = 256
	minUnpacked = 1 << 30
)

// Unpack reads what may be compressed, a whole file. It ends with the error of a
// budget where that becomes more than any capture or log does.
func Unpack(f *File) (*bufio.Reader, error) {
	b := budget.New(context.Background(), budget.Limits{Unpacked: max(minUnpacked, maxFactor*f.size), Wall: math.MaxInt64})
	r := bufio.NewReaderSize(f, 1<<20)
	head, _ := r.Peek(4)
	switch {
	case bytes.HasPrefix(head, gzipMagic):
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, err
		}
		return bufio.NewReaderSize(b.Unpacked(z), 1<<20), nil
	case bytes.HasPrefix(head, zstdMagic):
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxDistance))
		if err != nil {
			return nil, err
		}
		return bufio.NewReaderSize(b.Unpacked(z), 1<<20), nil
	}
	return r, nil
}

// source gives the packets of a capture in their order.
type source interface {
	ZeroCopyReadPacketData() ([]byte, gopacket.CaptureInfo, error)
}

// tally is what reading a capture came to.
type tally struct {
	packets   int64 // in the file
	other     int64 // not TCP, or cut off before the end of its header
	truncated error // why reading ended before the end of the file
	first     int64 // time of the first and the last packet, ns
	last      int64
	links     map[layers.LinkType]int64 // packets of links that are not known
}

// maxLinks bounds the types of links that are distinguished where they are not known.
const maxLinks = 8

// unknown counts a packet of a link that is not known.
func (t *tally) unknown(link layers.LinkType) {
	if _, ok := t.links[link]; !ok && len(t.links) >= maxLinks {
		link = otherLink
	}
	t.links[link]++
}

// otherLink stands for those beyond maxLinks; no link has this number.
const otherLink = layers.LinkType(math.MaxUint16)

// segments calls do for every TCP segment of a capture. The error is for what is no
// capture; one that ends in the middle of a packet is read as far as it goes.
func segments(path string, do func(*segment)) (tally, error) {
	t := tally{links: map[layers.LinkType]int64{}}
	f, err := Open(path)
	if err != nil {
		return t, err
	}
	defer f.Close()
	r, err := Unpack(f)
	if err != nil {
		return t, fmt.Errorf("%s: %w", path, err)
	}
	head, _ := r.Peek(4)
	if !isCapture(head) {
		return t, fmt.Errorf("%s: is no capture of packets (pcap or pcapng)", path)
	}
	src, linkOf, err := open(r, head)
	if err != nil {
		return t, fmt.Errorf("%s: %w", path, err)
	}
	var s segment
	for {
		data, info, err := src.ZeroCopyReadPacketData()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.truncated = err
			}
			return t, nil
		}
		t.packets++
		s.timeNS = info.Timestamp.UnixNano()
		if t.first == 0 || s.timeNS < t.first {
			t.first = s.timeNS
		}
		t.last = max(t.last, s.timeNS)
		link := linkOf()
		ip := network(link, data)
		if ip == nil && !known(link) {
			t.unknown(link)
		}
		if ip == nil || !s.decode(ip, info.Length-(len(data)-len(ip))) {
			t.other++
			continue
		}
		do(&s)
	}
}

// maxSnap bounds what one packet may take: segmentation offload makes packets of
// up to 512 KB (GSO_MAX_SIZE of BIG TCP, include/linux/netdevice.h).
const maxSnap = 1 << 20

func open(r *bufio.Reader, head []byte) (source, func() layers.LinkType, error) {
	if bytes.Equal(head, magic[4]) {
		ng := &pcapng{r: r}
		return ng, func() layers.LinkType { return ng.link }, nil
	}
	p, err := pcapgo.NewReader(r)
	if err != nil {
		return nil, nil, err
	}
	// What writers put there is often not true, and bounds nothing that matters.
	p.SetSnaplen(maxSnap)
	return p, p.LinkType, nil
}
