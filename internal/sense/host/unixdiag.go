package host

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/nl"
	"github.com/slowray/slowray/internal/printable"
)

// Layout of include/uapi/linux/unix_diag.h.
const (
	unixDiagReqSize  = 24 // struct unix_diag_req
	unixDiagMsgSize  = 16 // struct unix_diag_msg
	unixDiagName     = 0  // attribute UNIX_DIAG_NAME
	unixDiagRQLen    = 4  // attribute UNIX_DIAG_RQLEN, struct unix_diag_rqlen
	unixDiagShowName = 0x01
	unixDiagShowRQ   = 0x10
)

// unixDiagRequest asks for all listening unix sockets with name and queue.
func unixDiagRequest() []byte {
	b := make([]byte, unixDiagReqSize)
	b[0] = unix.AF_UNIX
	binary.NativeEndian.PutUint32(b[4:], diagListenOnly)
	binary.NativeEndian.PutUint32(b[12:], unixDiagShowName|unixDiagShowRQ)
	return b
}

// parseUnixListener reads a struct unix_diag_msg of a listening stream or
// seqpacket socket. Its queue length is connections not yet accepted, and the
// other figure the backlog (sk_diag_show_rqlen, net/unix/diag.c).
func parseUnixListener(b []byte) (ListenerSample, bool) {
	if len(b) < unixDiagMsgSize || b[0] != unix.AF_UNIX || b[2] != tcpListen ||
		(b[1] != unix.SOCK_STREAM && b[1] != unix.SOCK_SEQPACKET) {
		return ListenerSample{}, false
	}
	l := ListenerSample{Proto: "unix", Inode: uint64(binary.NativeEndian.Uint32(b[4:]))}
	for kind, value := range nl.Attrs(b[unixDiagMsgSize:]) {
		switch {
		case kind == unixDiagName:
			l.Path = unixName(value)
		case kind == unixDiagRQLen && len(value) >= 8:
			l.Queue = binary.NativeEndian.Uint32(value)
			l.Limit = binary.NativeEndian.Uint32(value[4:])
		}
	}
	return l, true
}

// unixName is sun_path as people write it: an abstract name, which begins with
// NUL, with '@' for each NUL (unix(7)).
func unixName(b []byte) string {
	if len(b) > 0 && b[0] == 0 {
		return printable.Name(bytes.ReplaceAll(b, []byte{0}, []byte("@")), 108)
	}
	b, _, _ = bytes.Cut(b, []byte{0})
	return printable.Name(b, 108)
}
