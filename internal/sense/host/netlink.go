package host

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/nl"
)

// diagSock returns the namespace's sock_diag socket, made at the first use.
// n.mu is held.
func (n *NetNS) diagSock() (*nl.Socket, error) {
	if n.diag != nil {
		return n.diag, nil
	}
	err := n.Do(func() (err error) {
		n.diag, err = nl.Open(unix.NETLINK_SOCK_DIAG)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("sock_diag socket: %w", err)
	}
	return n.diag, nil
}

// dumpSockets asks sock_diag and calls visit with each answer. Sockets move all
// the time: an interrupted dump is as good as another.
func dumpSockets(s *nl.Socket, request []byte, visit func(payload []byte)) error {
	_, err := s.Dump(sockDiagByFamily, request, func(m nl.Message) { visit(m.Payload) })
	return err
}
