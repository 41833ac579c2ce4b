package drop

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Constants of include/uapi/linux/pkt_sched.h and pkt_cls.h that package unix
// does not have.
const (
	handleClsact  = 0xffff0000 // TC_H_CLSACT: 0xffff:0
	parentClsact  = 0xfffffff1 // TC_H_CLSACT as a parent
	parentIngress = 0xfffffff2 // TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)
	parentEgress  = 0xfffffff3 // TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_EGRESS)

	bpfFD         = 6 // TCA_BPF_FD
	bpfName       = 7 // TCA_BPF_NAME
	bpfFlags      = 8 // TCA_BPF_FLAGS
	bpfDirect     = 1 // TCA_BPF_FLAG_ACT_DIRECT: the program's return value is the verdict
	filterPrio    = 1
	tcmsgLen      = 20
	attrHeaderLen = 4
)

// attachClsact gives a device of this thread's network namespace a clsact
// qdisc with a program at its ingress, or at its egress.
func attachClsact(index, fd int, name string, egress bool) error {
	parent := uint32(parentIngress)
	if egress {
		parent = parentEgress
	}
	err := ask(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_EXCL, index, handleClsact, parentClsact, 0,
		attr(unix.TCA_KIND, []byte("clsact\x00")))
	if err != nil {
		return fmt.Errorf("clsact qdisc: %w", err)
	}
	options := append(attr(bpfFD, word(uint32(fd))), attr(bpfName, []byte(name+"\x00"))...)
	options = append(options, attr(bpfFlags, word(bpfDirect))...)
	// tcm_info holds the filter's priority and, in network byte order, its protocol.
	info := uint32(filterPrio)<<16 | uint32(unix.ETH_P_ALL)<<8
	err = ask(unix.RTM_NEWTFILTER, unix.NLM_F_CREATE|unix.NLM_F_EXCL, index, 0, parent, info,
		append(attr(unix.TCA_KIND, []byte("bpf\x00")), attr(unix.TCA_OPTIONS, options)...))
	if err != nil {
		return fmt.Errorf("bpf filter: %w", err)
	}
	return nil
}

// detachClsact removes the qdisc and with it the filter. A device that is
// gone needs none removed.
func detachClsact(index int) error {
	err := ask(unix.RTM_DELQDISC, 0, index, handleClsact, parentClsact, 0, nil)
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// ask sends one request about traffic control and waits for its answer.
func ask(kind, flags uint16, index int, handle, parent, info uint32, attrs []byte) error {
	sock, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(sock)
	msg := make([]byte, unix.NLMSG_HDRLEN+tcmsgLen, unix.NLMSG_HDRLEN+tcmsgLen+len(attrs))
	msg = append(msg, attrs...)
	e := binary.NativeEndian
	e.PutUint32(msg, uint32(len(msg)))
	e.PutUint16(msg[4:], kind)
	e.PutUint16(msg[6:], flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	tcm := msg[unix.NLMSG_HDRLEN:]
	e.PutUint32(tcm[4:], uint32(index))
	e.PutUint32(tcm[8:], handle)
	e.PutUint32(tcm[12:], parent)
	e.PutUint32(tcm[16:], info)
	if err := unix.Sendto(sock, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 8<<10)
	n, _, err := unix.Recvfrom(sock, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.NLMSG_HDRLEN+4 || e.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return errors.New("netlink: answer not understood")
	}
	if errno := -int32(e.Uint32(answer[unix.NLMSG_HDRLEN:])); errno != 0 {
		return unix.Errno(errno)
	}
	return nil
}

func word(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

// attr is one netlink attribute, padded to four bytes.
func attr(kind uint16, data []byte) []byte {
	a := make([]byte, attrHeaderLen, attrHeaderLen+len(data)+3)
	binary.NativeEndian.PutUint16(a, uint16(attrHeaderLen+len(data)))
	binary.NativeEndian.PutUint16(a[2:], kind)
	a = append(a, data...)
	for len(a)%4 != 0 {
		a = append(a, 0)
	}
	return a
}
