package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"

	"github.com/slowray/slowray/internal/sense/host"
)

// inUse is the error for an address that somebody else listens on: it names the process,
// where that can be read, and a free address. nil where that is not what is wrong.
func inUse(address string) error {
	name, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil // unix:/path
	}
	if name == "" {
		name = "127.0.0.1" // as web.Listen takes it
	}
	listen := func(port string) error {
		l, err := net.Listen("tcp", net.JoinHostPort(name, port))
		if err == nil {
			l.Close()
		}
		return err
	}
	if !errors.Is(listen(port), syscall.EADDRINUSE) {
		return nil
	}
	at, _ := net.LookupPort("tcp", port)
	holder := ""
	if pid, comm := listenerOf(name, at); pid != 0 {
		holder = fmt.Sprintf(" (%s, pid %d)", comm, pid)
	}
	free := "ADDR"
	const tries = 20 // ports after this one
	for next := at + 1; next <= min(at+tries, 65535); next++ {
		if text := strconv.Itoa(next); listen(text) == nil {
			free = net.JoinHostPort(name, text)
			break
		}
	}
	return fmt.Errorf("%s is in use%s: choose another one with --listen %s", net.JoinHostPort(name, port), holder, free)
}

// listenerOf is a process that listens on a port of an address; 0 where that is not known,
// as without the right to read others' descriptors.
func listenerOf(name string, port int) (pid int, comm string) {
	fs := host.Default()
	ns, err := fs.OpenNetNS(os.Getpid())
	if err != nil {
		return 0, ""
	}
	defer ns.Close()
	listeners, _ := ns.Listeners()
	wanted, err := netip.ParseAddr(name)
	processes, _ := fs.Processes()
	pids := make([]int, len(processes))
	for i := range processes {
		pids[i] = processes[i].PID
	}
	owners, _ := fs.SocketOwners(pids)
	for i := range listeners {
		l := &listeners[i]
		same := err != nil || l.Addr.Unmap() == wanted.Unmap() || l.Addr.IsUnspecified() || wanted.IsUnspecified()
		if l.Path == "" && int(l.Port) == port && same && len(owners[l.Inode]) > 0 {
			return fs.Names().Master(owners[l.Inode][0])
		}
	}
	return 0, ""
}
