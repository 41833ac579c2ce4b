package socket

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/slowray/slowray/internal/bpf"
	"github.com/slowray/slowray/internal/sense/host"
)

// Iterators holds the loaded programs.
type Iterators struct {
	objects bpf.SocketObjects
	tcp     *link.Iter
	owners  *link.Iter
}

// Open loads the iterators. They need Linux 5.9 (task_file: 5.8), and root or
// CAP_BPF and CAP_PERFMON.
func Open() (*Iterators, error) {
	spec, err := bpf.LoadSocket()
	if err != nil {
		return nil, fmt.Errorf("socket iterators: %w", err)
	}
	it := &Iterators{}
	if err := bpf.Load(spec, &it.objects); err != nil {
		return nil, fmt.Errorf("socket iterators: %w", err)
	}
	for _, a := range []struct {
		iter **link.Iter
		prog *ebpf.Program
		name string
	}{{&it.tcp, it.objects.DumpTcp, "tcp"}, {&it.owners, it.objects.DumpOwners, "task_file"}} {
		if *a.iter, err = link.AttachIter(link.IterOptions{Program: a.prog}); err != nil {
			it.Close()
			return nil, fmt.Errorf("socket iterators: attach %s: %w", a.name, err)
		}
	}
	return it, nil
}

// Close frees the programs.
func (it *Iterators) Close() {
	if it.tcp != nil {
		it.tcp.Close()
	}
	if it.owners != nil {
		it.owners.Close()
	}
	it.objects.Close()
}

// Sizes of the records in socket.bpf.c.
const (
	tcpRecord   = 48
	ownerRecord = 16
	readBuffer  = 1 << 16
)

// stateNames are the TCP states by number (include/net/tcp_states.h). A
// connection in TCP_NEW_SYN_RECV is a SYN_RECV to everybody else.
var stateNames = [...]string{"", "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT",
	"CLOSE", "CLOSE_WAIT", "LAST_ACK", "LISTEN", "CLOSING", "SYN_RECV", "BOUND_INACTIVE"}

// TCP calls visit with each TCP socket of ns. The sample is reused: visit must
// copy what it keeps. IPv4-mapped addresses come as IPv4.
func (it *Iterators) TCP(ns *host.NetNS, visit func(*host.SocketSample)) error {
	var r io.ReadCloser
	// The iterator looks at the namespace of the thread that opens it.
	if err := ns.Do(func() (err error) {
		r, err = it.tcp.Open()
		return err
	}); err != nil {
		return fmt.Errorf("tcp iterator: %w", err)
	}
	defer r.Close()
	var s host.SocketSample
	err := records(r, tcpRecord, func(b []byte) {
		parseTCP(b, &s)
		visit(&s)
	})
	if err != nil {
		return fmt.Errorf("tcp iterator: %w", err)
	}
	return nil
}

// parseTCP reads one record of a TCP socket.
func parseTCP(b []byte, s *host.SocketSample) {
	s.Inode = binary.NativeEndian.Uint64(b)
	s.SrcPort = binary.NativeEndian.Uint16(b[8:])
	s.DstPort = binary.NativeEndian.Uint16(b[10:])
	s.Family = b[12]
	s.State = ""
	if int(b[13]) < len(stateNames) {
		s.State = stateNames[b[13]]
	}
	s.Src, s.Dst = address(s.Family, b[16:32]), address(s.Family, b[32:48])
}

// Owners maps the inode of each socket of the host that is wanted to the
// processes that hold it, in ascending order.
func (it *Iterators) Owners(wanted func(inode uint64) bool) (map[uint64][]int, error) {
	r, err := it.owners.Open()
	if err != nil {
		return nil, fmt.Errorf("task_file iterator: %w", err)
	}
	defer r.Close()
	owners, err := parseOwners(r, wanted)
	if err != nil {
		return nil, fmt.Errorf("task_file iterator: %w", err)
	}
	return owners, nil
}

// parseOwners reads the records of who holds which socket. They come process by process,
// with one of a process for each of its descriptors.
func parseOwners(r io.Reader, wanted func(inode uint64) bool) (map[uint64][]int, error) {
	owners := map[uint64][]int{}
	err := records(r, ownerRecord, func(b []byte) {
		inode, pid := binary.NativeEndian.Uint64(b), int(binary.NativeEndian.Uint32(b[8:]))
		if pids := owners[inode]; (len(pids) == 0 || pids[len(pids)-1] != pid) && wanted(inode) {
			owners[inode] = append(pids, pid)
		}
	})
	for inode, pids := range owners {
		slices.Sort(pids)
		owners[inode] = slices.Compact(pids)
	}
	return owners, err
}

// records reads fixed-size records to the end.
func records(r io.Reader, size int, each func([]byte)) error {
	buffered := bufio.NewReaderSize(r, readBuffer)
	record := make([]byte, size)
	for {
		_, err := io.ReadFull(buffered, record)
		switch {
		case err == nil:
			each(record)
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
}

const familyInet6 = 10

func address(family uint8, b []byte) netip.Addr {
	if family == familyInet6 {
		return netip.AddrFrom16([16]byte(b)).Unmap()
	}
	return netip.AddrFrom4([4]byte(b[:4]))
}
