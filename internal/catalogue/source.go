package catalogue

import "github.com/slowray/slowray/internal/observe"

// sources says where each kind of reading comes from.
var sources = map[observe.Kind]string{
	observe.KindCPU:        "/proc/stat, /proc/softirqs, /proc/net/softnet_stat",
	observe.KindMemory:     "/proc/meminfo, /proc/vmstat",
	observe.KindDisk:       "/proc/diskstats",
	observe.KindPressure:   "/proc/pressure",
	observe.KindProcess:    "/proc/PID of the processes that serve, and of all others in short",
	observe.KindCgroup:     "files of control groups, versions 1 and 2",
	observe.KindCounters:   "netstat and snmp counters of each network namespace",
	observe.KindSysctl:     "sysctls of each network namespace",
	observe.KindConntrack:  "connection tracking statistics of each network namespace",
	observe.KindListeners:  "sock_diag: listening sockets and their queues",
	observe.KindSockets:    "sock_diag: all TCP sockets",
	observe.KindConnects:   "BPF: results of connect() and accept()",
	observe.KindDNS:        "BPF: packets of UDP sockets to and from port 53; resolv.conf as the process sees it",
	observe.KindUDP:        "/proc/PID/net/udp and udp6 of each network namespace",
	observe.KindErrors:     "BPF: system calls that fail, for an eighth of the window",
	observe.KindFiles:      "statfs() of the local file systems that services see",
	observe.KindProfile:    "BPF: CPU samples with kernel stacks",
	observe.KindKernelLog:  "/dev/kmsg",
	observe.KindNginx:      "nginx: configuration as running, error and access logs",
	observe.KindPHPFPM:     "php-fpm: configuration as running, its children, its log",
	observe.KindDatabases:  "database and cache servers: configuration as running, connections, logs, slow logs, status",
	observe.KindKubernetes: "pods: the container runtime (CRI), the kubelet and the API server",
	observe.KindEngines:    "container engines: their sockets, and their files on disk",
	observe.KindApache:     "Apache httpd: configuration as running, its children, error log",
	observe.KindHAProxy:    "HAProxy: configuration, log, statistics socket",
	observe.KindUWSGI:      "uWSGI: options as running, its workers, log",
	observe.KindGunicorn:   "gunicorn: options as running, its workers, error log",
	observe.KindPgBouncer:  "PgBouncer: the sizes of its pools",
	observe.KindTomcat:     "Tomcat: server.xml and logs, or those of the Tomcat inside a Java program",
	observe.KindDrops:      "BPF: packets that the kernel drops, by reason and place",
	observe.KindPath:       "netlink: devices, queueing disciplines, neighbours and routes of each network namespace",
	observe.KindFirewall:   "netlink: rules of nftables and both iptables",
	observe.KindWaits:      "/proc/PID/task: what threads wait for, and who has the other end",
	observe.KindRequests:   "BPF: every request on every TCP connection, with its ledger",
}

// sourceOf is where a kind comes from; its name where nothing more is said.
func sourceOf(k observe.Kind) string {
	if s := sources[k]; s != "" {
		return s
	}
	return string(k)
}
