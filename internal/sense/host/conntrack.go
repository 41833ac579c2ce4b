package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/nl"
)

// ErrNoConntrack says that connection tracking is not loaded, so nothing is
// tracked and no packet is lost to it.
var ErrNoConntrack = errors.New("connection tracking is not loaded")

// ConntrackSample is the connection tracking table of one namespace.
type ConntrackSample struct {
	Entries uint64 // now
	Max     uint64 // nf_conntrack_max: host-wide, compared with each namespace's own entries

	// Totals over all CPUs since boot, of 32-bit counters.
	Drop         uint64 // packets dropped because no entry could be had
	EarlyDrop    uint64 // entries thrown out to make room
	InsertFailed uint64
	Invalid      uint64
	// ClashResolved is clashes of entries that cost no packet (Linux 5.7).
	ClashResolved uint64
}

// Conntrack reads the namespace's connection tracking. Entries and the limit
// come from net.netfilter.nf_conntrack_{count,max}; the statistics from
// /proc/net/stat/nf_conntrack, which needs no rights, or where the kernel has
// none (CONFIG_NF_CONNTRACK_PROCFS) from ctnetlink, which needs CAP_NET_ADMIN
// over the namespace. The error is ErrNoConntrack when nothing is tracked at
// all; nothing is done that would load the module.
func (n *NetNS) Conntrack() (ConntrackSample, error) {
	var s ConntrackSample
	err := n.Do(func() (err error) {
		if s.Entries, err = n.conntrackSysctl("count"); err != nil {
			return err
		}
		if s.Max, err = n.conntrackSysctl("max"); err != nil {
			return err
		}
		path := filepath.Join(n.fs.Proc, "thread-self/net/stat/nf_conntrack")
		err = parseInto(path, func(r io.Reader) error { return parseConntrackStat(r, &s) })
		if errors.Is(err, os.ErrNotExist) {
			err = conntrackNetlink(&s)
		}
		return err
	})
	if errors.Is(err, ErrNoConntrack) {
		return ConntrackSample{}, ErrNoConntrack
	}
	if err != nil {
		return s, fmt.Errorf("conntrack: %w", err)
	}
	return s, nil
}

// conntrackSysctl reads net.netfilter.nf_conntrack_NAME; the file is there as
// long as the module is.
func (n *NetNS) conntrackSysctl(name string) (uint64, error) {
	path := filepath.Join(n.fs.Proc, "sys/net/netfilter/nf_conntrack_"+name)
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, ErrNoConntrack
	}
	if err != nil {
		return 0, err
	}
	line, _ := nextLine(b)
	f, _ := nextField(line)
	v, ok := ParseUint(f)
	if !ok {
		return 0, fmt.Errorf("%s: not a number", path)
	}
	return v, nil
}

// parseConntrackStat sums /proc/net/stat/nf_conntrack over its lines, one per
// CPU: hexadecimal columns named by the header (ct_cpu_seq_show,
// net/netfilter/nf_conntrack_standalone.c). The columns have changed their
// meaning but not those names.
func parseConntrackStat(r io.Reader, s *ConntrackSample) error {
	b, err := io.ReadAll(io.LimitReader(r, 4<<20))
	header, b := nextLine(b)
	var columns []*uint64
	for {
		var name []byte
		name, header = nextField(header)
		if len(name) == 0 {
			break
		}
		columns = append(columns, s.column(string(name)))
	}
	for len(b) > 0 {
		var line []byte
		line, b = nextLine(b)
		for _, c := range columns {
			var f []byte
			f, line = nextField(line)
			v, ok := ParseHex(f)
			if !ok {
				break
			}
			if c != nil {
				*c += v
			}
		}
	}
	return err
}

func (s *ConntrackSample) column(name string) *uint64 {
	switch name {
	case "invalid":
		return &s.Invalid
	case "insert_failed":
		return &s.InsertFailed
	case "drop":
		return &s.Drop
	case "early_drop":
		return &s.EarlyDrop
	case "clashres":
		return &s.ClashResolved
	}
	return nil
}

// Layout of include/uapi/linux/netfilter/nfnetlink.h and nfnetlink_conntrack.h.
const (
	nfgenmsgSize       = 4
	ctGetStatsCPU      = unix.NFNL_SUBSYS_CTNETLINK<<8 | 4 // IPCTNL_MSG_CT_GET_STATS_CPU
	ctStatInvalid      = 4                                 // CTA_STATS_INVALID
	ctStatInsertFailed = 9
	ctStatDrop         = 10
	ctStatEarlyDrop    = 11
	ctStatClashResolve = 14
)

// conntrackNetlink asks ctnetlink for the statistics of each CPU, in the
// namespace of the calling thread.
func conntrackNetlink(s *ConntrackSample) error {
	sock, err := nl.Open(unix.NETLINK_NETFILTER)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return ErrNoConntrack
	}
	if err != nil {
		return fmt.Errorf("ctnetlink socket: %w", err)
	}
	defer sock.Close()
	// struct nfgenmsg: family unspecified, version 0, resource 0.
	_, err = sock.Dump(ctGetStatsCPU, make([]byte, nfgenmsgSize), func(m nl.Message) { parseConntrackCPU(m.Payload, s) })
	if err != nil {
		return fmt.Errorf("ctnetlink statistics: %w", err)
	}
	return nil
}

// parseConntrackCPU adds the statistics of one CPU to s. The attributes are
// 32-bit numbers in network byte order.
func parseConntrackCPU(b []byte, s *ConntrackSample) {
	if len(b) < nfgenmsgSize {
		return
	}
	for kind, value := range nl.Attrs(b[nfgenmsgSize:]) {
		if len(value) >= 4 {
			v := uint64(binary.BigEndian.Uint32(value))
			switch kind {
			case ctStatInvalid:
				s.Invalid += v
			case ctStatInsertFailed:
				s.InsertFailed += v
			case ctStatDrop:
				s.Drop += v
			case ctStatEarlyDrop:
				s.EarlyDrop += v
			case ctStatClashResolve:
				s.ClashResolved += v
			}
		}
	}
}
