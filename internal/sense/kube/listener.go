package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/budget"
)

// errNotRoots is why a listener is not believed: a kubelet is root's, and port 10255 is
// free to every user of a host whose kubelet has none.
var errNotRoots = errors.New("a process that is not root's listens there")

// dialRoot connects to a loopback port that root, or who runs this, listens at. Who listens
// is looked up while the connection is there: who went away meanwhile is not believed either.
func dialRoot(ctx context.Context, dialer *net.Dialer, network, at string) (net.Conn, error) {
	conn, err := dialer.DialContext(ctx, network, at)
	if err != nil {
		return nil, err
	}
	if err := ownListener(conn.RemoteAddr().(*net.TCPAddr).AddrPort().Port()); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

const maxListeners = 512 << 10 // bytes: 3,400 that listen

// ownListener says whether whoever listens at a port of this network namespace is root, or
// who runs this. Of several, at different addresses, all have to be.
func ownListener(port uint16) error {
	var found bool
	for _, name := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		text, err := budget.Head(name, maxListeners)
		if errors.Is(err, os.ErrNotExist) {
			continue // without IPv6
		}
		if err != nil {
			return err
		}
		uids, err := listeners(string(text), port)
		if err != nil {
			return fmt.Errorf("who listens there: %w", err)
		}
		for _, uid := range uids {
			if found = true; uid != 0 && uid != os.Geteuid() {
				return errNotRoots
			}
		}
	}
	if !found {
		return errNotRoots
	}
	return nil
}

// listeners are the owners of the sockets that listen at a port, of /proc/net/tcp
// (net/ipv4/tcp_ipv4.c, get_tcp4_sock): it lists all that listen before any other.
func listeners(text string, port uint16) (uids []int, err error) {
	const local, state, uid, listen = 1, 3, 7, "0A"
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) <= uid || f[0] == "sl" {
			continue
		}
		if f[state] != listen {
			break
		}
		_, at, _ := strings.Cut(f[local], ":")
		if n, err := strconv.ParseUint(at, 16, 16); err != nil || uint16(n) != port {
			continue
		}
		owner, err := strconv.Atoi(f[uid])
		if err != nil {
			return nil, err
		}
		uids = append(uids, owner)
	}
	return uids, nil
}
