package link

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/lab/netns"
)

const (
	defaultName = "emu0"
	// txQueue is how many packets wait in the device for the thread to read
	// them. The kernel drops further ones, which is counted as overrun.
	txQueue = 10000
)

// tun is one end: a device whose packets are read from and written to fd.
type tun struct {
	fd    int
	name  string
	stats *os.File // /proc/net/dev of the namespace
}

func openTUN(end End, mtu int) (*tun, error) {
	t := &tun{fd: -1, name: end.Name}
	if t.name == "" {
		t.name = defaultName
	}
	if end.NetNS == nil {
		return nil, fmt.Errorf("%s: no network namespace", t.name)
	}
	err := netns.Do(end.NetNS, func() error { return t.open(end.Addrs, mtu) })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", t.name, err), t.close())
	}
	return t, nil
}

// open makes the device in the network namespace of this thread.
func (t *tun) open(addrs []netip.Prefix, mtu int) (err error) {
	ifr, err := unix.NewIfreq(t.name)
	if err != nil {
		return err
	}
	if t.fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("/dev/net/tun: %w", err)
	}
	ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(t.fd, unix.TUNSETIFF, ifr); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	// An open file of /proc/net belongs to the namespace it was opened in.
	if t.stats, err = os.Open("/proc/thread-self/net/dev"); err != nil {
		return err
	}
	sock, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(sock)
	for _, s := range []struct {
		request uint
		value   uint32
	}{{unix.SIOCSIFMTU, uint32(mtu)}, {unix.SIOCSIFTXQLEN, txQueue}} {
		ifr.SetUint32(s.value)
		if err := unix.IoctlIfreq(sock, s.request, ifr); err != nil {
			return fmt.Errorf("mtu and queue: %w", err)
		}
	}
	t.quiet(addrs)
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(sock, unix.SIOCSIFFLAGS, ifr); err != nil {
		return fmt.Errorf("up: %w", err)
	}
	for _, a := range addrs {
		if err := t.address(sock, a); err != nil {
			return fmt.Errorf("address %v: %w", a, err)
		}
	}
	return nil
}

// quiet keeps the kernel from sending packets of its own through the device,
// as far as it can be known: they would take part in what chance decides. It
// is no error if there is no IPv6.
func (t *tun) quiet(addrs []netip.Prefix) {
	settings := map[string]string{"addr_gen_mode": "1", "router_solicitations": "0"} // 1: no address of its own
	if !slices.ContainsFunc(addrs, func(a netip.Prefix) bool { return a.Addr().Is6() }) {
		settings = map[string]string{"disable_ipv6": "1"}
	}
	for key, value := range settings {
		os.WriteFile("/proc/sys/net/ipv6/conf/"+t.name+"/"+key, []byte(value), 0)
	}
}

func (t *tun) address(sock int, a netip.Prefix) error {
	ifr, err := unix.NewIfreq(t.name)
	if err != nil {
		return err
	}
	if a.Addr().Is6() {
		return t.address6(sock, ifr, a)
	}
	ip := a.Addr().As4()
	if err := ifr.SetInet4Addr(ip[:]); err != nil {
		return err
	}
	if err := unix.IoctlIfreq(sock, unix.SIOCSIFADDR, ifr); err != nil {
		return err
	}
	var mask [4]byte
	binary.BigEndian.PutUint32(mask[:], ^uint32(0)<<(32-a.Bits()))
	if err := ifr.SetInet4Addr(mask[:]); err != nil {
		return err
	}
	return unix.IoctlIfreq(sock, unix.SIOCSIFNETMASK, ifr)
}

// address6 adds an IPv6 address and waits until it can be used. A TUN device
// has no neighbours that could have it, but the kernel sees that a moment later.
func (t *tun) address6(sock int, ifr *unix.Ifreq, a netip.Prefix) error {
	if err := unix.IoctlIfreq(sock, unix.SIOCGIFINDEX, ifr); err != nil {
		return err
	}
	sock6, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(sock6)
	in6 := struct { // struct in6_ifreq, include/uapi/linux/ipv6.h
		addr   [16]byte
		prefix uint32
		index  int32
	}{a.Addr().As16(), uint32(a.Bits()), int32(ifr.Uint32())}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(sock6), unix.SIOCSIFADDR, uintptr(unsafe.Pointer(&in6)))
	if errno != 0 {
		return errno
	}
	bind := &unix.SockaddrInet6{Addr: a.Addr().As16()}
	for range 200 {
		if err = unix.Bind(sock6, bind); !errors.Is(err, unix.EADDRNOTAVAIL) {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
	return err
}

// dropped is how many packets the kernel dropped because they were not read
// from the device in time (field tx drop of /proc/net/dev).
func (t *tun) dropped() uint64 {
	buf := make([]byte, 16<<10)
	n, _ := t.stats.ReadAt(buf, 0)
	for line := range bytes.Lines(buf[:n]) {
		name, rest, ok := bytes.Cut(line, []byte(":"))
		if !ok || string(bytes.TrimSpace(name)) != t.name {
			continue
		}
		const txDrop = 11
		if f := bytes.Fields(rest); len(f) > txDrop {
			v, _ := strconv.ParseUint(string(f[txDrop]), 10, 64)
			return v
		}
	}
	return 0
}

// close removes the device.
func (t *tun) close() error {
	var err error
	if t.fd >= 0 {
		err = unix.Close(t.fd)
	}
	if t.stats != nil {
		err = errors.Join(err, t.stats.Close())
	}
	return err
}
