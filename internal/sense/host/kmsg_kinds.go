package host

import (
	"bytes"
	"net/netip"

	"github.com/slowray/slowray/internal/observe"
)

// kernelMessages is the messages that matter, in the words of Linux 4.x to 6.x.
// All words of an entry must be in the text, in that order; the first entry
// that matches decides.
var kernelMessages = []struct {
	kind  string
	words []string
}{
	{"conntrack-table-full", []string{"conntrack: table full"}},
	{"syn-flood", []string{"ossible SYN flooding on port "}}, // "possible" before 3.x
	// One process killed is one line; "oom-killer:" and "oom-kill:constraint="
	// belong to the same kill.
	{"memcg-oom-kill", []string{"Memory cgroup out of memory: Kill"}},
	{"oom-kill", []string{"Out of memory", ": Kill"}}, // "Out of memory and no killable processes" is a panic
	{"time-wait-overflow", []string{"time wait bucket table overflow"}},
	{"neighbour-overflow", []string{"eighbo", "r table overflow"}}, // neighbor, Neighbour
	{"orphans", []string{"TCP: too many ", "orphaned sockets"}},    // "too many of orphaned sockets" before 3.10
	{"tcp-memory", []string{"TCP: out of memory"}},
	{"tcp-memory", []string{"Out of socket memory"}}, // before 3.1, also for orphans
	{"hung-task", []string{"INFO: task ", " blocked ", "for more than "}},
	{"io-error", []string{"I/O error, dev "}},
	{"io-error", []string{"Buffer I/O error on dev"}},
	{"io-error", []string{"critical ", " error, dev "}}, // medium, target, space allocation, nexus
	{"io-error", []string{"nvme", "timeout"}},
	{"file-max", []string{"VFS: file-max limit "}},
	{"net-ratelimit", []string{"net_ratelimit: ", "callbacks suppressed"}},
}

// classify tells the kind and subject of a kernel message; false when it is of
// none that matters.
func classify(text []byte) (observe.KernelLine, bool) {
	for _, m := range kernelMessages {
		rest, ok := text, true
		for _, w := range m.words {
			if _, rest, ok = bytes.Cut(rest, []byte(w)); !ok {
				break
			}
		}
		if !ok {
			continue
		}
		l := observe.KernelLine{Kind: m.kind}
		switch m.kind {
		case "conntrack-table-full":
			l.NetNS = tableFullNetNS(rest)
		case "syn-flood":
			l.Addr, l.Port = floodedPort(rest)
		}
		return l, true
	}
	return observe.KernelLine{}, false
}

// tableFullNetNS reads " in netns 4026532177, dropping packet" (seen in 6.18);
// older kernels do not say.
func tableFullNetNS(b []byte) uint64 {
	b, ok := bytes.CutPrefix(b, []byte(" in netns "))
	if !ok {
		return 0
	}
	b, _, _ = bytes.Cut(b, []byte(","))
	n, _ := ParseUint(b)
	return n
}

// floodedPort reads "80. Sending cookies." or, since 6.2 (commit
// d9282e48c608),
// "127.0.0.1:9000. Sending" and "[::1]:9000. Dropping".
func floodedPort(b []byte) (addr string, port int) {
	b, _ = nextField(b)
	b = bytes.TrimSuffix(b, []byte("."))
	if i := bytes.LastIndexByte(b, ':'); i >= 0 {
		host := bytes.TrimSuffix(bytes.TrimPrefix(b[:i], []byte("[")), []byte("]"))
		if a, err := netip.ParseAddr(string(host)); err == nil && a.Zone() == "" {
			addr = a.Unmap().String()
		}
		b = b[i+1:]
	}
	if n, ok := ParseUint(b); ok && n <= 65535 {
		port = int(n)
	}
	return addr, port
}
