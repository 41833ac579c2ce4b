package observe

import (
	"strings"
	"time"
)

// SchemaObservation identifies the format of a saved Observation. The number
// grows when a reader of the old format would misread the new one.
const SchemaObservation = "slowray.observation/2"

// Observation is all that was seen in one window.
type Observation struct {
	Schema  string `json:"schema"`
	Version string `json:"version"` // slowray version that made it
	Host    Host   `json:"host"`
	Window  Window `json:"window"`
	Filter  Filter `json:"filter"`
	// Capture is nil where a host was watched.
	Capture *Capture `json:"capture,omitempty"`
	Use     HostUse  `json:"use"`
	// Self is slowray's own pid among Processes; 0 where a file was read.
	Self       int       `json:"self,omitempty"`
	Namespaces []NetNS   `json:"namespaces,omitempty"`
	Processes  []Process `json:"processes,omitempty"`
	Cgroups    []Cgroup  `json:"cgroups,omitempty"`
	Connects   []Connect `json:"connects,omitempty"`
	Accepts    []Accept  `json:"accepts,omitempty"`
	DNS        []DNS     `json:"dns,omitempty"`
	// CallSeconds is for how long accept(), and connect() to unix sockets, were
	// watched: some moments of the window, and all of it from where a queue or
	// the descriptors of a server were seen to run out.
	CallSeconds float64  `json:"call_seconds,omitempty"`
	Profile     *Profile `json:"profile,omitempty"`
	// Stacks are whole stacks of services that computed while their requests were
	// slow, of some seconds of the window; only where a history is kept.
	Stacks     *Stacks      `json:"stacks,omitempty"`
	KernelLog  []KernelLine `json:"kernel_log,omitempty"`
	Nginx      []Nginx      `json:"nginx,omitempty"`
	PHPFPM     []PHPFPM     `json:"php_fpm,omitempty"`
	Databases  []Database   `json:"databases,omitempty"`
	AppServers []AppServer  `json:"app_servers,omitempty"`
	Endpoints  []Endpoint   `json:"endpoints,omitempty"`
	// What control groups, engines and runtimes allow, and what the kernel killed.
	Containers []Container `json:"containers,omitempty"`
	OOMKills   []OOMKill   `json:"oom_kills,omitempty"`
	Heaps      []Heap      `json:"heaps,omitempty"`
	// Kubernetes is nil where this host is no node, or nobody answered for it.
	Kubernetes *Kubernetes `json:"kubernetes,omitempty"`
	// CallErrors are system calls that failed for lack of something, while they
	// were watched: for ErrorSeconds of the window.
	CallErrors   []CallError  `json:"call_errors,omitempty"`
	ErrorSeconds float64      `json:"error_seconds,omitempty"`
	Filesystems  []Filesystem `json:"filesystems,omitempty"`
	State        HostState    `json:"state,omitzero"`
	// Waits is nil where the waits of threads were not watched.
	Waits *WaitGraph `json:"waits,omitempty"`
	// Drops is nil where drops were not watched.
	Drops  *Drops            `json:"drops,omitempty"`
	Sysctl map[string]string `json:"sysctl,omitempty"` // host-wide knobs, as "net.netfilter.nf_conntrack_max"
	// Changes are what was changed lately, newest first, then settings.
	Changes []Change `json:"changes,omitempty"`
	Gaps    []Gap    `json:"gaps,omitempty"`
	Losses  []Loss   `json:"losses,omitempty"`
}

// Host identifies the machine and its running kernel.
type Host struct {
	Name        string `json:"name"`
	Kernel      string `json:"kernel"` // uname -r
	BootID      string `json:"boot_id"`
	CPUs        int    `json:"cpus"` // online CPUs
	MemoryBytes uint64 `json:"memory_bytes"`
	NetNS       uint64 `json:"netns"`            // inode of the initial network namespace
	MountNS     uint64 `json:"mnt_ns,omitempty"` // inode of the mount namespace that slowray ran in
}

// Window is the stretch of time that was watched.
type Window struct {
	Start   time.Time `json:"start"`
	Seconds float64   `json:"seconds"`
}

// Capture is the file that an Observation was made from, of packets or a log of
// TCPRT: it tells of requests on the wire, and of nothing else.
type Capture struct {
	File        string `json:"file"`
	Packets     int64  `json:"packets"`
	Connections int64  `json:"connections"`
	Lines       int64  `json:"lines,omitempty"` // of a log of TCPRT, which tells less than packets
}

// Filter is what the user asked to look at; the zero Filter is the whole host.
type Filter struct {
	Port      int    `json:"port,omitempty"`
	PID       int    `json:"pid,omitempty"`
	Unit      string `json:"unit,omitempty"`
	Container string `json:"container,omitempty"` // several of a pod with commas between
	// Pod is how those were asked for, as ParseWorkloadRef reads it.
	Pod string `json:"pod,omitempty"`
}

// InUnit says whether the systemd unit is the one asked for, which may be
// given without ".service"; any is when none was asked for.
func (f Filter) InUnit(unit string) bool {
	return f.Unit == "" || unit == f.Unit || unit == f.Unit+".service"
}

// InContainer says whether the container is the one asked for; either id may
// be shortened. Any is when none was asked for.
func (f Filter) InContainer(id string) bool {
	if f.Container == "" {
		return true
	}
	for one := range strings.SplitSeq(f.Container, ",") {
		if n := min(len(id), len(one)); n > 0 && id[:n] == one[:n] {
			return true
		}
	}
	return false
}

// Kind names one sort of reading. A cause declares the kinds it needs; a kind
// that could not be read turns it into "not checked", with the Gap's reason.
type Kind string

// The kinds of reading.
const (
	KindCPU       Kind = "cpu"        // /proc/stat, /proc/softirqs, softnet_stat
	KindMemory    Kind = "memory"     // /proc/meminfo, /proc/vmstat
	KindDisk      Kind = "disk"       // /proc/diskstats
	KindPressure  Kind = "pressure"   // /proc/pressure
	KindProcess   Kind = "process"    // /proc/PID
	KindCgroup    Kind = "cgroup"     // cgroup v1 and v2 files
	KindCounters  Kind = "counters"   // /proc/PID/net/{netstat,snmp,sockstat}
	KindSysctl    Kind = "sysctl"     // /proc/sys in the service's namespace
	KindConntrack Kind = "conntrack"  // conntrack statistics of each namespace
	KindListeners Kind = "listeners"  // sock_diag, listening sockets
	KindSockets   Kind = "sockets"    // sock_diag, all sockets
	KindConnects  Kind = "connects"   // BPF: results of connect() and accept()
	KindDNS       Kind = "dns"        // BPF: queries to nameservers over UDP
	KindUDP       Kind = "udp"        // /proc/PID/net/udp and udp6
	KindErrors    Kind = "errors"     // BPF: system calls that fail
	KindFiles     Kind = "files"      // file systems: statfs(2)
	KindProfile   Kind = "profile"    // BPF: CPU samples with kernel stacks
	KindKernelLog Kind = "kernel-log" // /dev/kmsg
	KindNginx     Kind = "nginx"      // nginx configuration and logs
	KindPHPFPM    Kind = "php-fpm"    // php-fpm configuration and log
	KindDatabases Kind = "databases"  // configuration, logs and status of database and cache servers
	KindEngines   Kind = "engines"    // container engines
	KindApache    Kind = "apache"     // Apache httpd's configuration and error log
	KindHAProxy   Kind = "haproxy"    // HAProxy's configuration, log and statistics socket
	KindUWSGI     Kind = "uwsgi"      // uWSGI's options and log
	KindGunicorn  Kind = "gunicorn"   // gunicorn's options and error log
	KindPgBouncer Kind = "pgbouncer"  // PgBouncer's configuration
	KindTomcat    Kind = "tomcat"     // Tomcat's server.xml and logs, and those of the Tomcat inside a Java program
	KindWaits     Kind = "waits"      // /proc/PID/task: what threads wait for
	KindDrops     Kind = "drops"      // BPF: packets that the kernel drops
	KindPath      Kind = "path"       // netlink: devices, queueing disciplines, neighbours, routes
	KindFirewall  Kind = "firewall"   // netlink: rules of nftables and iptables
	KindRequests  Kind = "requests"   // BPF: every request of every TCP connection, with its ledger
	// KindKubernetes is pods and what belongs to them: container runtime, kubelet, API server.
	KindKubernetes Kind = "kubernetes"
)

// Kinds lists all kinds of reading.
func Kinds() []Kind {
	return []Kind{
		KindCPU, KindMemory, KindDisk, KindPressure, KindProcess, KindCgroup,
		KindCounters, KindSysctl, KindConntrack, KindListeners, KindSockets, KindConnects,
		KindDNS, KindUDP, KindErrors, KindFiles, KindProfile, KindKernelLog,
		KindNginx, KindPHPFPM, KindDatabases, KindEngines, KindApache, KindHAProxy,
		KindUWSGI, KindGunicorn, KindPgBouncer, KindTomcat, KindWaits, KindDrops, KindPath,
		KindFirewall, KindRequests, KindKubernetes,
	}
}

// Gap says that something could not be read, and why. It is never an error
// exit: a cause that needs the kind is reported as "not checked".
type Gap struct {
	Kind    Kind   `json:"kind"`
	NetNS   uint64 `json:"netns,omitempty"`   // 0 when the whole host is concerned
	Subject string `json:"subject,omitempty"` // file, process or namespace
	Because string `json:"because"`           // one sentence
	// Partial says that the kind was read elsewhere: only the named subject
	// is missing, so causes of this kind are still checked.
	Partial bool `json:"partial,omitempty"`
}

// Imported begins an Observation of requests that come from a file instead of a host.
// Everything but requests is a gap, because of untold; missing is what even of
// requests the file does not tell, one sentence each.
func Imported(c *Capture, w Window, untold string, missing []string) *Observation {
	o := &Observation{Schema: SchemaObservation, Capture: c, Window: w}
	for _, kind := range Kinds() {
		if kind != KindRequests {
			o.Gaps = append(o.Gaps, Gap{Kind: kind, Because: untold})
		}
	}
	for _, what := range missing {
		o.Gaps = append(o.Gaps, Gap{Kind: KindRequests, Because: what, Partial: true})
	}
	return o
}
