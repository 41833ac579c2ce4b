package flow

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/slowray/slowray/internal/bpf"
	"github.com/slowray/slowray/internal/observe"
)

// sampleEvery is SAMPLE_EVERY of flow.bpf.c.
const sampleEvery = 16

// maxFlows bounds what Read returns.
const maxFlows = 8

// protos are the names of enum proto of flow.bpf.c.
var protos = [...]string{"other", "tcp syn", "tcp", "udp", "icmp", "arp", "tcp reset"}

// The records of flow.bpf.c.
type (
	flowKey struct {
		NetNS       uint32
		Port, Proto uint16
		Interface   [16]byte
	}
	peerKey struct {
		Flow   flowKey
		Addr   [16]byte
		Family uint32
	}
)

const familyInet = 2

// Sampler is the loaded program. It is for one goroutine at a time.
type Sampler struct{ objects bpf.FlowObjects }

// Load loads the program, and attaches nothing. It needs root, or CAP_BPF and
// CAP_PERFMON, and BTF.
func Load() (*Sampler, error) {
	spec, err := bpf.LoadFlow()
	if err != nil {
		return nil, fmt.Errorf("flows: %w", err)
	}
	s := &Sampler{}
	if err := bpf.Load(spec, &s.objects); err != nil {
		return nil, fmt.Errorf("flows: %w", err)
	}
	return s, nil
}

// Look counts the packets that come in for so long.
func (s *Sampler) Look(long time.Duration) error {
	l, err := link.AttachTracing(link.TracingOptions{Program: s.objects.Received})
	if err != nil {
		return fmt.Errorf("flows: attach: %w", err)
	}
	time.Sleep(long)
	if err := l.Close(); err != nil {
		return fmt.Errorf("flows: detach: %w", err)
	}
	return nil
}

// Close unloads the program.
func (s *Sampler) Close() { s.objects.Close() }

// Read returns what was counted in all looks together, most packets first.
func (s *Sampler) Read() ([]observe.Flow, []observe.Loss, error) {
	flows := map[flowKey]*observe.Flow{}
	var (
		key  flowKey
		n    uint64
		iter = s.objects.Flows.Iterate()
	)
	for iter.Next(&key, &n) {
		flows[key] = &observe.Flow{NetNS: uint64(key.NetNS), Interface: text(key.Interface), Proto: protoName(key.Proto), Port: int(key.Port), Packets: n * sampleEvery}
	}
	if err := iter.Err(); err != nil {
		return nil, nil, fmt.Errorf("flows: read: %w", err)
	}
	var peer peerKey
	most := map[flowKey]uint64{}
	iter = s.objects.Peers.Iterate()
	for iter.Next(&peer, &n) {
		if f := flows[peer.Flow]; f != nil && n > most[peer.Flow] {
			most[peer.Flow] = n
			f.Peer, f.PeerShare = address(&peer), min(1, float64(n*sampleEvery)/float64(f.Packets))
		}
	}
	// The sources give way to each other while they are read: then there are
	// so many that none stands out.
	_ = iter.Err()
	out := make([]observe.Flow, 0, len(flows))
	for _, f := range flows {
		out = append(out, *f)
	}
	slices.SortFunc(out, func(a, b observe.Flow) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.NetNS, b.NetNS), strings.Compare(a.Interface, b.Interface),
			strings.Compare(a.Proto, b.Proto), cmp.Compare(a.Port, b.Port))
	})
	// Those that are left out still count: shares are of all packets.
	if len(out) > maxFlows {
		rest := observe.Flow{Proto: "rest"}
		for _, f := range out[maxFlows:] {
			rest.Packets += f.Packets
		}
		out = append(out[:maxFlows], rest)
	}
	var losses []observe.Loss
	var lost uint64
	if err := s.objects.LostFlows.Get(&lost); err == nil && lost > 0 {
		losses = append(losses, observe.Loss{What: "samples of packets of more than 1,024 (interface, protocol, port)", Count: int64(lost)})
	}
	return out, losses, nil
}

func text(name [16]byte) string {
	s, _, _ := strings.Cut(string(name[:]), "\x00")
	return s
}

func protoName(p uint16) string {
	if int(p) >= len(protos) {
		return protos[0]
	}
	return protos[p]
}

func address(p *peerKey) string {
	if p.Family == familyInet {
		return netip.AddrFrom4([4]byte(p.Addr[:4])).String()
	}
	return netip.AddrFrom16(p.Addr).String()
}
