package nat

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/nl"
)

// Of include/uapi/linux/netfilter/nfnetlink.h and nfnetlink_conntrack.h.
const (
	ctGet = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1 // IPCTNL_MSG_CT_GET

	tupleOrig, tupleReply = 1, 2 // CTA_TUPLE_ORIG, CTA_TUPLE_REPLY
	tupleIP, tupleProto   = 1, 2 // CTA_TUPLE_IP, CTA_TUPLE_PROTO
	v4Src, v4Dst          = 1, 2 // CTA_IP_V4_SRC, CTA_IP_V4_DST
	v6Src, v6Dst          = 3, 4 // CTA_IP_V6_SRC, CTA_IP_V6_DST
	protoNum              = 1    // CTA_PROTO_NUM
	srcPort, dstPort      = 2, 3 // CTA_PROTO_SRC_PORT, CTA_PROTO_DST_PORT

	nested       = 1 << 15 // NLA_F_NESTED
	nfgenmsgSize = 4
)

// question asks for the entry of a TCP connection by the addresses that its client uses.
func question(client, server netip.AddrPort) []byte {
	src, dst := client.Addr().Unmap(), server.Addr().Unmap()
	family, from, to := byte(unix.AF_INET), uint16(v4Src), uint16(v4Dst)
	if src.Is6() {
		family, from, to = unix.AF_INET6, v6Src, v6Dst
	}
	var room [64]byte
	ip := nl.Append(nl.Append(room[:0], from, src.AsSlice()), to, dst.AsSlice())
	var ports [32]byte
	be := binary.BigEndian
	proto := nl.Append(ports[:0], protoNum, []byte{unix.IPPROTO_TCP})
	proto = nl.Append(proto, srcPort, be.AppendUint16(nil, client.Port()))
	proto = nl.Append(proto, dstPort, be.AppendUint16(nil, server.Port()))
	tuple := nl.Append(nl.Append(nil, tupleIP|nested, ip), tupleProto|nested, proto)
	return nl.Append([]byte{family, 0, 0, 0}, tupleOrig|nested, tuple) // struct nfgenmsg
}

// answeredBy is who answers, by an entry's tuple of the other direction; invalid where
// that says nothing.
func answeredBy(entry []byte) netip.AddrPort {
	if len(entry) < nfgenmsgSize {
		return netip.AddrPort{}
	}
	reply := nl.Find(entry[nfgenmsgSize:], tupleReply)
	ip, port := nl.Find(reply, tupleIP), nl.Find(nl.Find(reply, tupleProto), srcPort)
	src := nl.Find(ip, v4Src)
	if src == nil {
		src = nl.Find(ip, v6Src)
	}
	a, ok := netip.AddrFromSlice(src)
	if !ok || len(port) < 2 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a.Unmap(), binary.BigEndian.Uint16(port))
}
