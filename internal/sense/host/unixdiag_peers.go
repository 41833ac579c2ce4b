package host

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/nl"
)

// UnixSample is one unix socket.
type UnixSample struct {
	Inode     uint64
	Peer      uint64 // inode of the other end; 0 when there is none, or when it is not accepted yet
	Connected bool   // a stream with another end, also one that is not accepted yet
	Type      uint8  // SOCK_STREAM, SOCK_DGRAM or SOCK_SEQPACKET
	Listening bool
	Name      string // as bound; of an accepted socket that of its listener. An abstract name begins with "@"
	FileInode uint32 // of the bound name in its file system; 0 for abstract and no names
	FileDev   uint32 // kernel's number of that file system: major<<20 | minor

	// Receive is bytes not read, of datagrams those of the first. Send is memory
	// of what was sent and not read. Of a listener they are connections waiting
	// for accept(), and the limit of those.
	Receive, Send uint32
	Pending       []uint64 // of a listener: inodes of the clients that wait for accept()
}

// More of include/uapi/linux/unix_diag.h.
const (
	unixDiagVFS       = 1 // attribute UNIX_DIAG_VFS, struct unix_diag_vfs
	unixDiagPeer      = 2 // attribute UNIX_DIAG_PEER, u32
	unixDiagIcons     = 3 // attribute UNIX_DIAG_ICONS, u32[]
	unixDiagShowVFS   = 0x02
	unixDiagShowPeer  = 0x04
	unixDiagShowIcons = 0x08
)

// UnixSockets is the unix sockets of the namespace. On an error, those that
// could be read come with it.
func (n *NetNS) UnixSockets() ([]UnixSample, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, err := n.diagSock()
	if err != nil {
		return nil, err
	}
	request := make([]byte, unixDiagReqSize)
	request[0] = unix.AF_UNIX
	binary.NativeEndian.PutUint32(request[4:], ^uint32(0))
	binary.NativeEndian.PutUint32(request[12:], unixDiagShowName|unixDiagShowVFS|unixDiagShowPeer|unixDiagShowIcons|unixDiagShowRQ)
	var out []UnixSample
	err = dumpSockets(s, request, func(b []byte) {
		if u, ok := parseUnixSocket(b); ok {
			out = append(out, u)
		}
	})
	if err != nil {
		return out, n.diagFailed("unix sockets", err)
	}
	return out, nil
}

// parseUnixSocket reads a struct unix_diag_msg (sk_diag_fill, net/unix/diag.c).
func parseUnixSocket(b []byte) (UnixSample, bool) {
	if len(b) < unixDiagMsgSize || b[0] != unix.AF_UNIX {
		return UnixSample{}, false
	}
	ne := binary.NativeEndian
	u := UnixSample{Type: b[1], Listening: b[2] == tcpListen, Inode: uint64(ne.Uint32(b[4:]))}
	for kind, value := range nl.Attrs(b[unixDiagMsgSize:]) {
		switch {
		case kind == unixDiagName:
			u.Name = unixName(value)
		case kind == unixDiagVFS && len(value) >= 8:
			u.FileInode, u.FileDev = ne.Uint32(value), ne.Uint32(value[4:])
		case kind == unixDiagPeer && len(value) >= 4:
			u.Peer, u.Connected = uint64(ne.Uint32(value)), true
		case kind == unixDiagIcons:
			for ; len(value) >= 4; value = value[4:] {
				u.Pending = append(u.Pending, uint64(ne.Uint32(value)))
			}
		case kind == unixDiagRQLen && len(value) >= 8:
			u.Receive, u.Send = ne.Uint32(value), ne.Uint32(value[4:])
		}
	}
	return u, true
}
