package host

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
)

// UDPSample is one UDP socket.
type UDPSample struct {
	Local      netip.AddrPort
	Inode      uint64
	QueueBytes uint64 // received and not yet read, with the kernel's own overhead
	Drops      uint64 // datagrams since the socket was made that did not fit, or had a wrong checksum
}

// udpTableMax bounds how much of a table is read, bytes: some 130,000 sockets.
const udpTableMax = 16 << 20

// UDPSockets lists the UDP sockets of the namespace, of both families, from
// /proc/net/udp and udp6 (udp4_format_sock, net/ipv4/udp.c).
func (n *NetNS) UDPSockets() ([]UDPSample, error) {
	var out []UDPSample
	err := n.netFiles(func(dir string) error {
		var errs []error
		for _, name := range []string{"udp", "udp6"} {
			f, err := os.Open(filepath.Join(dir, name))
			if err != nil {
				if name == "udp" || !errors.Is(err, fs.ErrNotExist) {
					errs = append(errs, err)
				}
				continue
			}
			all, err := parseUDP(f)
			f.Close()
			out = append(out, all...)
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	return out, err
}

// parseUDP reads lines of "sl local remote st tx:rx tr:tm retr uid timeout inode
// ref pointer drops".
func parseUDP(r io.Reader) ([]UDPSample, error) {
	b, err := io.ReadAll(io.LimitReader(r, udpTableMax))
	var out []UDPSample
	for len(b) > 0 {
		var line []byte
		line, b = nextLine(b)
		f := bytes.Fields(line)
		if len(f) < 13 {
			continue
		}
		_, rx, ok1 := bytes.Cut(f[4], []byte(":"))
		local, ok2 := HexAddrPort(f[1])
		queue, ok3 := hexNumber(rx)
		inode, ok4 := ParseUint(f[9])
		drops, ok5 := ParseUint(f[12])
		if ok1 && ok2 && ok3 && ok4 && ok5 {
			out = append(out, UDPSample{Local: local, Inode: inode, QueueBytes: queue, Drops: drops})
		}
	}
	return out, err
}

// HexAddrPort reads "0100007F:0035": words of the address as numbers of this
// machine, and the port.
func HexAddrPort(text []byte) (netip.AddrPort, bool) {
	addr, port, ok := bytes.Cut(text, []byte(":"))
	number, ok2 := hexNumber(port)
	raw := make([]byte, hex.DecodedLen(len(addr)))
	if _, err := hex.Decode(raw, addr); err != nil || !ok || !ok2 || number > 65535 || len(raw)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	a, ok := netip.AddrFromSlice(raw)
	if !ok {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(number)), true
}

func hexNumber(b []byte) (n uint64, ok bool) {
	if len(b) == 0 || len(b) > 16 {
		return 0, false
	}
	for _, c := range b {
		d := bytes.IndexByte([]byte("0123456789abcdef"), c|0x20)
		if d < 0 {
			return 0, false
		}
		n = n<<4 | uint64(d)
	}
	return n, true
}
