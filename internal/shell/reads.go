package shell

import (
	"slices"
	"strings"
)

// readers are programs, with the words after them that make it so, which only show what is.
// What is not here changes something: TestLooks of package diagnose keeps the two apart for
// all that is printed.
var readers = []string{
	"slowray wait", "slowray flame", "slowray requests", "slowray func", "slowray why", "slowray drops", "slowray calls", "slowray doctor",
	"nft list", "nft -a list", "iptables-legacy -t * -L", "iptables-nft -t * -L", "iptables -t * -L", "iptables-save", "iptables-legacy-save", "iptables-nft-save", "ip -s", "ip -6 route get", "ip route show", "ip route get",
	"ip neigh show", "ip xfrm policy", "ip xfrm state", "ip addr", "ip rule", "ip -d link", "tc -s", "tc qdisc show", "tc filter show", "bpftool",
	"ss", "nstat", "dig", "ping", "tracepath", "openssl", "curl", "conntrack -S", "conntrack -C", "conntrack -L", "getent",
	"iostat", "pidstat", "mpstat", "vmstat", "sar", "ps", "pstree", "top", "free", "uptime", "slabtop", "numastat", "lslocks", "lsof", "fuser -v", "ls", "df", "du", "stat", "findmnt", "namei", "lsblk", "repquota",
	"nfsstat", "mountstats", "smartctl", "mdadm --detail", "mdadm -D", "ipcs", "cat", "head", "tail", "grep", "tr", "awk", "sort", "readlink", "dmesg", "journalctl",
	"systemctl status", "systemctl show", "systemctl list-timers", "systemctl cat", "cpupower frequency-info", "cpupower idle-info", "turbostat", "strace", "perf", "py-spy", "gdb", "jcmd", "jstack",
	"kill -QUIT", "kubectl describe", "kubectl get", "kubectl top", "kubectl logs", "kubectl -n * get", "kubectl -n * describe", "kubectl -n * top", "kubectl -n * logs",
	"docker inspect", "docker logs", "docker stats", "docker ps", "crictl",
}

// reading are words by which a client of a database or a shell says that it only asks.
var reading = []string{"SELECT ", "SHOW ", "INFO", "CONFIG GET", "SLOWLOG GET", "CLIENT LIST", "LATENCY ", "EXPLAIN ", "MEMORY ", "COMMANDLOG "}

// writing are words of those that change something, also where they ask what came of it.
var writing = []string{"ALTER ", "SET ", "KILL ", "pg_reload_conf", "pg_terminate_backend", "pg_cancel_backend"}

// Reads says that c shows what is, and changes nothing but where its own output goes: a look,
// and no fix. A note, which says what to do, is none.
func (c Command) Reads() bool {
	words := strings.Fields(c.line)
	for len(words) > 0 { // who runs another program, and their options
		switch words[0] {
		case "nsenter", "sudo", "timeout":
			for words = words[1:]; len(words) > 0 && (strings.HasPrefix(words[0], "-") || isDigits(words[0])); {
				words = words[1:]
			}
			continue
		case "ip":
			if len(words) > 4 && words[1] == "netns" && words[2] == "exec" {
				words = words[4:]
				continue
			}
		case "runuser":
			if i := slices.Index(words, "--"); i > 0 {
				words = words[i+1:]
				continue
			}
		case "ethtool":
			return len(words) > 1 && (words[1][0] != '-' || slices.Contains([]string{"-S", "-k", "-g", "-i"}, words[1]))
		case "sysctl":
			return !slices.Contains(words, "-w")
		case "psql", "mariadb", "mysql", "redis-cli", "valkey-cli":
			in := func(s string) bool { return strings.Contains(c.line, s) }
			return slices.ContainsFunc(reading, in) && !slices.ContainsFunc(writing, in)
		}
		break
	}
	return slices.ContainsFunc(readers, func(r string) bool { return begins(words, strings.Fields(r)) })
}

// begins says whether words begin with those of a pattern, in which * stands for one.
func begins(words, pattern []string) bool {
	for i, p := range pattern {
		if i >= len(words) || p != "*" && strings.TrimSuffix(words[i], ";") != p {
			return false
		}
	}
	return true
}

func isDigits(s string) bool { return strings.Trim(s, "0123456789.") == "" }
