package wait

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/sense/host"
)

// onUnix is the wait for the other end of a unix socket.
func (l *look) onUnix(t *thread, o object, n *network, u *host.UnixSample, does direction) *link {
	k := &link{kind: observe.WaitUnix, wants: observe.WantsData, object: unixText(o, n, u), sure: true}
	stream := u.Type != unix.SOCK_DGRAM
	switch {
	case u.Listening:
		k = ends(observe.WaitAccept, observe.EndIdle, "ready for a new connection")
		k.object = unixText(o, n, u)
		return k
	case does == writing:
		k.wants, k.dgram = observe.WantsRoom, !stream
		if u.Send > 0 {
			k.detail = fmt.Sprintf("%d bytes of memory hold what the other end has not read", u.Send)
		}
	case !stream:
		k.end, k.text = observe.EndIdle, "ready for a message"
		return k
	case n.unixListens(u.Name):
		k.wants, k.end = observe.WantsRequest, observe.EndIdle
		k.text = "ready for the next request of its client"
		return k
	case n.nameOfPeer(u) != "":
		k.wants = observe.WantsAnswer
	}
	if u.Peer == 0 && u.Connected {
		if listener := n.pendingAt(u.Inode); listener != nil {
			k.wants = observe.WantsAccept
			l.aimUnixListener(k, listener)
			return k
		}
	}
	if u.Peer == 0 {
		k.end = observe.EndNoHolder
		k.text = "the other end is closed, or it is not told"
		return k
	}
	other := object{kind: socketObject, inode: u.Peer}
	l.aim(t, k, other, distinct(l.holdersOf(other)), does)
	if len(k.targets) == 0 {
		k.end = observe.EndNoHolder
		k.text = "no process is seen that has the other end" + l.perhapsHidden()
	}
	return k
}

// unixText is "fd 5 → unix:/run/app.sock", by whichever end has a name.
func unixText(o object, n *network, u *host.UnixSample) string {
	switch peer := n.nameOfPeer(u); {
	case u.Listening:
		return fmt.Sprintf("fd %d → unix, listening on %s", o.fd, u.Name)
	case peer != "":
		return fmt.Sprintf("fd %d → unix to %s", o.fd, peer)
	case u.Name != "":
		return fmt.Sprintf("fd %d → unix from a client of %s", o.fd, u.Name)
	}
	return fmt.Sprintf("fd %d → unix:[%d]", o.fd, u.Inode)
}

// nameOfPeer is the name of the other end, empty when it has none.
func (n *network) nameOfPeer(u *host.UnixSample) string {
	if i, ok := n.byUnix[u.Peer]; ok && u.Peer != 0 {
		return n.unix[i].Name
	}
	if listener := n.pendingAt(u.Inode); listener != nil && u.Peer == 0 {
		return listener.Name
	}
	return ""
}

// unixListens says whether a socket listens under a name.
func (n *network) unixListens(name string) bool {
	return name != "" && n.unixBound(name, true) != nil
}

// unixBound is the socket that is bound to a name.
func (n *network) unixBound(name string, listening bool) *host.UnixSample {
	for i := range n.unix {
		if u := &n.unix[i]; u.Name == name && u.Listening == listening && (listening || u.Type == unix.SOCK_DGRAM) {
			return u
		}
	}
	return nil
}

// pendingAt is the listener that has not accepted the connection of a client.
func (n *network) pendingAt(client uint64) *host.UnixSample {
	for i := range n.unix {
		for _, inode := range n.unix[i].Pending {
			if inode == client && client != 0 {
				return &n.unix[i]
			}
		}
	}
	return nil
}

func (l *look) aimUnixListener(k *link, listener *host.UnixSample) {
	k.detail = join(k.detail, fmt.Sprintf("%d connections wait to be accepted, of %d that may", listener.Receive, listener.Send))
	l.aimAccept(k, object{kind: socketObject, inode: listener.Inode})
	if len(k.targets) == 0 {
		k.end = observe.EndNoHolder
		k.text = "no process is seen that has the listening socket" + l.perhapsHidden()
	}
}

// connectingUnix is the wait in connect(2) while the listener's queue is full.
func (l *look) connectingUnix(t *thread, o object, n *network, u *host.UnixSample) *link {
	k := &link{kind: observe.WaitUnix, wants: observe.WantsAccept, object: o.String(), reader: writing}
	bound, name := l.boundAt(t, n, t.call.args[1], t.call.args[2], true)
	if name != "" {
		k.object = fmt.Sprintf("fd %d → unix to %s", o.fd, printable.Name(name, 256))
	}
	if bound == nil {
		k.end = observe.EndUnseen
		k.text = "the socket that listens there is not seen"
		return k
	}
	l.aimUnixListener(k, bound)
	return k
}

// sendsTo is the wait in sendto and sendmsg: room at the other end of the
// connection, or of the address among the arguments.
func (l *look) sendsTo(t *thread, fd int) *link {
	o := l.object(t, fd)
	n := (*network)(nil)
	if o.kind == socketObject {
		n = l.networkOf(t.p)
	}
	if n == nil {
		return l.onObject(t, o, writing)
	}
	l.unixSockets(n)
	i, ok := n.byUnix[o.inode]
	if !ok || n.unix[i].Peer != 0 || n.unix[i].Type != unix.SOCK_DGRAM {
		return l.onObject(t, o, writing)
	}
	addr, size := l.destination(t)
	bound, name := l.boundAt(t, n, addr, size, false)
	k := &link{kind: observe.WaitUnix, wants: observe.WantsRoom, object: o.String(), reader: writing, sure: true}
	if name != "" {
		k.object = fmt.Sprintf("fd %d → unix to %s", fd, printable.Name(name, 256))
	}
	if bound == nil || bound.Inode == 0 {
		k.end = observe.EndUnseen
		k.text = "the socket at the other end is not seen"
		return k
	}
	other := object{kind: socketObject, inode: bound.Inode}
	l.aim(t, k, other, distinct(l.holdersOf(other)), writing)
	if len(k.targets) == 0 {
		k.end = observe.EndNoHolder
		k.text = "no process is seen that has the other end" + l.perhapsHidden()
	}
	return k
}

// destination is where the address of sendto (arguments five and six) or of
// sendmsg (first two members of struct msghdr) lies.
func (l *look) destination(t *thread) (addr, size uint64) {
	if l.callName(t) == "sendto" {
		return t.call.args[4], t.call.args[5]
	}
	header := l.bytesAt(t.p, t.call.args[1], 16)
	if header == nil {
		return 0, 0
	}
	return long(header, 0), uint64(word(header, 8))
}

// boundAt is the unix socket that an address in a process's memory names: by
// its name, or where links lead elsewhere, by the file that it names.
func (l *look) boundAt(t *thread, n *network, addr, size uint64, listening bool) (*host.UnixSample, string) {
	const familySize, most = 2, 110 // struct sockaddr_un (unix(7))
	if size <= familySize || size > most {
		return nil, ""
	}
	b := l.bytesAt(t.p, addr, int(size))
	if b == nil || binary.NativeEndian.Uint16(b) != unix.AF_UNIX {
		return nil, ""
	}
	name := string(b[familySize:])
	if name[0] == 0 {
		name = strings.ReplaceAll(name, "\x00", "@")
		return n.unixBound(name, listening), name
	}
	name, _, _ = strings.Cut(name, "\x00")
	if u := n.unixBound(name, listening); u != nil {
		return u, name
	}
	inode, dev, ok := l.fileIn(t, name)
	if !ok {
		return nil, name
	}
	for i := range n.unix {
		u := &n.unix[i]
		if u.Listening == listening && u.FileInode == inode && u.FileDev == dev {
			return u, name
		}
	}
	return nil, name
}

// fileIn resolves a name as the process would: below its own root directory,
// or its working directory. The device comes as the kernel numbers it.
func (l *look) fileIn(t *thread, name string) (inode, dev uint32, ok bool) {
	start := "cwd"
	if strings.HasPrefix(name, "/") {
		start = "root"
	}
	dir, err := os.Open(l.path(t, start))
	if err != nil {
		return 0, 0, false
	}
	defer dir.Close()
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC}
	if start == "root" {
		how.Resolve = unix.RESOLVE_IN_ROOT
	}
	fd, err := unix.Openat2(int(dir.Fd()), name, &how)
	if err != nil {
		return 0, 0, false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, 0, false
	}
	return uint32(st.Ino), unix.Major(uint64(st.Dev))<<20 | unix.Minor(uint64(st.Dev)), true
}
