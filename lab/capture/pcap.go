package capture

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
)

// Save writes what a stopped capture saw as a pcap file with nanoseconds, for
// a person to look at with tcpdump or Wireshark. The link type is LINUX_SLL,
// whose header says which way a packet went.
func (c *Capture) Save(path string) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	defer func() {
		if e := file.Close(); err == nil {
			err = e
		}
	}()
	const magicNS, linkSLL, sllLen = 0xa1b23c4d, 113, 16
	w := bufio.NewWriter(file)
	order := binary.LittleEndian
	var head [24]byte
	order.PutUint32(head[0:], magicNS)
	order.PutUint16(head[4:], 2)
	order.PutUint16(head[6:], 4)
	order.PutUint32(head[16:], 1<<18)
	order.PutUint32(head[20:], linkSLL)
	w.Write(head[:])
	for _, f := range c.frames {
		data := c.bytes[f.from:f.to]
		var b [16 + sllLen]byte
		order.PutUint32(b[0:], uint32(f.timeNS/1e9))
		order.PutUint32(b[4:], uint32(f.timeNS%1e9))
		order.PutUint32(b[8:], uint32(len(data)+sllLen))
		order.PutUint32(b[12:], f.length+sllLen)
		binary.BigEndian.PutUint16(b[16:], uint16(f.kind))
		binary.BigEndian.PutUint16(b[18:], f.hardware)
		binary.BigEndian.PutUint16(b[30:], f.protocol)
		w.Write(b[:])
		w.Write(data)
	}
	return w.Flush()
}
