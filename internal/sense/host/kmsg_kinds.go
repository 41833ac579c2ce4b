package host

import (
	"bytes"
	"net/netip"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
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
	{"read-only", []string{"emounting filesystem read-only"}}, // ext4
	{"read-only", []string{"BTRFS", "forced readonly"}},
	{"read-only", []string{"XFS (", "ilesystem has been shut down"}},
	{"read-only", []string{"XFS (", "orruption of in-memory data", "hutting down filesystem"}},
	{"file-system-error", []string{"EXT4-fs error (device "}},
	{"soft-lockup", []string{"BUG: soft lockup - CPU#"}},
	{"hard-lockup", []string{"hard LOCKUP on cpu "}},
	{"rcu-stall", []string{"rcu", "self-detected stall"}},
	{"rcu-stall", []string{"rcu", "detected", "stalls on CPUs/tasks"}},
	{"clocksource-unstable", []string{"Marking clocksource '"}},
	{"nfs-not-responding", []string{"nfs: server ", " not responding"}},
	{"thermal-throttle", []string{"cpu clock throttled"}},
	{"realtime-throttle", []string{"sched: RT throttling activated"}},
	{"segfault", []string{": segfault at "}},
	{"segfault", []string{"traps: ", " general protection"}},
	{"denied", []string{"apparmor=\"DENIED\""}},
	{"denied", []string{"avc:  denied"}},
	{"denied", []string{"type=1326 audit("}}, // a seccomp filter that logs
	{"audit-backlog", []string{"audit: ", "backlog limit exceeded"}},
	{"audit-backlog", []string{"audit: ", "audit_backlog="}},
	{"audit-backlog", []string{"audit: kauditd hold queue overflow"}},
	{"drop-caches", []string{"): drop_caches: "}},
	{"raid-failure", []string{"md/raid", "Disk failure on "}},
	{"page-allocation", []string{"page allocation failure: order:"}},
	{"hardware-error", []string{"[Hardware Error]: Machine check"}},
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
		default:
			l.Subject = subjectOf(m.kind, text, rest)
		}
		return l, true
	}
	return observe.KernelLine{}, false
}

// subjectOf is the device, server or program that a message names. What names
// none has "": messages of one kind are then counted together.
func subjectOf(kind string, text, rest []byte) string {
	var name []byte
	switch kind {
	case "io-error", "file-system-error": // "dev vda, sector", "(device vda1): "
		name = firstWord(bytes.TrimLeft(rest, " "))
		if after, ok := bytes.CutPrefix(text, []byte("nvme ")); ok {
			name = firstWord(after)
		}
	case "read-only": // "EXT4-fs (vda1): Remounting"
		name = between(text, "(", ")")
		name = bytes.TrimPrefix(name, []byte("device "))
	case "clocksource-unstable":
		name, _, _ = bytes.Cut(rest, []byte("'"))
	case "nfs-not-responding":
		name = between(text, "nfs: server ", " not responding")
	case "hung-task", "soft-lockup", "segfault", "drop-caches":
		name = program(kind, text)
	case "raid-failure":
		name = between(text, ":", ":")
	}
	return printable.Name(name, 64)
}

// program is who a message is about: "nginx:123", "bash (123)", "php[12]".
func program(kind string, text []byte) []byte {
	switch kind {
	case "hung-task":
		return between(text, "INFO: task ", " blocked ")
	case "soft-lockup":
		return between(text, "[", "]")
	case "drop-caches":
		name, _, _ := bytes.Cut(text, []byte(": drop_caches: "))
		return name
	}
	text = bytes.TrimPrefix(text, []byte("traps: "))
	name, _, _ := bytes.Cut(text, []byte("]"))
	if !bytes.Contains(name, []byte("[")) {
		return nil
	}
	return append(bytes.Clone(name), ']')
}

// between is what lies between two words; nil when they are not there.
func between(b []byte, from, to string) []byte {
	_, b, ok := bytes.Cut(b, []byte(from))
	b, _, ok2 := bytes.Cut(b, []byte(to))
	if !ok || !ok2 {
		return nil
	}
	return b
}

// firstWord is the name at the beginning: up to a blank, comma or bracket.
func firstWord(b []byte) []byte {
	if i := bytes.IndexAny(b, " ,:)"); i >= 0 {
		return b[:i]
	}
	return b
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
