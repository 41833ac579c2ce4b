package capture

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/lab/netns"
)

const (
	// blockSize is the unit in which the kernel hands packets over.
	blockSize = 1 << 18
	// retireAfter is how long the kernel keeps a block that is not full.
	retireAfter = 10 * time.Millisecond

	defaultSnap = 128
	defaultRing = 32 << 20
)

// Options say what is captured. The zero value of a field means its default.
type Options struct {
	// NetNS is an open file of the network namespace (/proc/PID/ns/net); nil
	// is the namespace of the calling thread.
	NetNS *os.File
	// Interface is its name in that namespace. An Ethernet-like one (lo, veth)
	// or one without link headers (tun).
	Interface string
	// Snap is how many bytes of each packet are kept, from the IP header on.
	// The default is 128: all headers, with options.
	Snap int
	// RingBytes is the memory shared with the kernel. The default is 32 MB,
	// about 150,000 packets.
	RingBytes int
}

// Capture is a capture that is running or was stopped.
type Capture struct {
	fd      int
	ring    []byte
	blocks  int
	next    int // block that the kernel fills next
	frames  []frame
	bytes   []byte // what was kept of the packets, one after the other
	reader  chan struct{}
	stop    atomic.Bool
	ifIndex int
}

// frame is a packet as it came from the ring.
type frame struct {
	timeNS   int64
	kind     uint8 // unix.PACKET_HOST, PACKET_OUTGOING …
	hardware uint16
	protocol uint16
	length   uint32 // from the IP header on, before it was cut to Snap
	from, to int    // its bytes in Capture.bytes
}

// Start begins to capture. From its return on no packet is missed, or Stop
// says so.
func Start(opt Options) (*Capture, error) {
	if opt.Snap == 0 {
		opt.Snap = defaultSnap
	}
	if opt.RingBytes == 0 {
		opt.RingBytes = defaultRing
	}
	c := &Capture{fd: -1, blocks: max(opt.RingBytes/blockSize, 2), reader: make(chan struct{})}
	var err error
	if opt.NetNS == nil {
		err = c.open(opt)
	} else {
		err = netns.Do(opt.NetNS, func() error { return c.open(opt) })
	}
	if err != nil {
		if c.fd >= 0 {
			unix.Close(c.fd)
		}
		return nil, fmt.Errorf("capture %s: %w", opt.Interface, err)
	}
	go c.read()
	return c, nil
}

// open makes the socket. It is a datagram packet socket: packets begin with
// the IP header whatever the interface. It is bound last, so that all that is
// in the ring went through the filter.
func (c *Capture) open(opt Options) error {
	var err error
	if c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	request, err := unix.NewIfreq(opt.Interface)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(c.fd, unix.SIOCGIFINDEX, request); err != nil {
		return fmt.Errorf("index: %w", err)
	}
	c.ifIndex = int(request.Uint32())
	// "return Snap": accept all, keep that much.
	program := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: uint32(opt.Snap)}}
	if err := unix.SetsockoptSockFprog(c.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &program[0]}); err != nil {
		return fmt.Errorf("filter: %w", err)
	}
	if err := unix.SetsockoptInt(c.fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V3); err != nil {
		return fmt.Errorf("ring version: %w", err)
	}
	ring := unix.TpacketReq3{
		Block_size: blockSize, Block_nr: uint32(c.blocks),
		Frame_size: 2048, Frame_nr: uint32(c.blocks * blockSize / 2048),
		Retire_blk_tov: uint32(retireAfter / time.Millisecond),
	}
	if err := unix.SetsockoptTpacketReq3(c.fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &ring); err != nil {
		return fmt.Errorf("ring: %w", err)
	}
	if c.ring, err = unix.Mmap(c.fd, 0, c.blocks*blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return fmt.Errorf("map ring: %w", err)
	}
	all := uint16(unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8)
	if err := unix.Bind(c.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: c.ifIndex}); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	return nil
}

// read empties the ring until the capture is stopped.
func (c *Capture) read() {
	defer close(c.reader)
	poll := []unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLIN | unix.POLLERR}}
	for !c.stop.Load() {
		// Errors (EINTR) only make the next look come sooner.
		_, _ = unix.Poll(poll, 20)
		c.drain()
	}
}

// drain takes all blocks that the kernel has handed over.
func (c *Capture) drain() {
	for {
		block := c.ring[c.next*blockSize : (c.next+1)*blockSize]
		// struct tpacket_block_desc: version, offset_to_priv, then tpacket_hdr_v1.
		head := (*unix.TpacketHdrV1)(unsafe.Pointer(&block[8]))
		if atomic.LoadUint32(&head.Block_status)&unix.TP_STATUS_USER == 0 {
			return
		}
		at := head.Offset_to_first_pkt
		for range head.Num_pkts {
			p := (*unix.Tpacket3Hdr)(unsafe.Pointer(&block[at]))
			link := (*unix.RawSockaddrLinklayer)(unsafe.Pointer(&block[int(at)+unix.SizeofTpacket3Hdr]))
			data := block[at+uint32(p.Net):][:p.Snaplen]
			from := len(c.bytes)
			c.bytes = append(c.bytes, data...)
			c.frames = append(c.frames, frame{
				timeNS: int64(p.Sec)*1e9 + int64(p.Nsec), kind: link.Pkttype, hardware: link.Hatype,
				protocol: link.Protocol<<8 | link.Protocol>>8, length: p.Len, from: from, to: len(c.bytes),
			})
			at += p.Next_offset
		}
		atomic.StoreUint32(&head.Block_status, unix.TP_STATUS_KERNEL)
		c.next = (c.next + 1) % c.blocks
	}
}

// Stop ends the capture and returns its TCP packets in order of time. It is an
// error when the kernel had to drop packets because the ring was full, or when
// a TCP packet could not be read.
func (c *Capture) Stop() ([]Packet, error) {
	if c.fd < 0 {
		return nil, errors.New("capture: stopped already")
	}
	// The block that is being filled is handed over when its time is up.
	time.Sleep(3 * retireAfter)
	c.stop.Store(true)
	<-c.reader
	c.drain()
	stats, err := unix.GetsockoptTpacketStatsV3(c.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	_ = unix.Munmap(c.ring)
	unix.Close(c.fd)
	c.fd = -1
	if err != nil {
		return nil, fmt.Errorf("capture: statistics: %w", err)
	}
	if stats.Drops > 0 {
		return nil, fmt.Errorf("capture: %d packets dropped, %d kept: the ring is too small", stats.Drops, len(c.frames))
	}
	// Two CPUs may have filled the ring in another order than that in which
	// they looked at the clock.
	slices.SortStableFunc(c.frames, func(a, b frame) int { return cmp.Compare(a.timeNS, b.timeNS) })
	packets := make([]Packet, 0, len(c.frames))
	for i := range c.frames {
		f := &c.frames[i]
		p, err := parse(c.bytes[f.from:f.to], int(f.length))
		if errors.Is(err, errNotTCP) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("capture: packet %d: %w", i, err)
		}
		p.TimeNS, p.Outgoing = f.timeNS, f.kind == unix.PACKET_OUTGOING
		packets = append(packets, p)
	}
	return packets, nil
}
