package drop

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/lab/netns"
)

// NoOffload has a device neither send nor receive several segments in one
// piece (ethtool -K DEVICE tso off gso off gro off).
func NoOffload(ns *os.File, device string) error {
	err := netns.Do(ns, func() error {
		sock, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(sock)
		var errs []error
		for _, command := range []uint32{unix.ETHTOOL_STSO, unix.ETHTOOL_SGSO, unix.ETHTOOL_SGRO} {
			errs = append(errs, ethtoolOff(sock, device, command))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return fmt.Errorf("offloads of %s: %w", device, err)
	}
	return nil
}

func ethtoolOff(sock int, device string, command uint32) error {
	value := struct{ cmd, data uint32 }{cmd: command} // struct ethtool_value, include/uapi/linux/ethtool.h
	ifr := struct {                                   // struct ifreq, include/uapi/linux/if.h
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value)}
	if len(device) >= len(ifr.name) {
		return unix.EINVAL
	}
	copy(ifr.name[:], device)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(sock), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&ifr))); errno != 0 {
		return errno
	}
	return nil
}
