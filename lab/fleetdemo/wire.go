package main

import (
	"fmt"
	"io"
	"net"

	"github.com/vishvananda/netlink"

	"github.com/slowray/slowray/lab/netns"
)

// wire makes the network namespaces of the real hosts, and a wire between them. The
// namespaces have no names: they end with the last file and process in them, however
// this program ends.
func (s *stage) wire() error {
	for _, host := range []string{hostApp, hostDB} {
		ns, err := netns.New()
		if err != nil {
			return err
		}
		s.spaces[host] = ns
		s.atEnd(func() { ns.Close() })
	}
	if err := netns.Do(s.spaces[hostApp], func() error {
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: "wire0"}, PeerName: "wire0", PeerNamespace: netlink.NsFd(int(s.spaces[hostDB].Fd())),
		})
	}); err != nil {
		return fmt.Errorf("veth: %w", err)
	}
	for host, addr := range map[string]string{hostApp: appAddr, hostDB: dbAddr} {
		if err := netns.Do(s.spaces[host], func() error {
			link, err := netlink.LinkByName("wire0")
			if err != nil {
				return err
			}
			a, err := netlink.ParseAddr(addr + "/24")
			if err != nil {
				return err
			}
			if err := netlink.AddrAdd(link, a); err != nil {
				return err
			}
			return netlink.LinkSetUp(link)
		}); err != nil {
			return fmt.Errorf("wire0 of %s: %w", host, err)
		}
	}
	return nil
}

// forward makes a listener inside the namespace of a host that leads to the same
// port of this machine's loopback.
func (s *stage) forward(host, addr string) error {
	var l net.Listener
	if err := netns.Do(s.spaces[host], func() (err error) {
		l, err = net.Listen("tcp", addr)
		return err
	}); err != nil {
		return err
	}
	s.atEnd(func() { l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go pass(in, addr)
		}
	}()
	return nil
}

// pass takes a connection to where addr is outside.
func pass(in net.Conn, addr string) {
	defer in.Close()
	out, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer out.Close()
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{out, in}, {in, out}} {
		go func() {
			io.Copy(way[0], way[1])
			way[0].(*net.TCPConn).CloseWrite()
			done <- struct{}{}
		}()
	}
	<-done
	<-done
}
