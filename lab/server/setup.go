package server

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/slowray/slowray/lab/sandbox"
)

// Kind is which servers there are.
type Kind int

const (
	NginxFPM     Kind = iota // nginx, and php-fpm behind it over TCP on loopback
	NginxNginx               // nginx, and a second nginx behind it without keepalive
	App                      // a small TCP server of the lab's own that closes each connection
	Web                      // an HTTP server of the lab's own that keeps connections
	WebBackend               // Web, and a second one on a machine of its own that it calls
	WebDatabase              // Web, and a MariaDB on a machine of its own that it asks
	WebRedis                 // Web, and a Redis on a machine of its own that it writes to
	NativeApp                // an HTTP server of the lab's own in C
	NativeMail               // NativeApp, and a mail host on a machine of its own
	NginxNative              // nginx, and the server in C behind it
	NginxPython              // nginx, and a service of the lab's own in Python behind it
	Quoting                  // a service in Python that looks up names and calls what is behind, on a machine of its own
	DockerTomcat             // nginx, and a Tomcat in a container behind it
	Docker                   // nginx, the service in Python in a container, and a log collector on a machine of its own
	GoApp                    // an HTTP service of the lab's own in Go
	DeskApp                  // an HTTP server of the lab's own in C that needs something of the host
	JavaApp                  // an HTTP service of the lab's own in Java
	PythonApp                // the service in Python, by itself
	ErrandApp                // a server in Python of which a request is a few lines of Python
)

// HasBackend reports whether a part of the servers is on a machine of its own.
func (s *Setup) HasBackend() bool {
	k := s.Kind
	return k == WebPostgres || k == WebMemcached || k == WebBackend || k == WebDatabase || k == WebRedis || k == NativeMail || k == Quoting || k == Docker || s.Workers.Database ||
		slices.ContainsFunc(s.Hops, func(h Hop) bool { return h.Far })
}

// HasNginx reports whether clients talk to an nginx.
func (k Kind) HasNginx() bool {
	return k == NginxFPM || k == NginxNginx || k == NginxNative || k == NginxPython || k == Docker || k == NginxGunicorn || k == DockerTomcat
}

// Service is how an HTTP server of the lab's own behaves. The zero value
// answers at once, with few bytes, over a connection that it keeps.
type Service struct {
	Work       time.Duration // before the answer
	Size       int           // bytes of the answer's body; 0 = 12
	Stall      time.Duration // a wait in the middle of the body
	Pieces     int           // writes for an answer; 0 = 1
	Nagle      bool          // TCP_NODELAY off, as a program has it that does not ask for it
	SendBuffer int           // SO_SNDBUF, bytes; 0 = as the kernel sizes it
	EventLoop  bool          // one thread reads, works and answers, for one connection after the other
	Calls      int           // of what is behind it, for each answer
	CallClose  bool          // a new connection for each call
}

// Setup is one stack of servers and the place it runs in. The zero value of a
// field is not its healthy value: start from [Healthy].
type Setup struct {
	Kind Kind

	// nginx
	NginxBacklog      int
	WorkerConnections int
	ProxyLoopback     bool // NginxNginx: pass to 127.0.0.1, not to the server's address

	// php-fpm
	Children   int
	FPMBacklog int
	Sleep      time.Duration // what a page waits for, as for a quick query
	Hot        int           // turns of one function that a page costs
	Mixed      int           // turns of each of several functions that a page costs
	Includes   int           // files that a page consists of; PHP keeps them compiled
	Revalidate string        // … and looks whether one has changed: "never", "often" (after 2 s, as by default), "always"; empty = as Debian has it

	// App
	AppBacklog int
	AppWork    time.Duration // how long an answer takes
	AppSerial  bool          // it accepts nothing while it works

	// Web, and what it calls
	Web     Service
	Backend Service // WebBackend
	Query   Query   // WebDatabase, WebPostgres
	Redis   Redis   // WebRedis
	Cache   Cache   // WebMemcached
	Report  Report  // … and another program that asks the same database

	// NativeApp, NativeMail, NginxNative, and what is around them
	Native        Native
	Stopped       bool          // it gets a SIGSTOP once it serves
	StoppedFor    time.Duration // it is stopped so long, every two seconds
	LogPause      time.Duration // what reads its log takes it all at once, after so long
	SeatsHeld     time.Duration // another program holds the lock of its file so long, again and again
	SeatsFree     time.Duration // … and leaves it for so long; 0 = for a moment
	PricesStopped bool          // the process that serves its file system gets a SIGSTOP
	Prices        Prices        // … and how that serves it
	MailDropped   bool          // a firewall drops all that is sent to the mail host

	Go    Go   // GoApp
	Java  Java // JavaApp
	Storm int  // shells that start a program again and again
	Desk  Desk // DeskApp

	Errand Errand // ErrandApp
	Pod    Pod    // … which runs in a pod
	Around Around

	Workers Workers // Apache, UWSGI, NginxGunicorn, HAProxyWeb, Tomcat; its Code also NginxFPM

	// NginxPython, Docker
	Python    Python
	Asked     Python    // what a Python, Go, Java or Workers asks that Asks
	Collector Collector // Docker
	Container Container // DockerTomcat

	Quotes    Quotes // Quoting
	Transport Transport

	TLS TLS // of the servers that clients talk to

	// Hops are small services before the servers, the outermost first: clients talk
	// to that one.
	Hops     []Hop
	IdlePool int // threads of another program that wait for work which never comes

	// the network
	Wire        sandbox.Wire // between clients and servers
	BackWire    sandbox.Wire // between servers and backend
	ClientAddrs int          // addresses from ClientNet that the clients have besides their own

	Packets Packets

	// kernel, of the server's network namespace
	Somaxconn    int
	PortRange    int    // how many ephemeral ports there are, from a random one on; 0 = 10000–65535
	TWReuse      string // tcp_tw_reuse
	TWBuckets    int    // tcp_max_tw_buckets; 0 = as the kernel has it
	FinTimeout   int    // seconds; 0 = as the kernel has it
	Track        bool   // a firewall rule that needs connection tracking
	ConntrackMax int    // with Track, or rules of a router: nf_conntrack_max, which is host-wide

	Renamed bool // servers run from copies of their programs under another name

	// limits of the server processes
	NoFile    uint64  // soft RLIMIT_NOFILE; 0 = the hard limit
	QuotaCPUs float64 // 0 = none
	CPUWeight int     // as in cpu.weight, 0 = the usual 100
	CPUs      string  // that they may run on, "0"; empty = all
	MemoryMB  int     // 0 = no limit
	SwapMB    int     // file that the host swaps to; 0 = none
	Tasks     int     // processes and threads; 0 = no limit
	ReadMB    int     // that they may read from the disk in a second; 0 = no limit

	// other programs on the machine
	Burners    int    // busy loops
	BurnerNice int    // of those, and of the shells of a Storm
	Flood      bool   // a client sends SYNs as fast as it can, all dealt with by CPU 0
	Chores     Chores // what goes on on every healthy machine
	CronJobs   int    // busy loops that cron started
	Exports    int    // programs that write files to an image of a disk, which a thread of the kernel copies
}

// Healthy is a setup without any fault: CPU is what it runs out of first.
func Healthy(kind Kind) Setup {
	return Setup{
		Kind:              kind,
		NginxBacklog:      4096,
		WorkerConnections: 4096,
		Children:          40,
		FPMBacklog:        4096,
		AppBacklog:        4096,
		Somaxconn:         8192,
		TWReuse:           "1",
		ConntrackMax:      262144,

		Workers: healthyWorkers,
	}
}

// Plan is what differs from run to run: addresses and ports.
type Plan struct {
	ServerAddr, ClientAddr string
	FrontPort              int // nginx, or the app
	BackPort               int // php-fpm, or the second nginx
	RangeBase              int // first ephemeral port, when they are few

	// BackendAddr is the machine behind the servers, which are BackAddr there.
	BackAddr, BackendAddr string
}

// ClientNet is the network that clients with many addresses come from; the
// last byte of each address counts from 1 (RFC 5737).
const ClientNet = "198.51.100."

// NewPlan draws a plan. Listening ports stay below 10000, where no ephemeral
// port range of the lab begins.
func NewPlan(rng *rand.Rand) Plan {
	a, b, c := rng.IntN(254)+1, rng.IntN(256), rng.IntN(64)*4
	front := 1100 + rng.IntN(4000)
	behind := (b + 128) % 256
	return Plan{
		BackAddr:    fmt.Sprintf("10.%d.%d.%d", a, behind, c+1),
		BackendAddr: fmt.Sprintf("10.%d.%d.%d", a, behind, c+2),
		ServerAddr:  fmt.Sprintf("10.%d.%d.%d", a, b, c+1),
		ClientAddr:  fmt.Sprintf("10.%d.%d.%d", a, b, c+2),
		FrontPort:   front,
		BackPort:    front + 1 + rng.IntN(4000),
		RangeBase:   20000 + rng.IntN(40000),
	}
}
