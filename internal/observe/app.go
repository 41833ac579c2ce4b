package observe

// Setting is one configuration value as the running process has it.
type Setting struct {
	Value   string `json:"value"`
	File    string `json:"file,omitempty"` // path as seen inside the process's own root
	Line    int    `json:"line,omitempty"`
	Default bool   `json:"default,omitempty"` // not written anywhere: the program's default
}

// Nginx is one running nginx instance: a master and its workers.
type Nginx struct {
	PID       int    `json:"pid"` // master
	Workers   []int  `json:"workers,omitempty"`
	NetNS     uint64 `json:"netns"`
	Container string `json:"container,omitempty"`
	Root      string `json:"root,omitempty"` // how to reach its files from the host, "/proc/PID/root"; empty = same root
	Config    string `json:"config"`         // main file, inside its root

	WorkerProcesses    Setting `json:"worker_processes"`
	WorkerConnections  Setting `json:"worker_connections"`
	WorkerRlimitNofile Setting `json:"worker_rlimit_nofile"`

	Listens   []NginxListen   `json:"listens,omitempty"`
	Upstreams []NginxUpstream `json:"upstreams,omitempty"`

	Limits []NginxLimit `json:"limits,omitempty"`

	// ConnectionsPeak is, for each worker, the most sockets it held at a
	// sample, to be compared with worker_connections (which counts sockets to
	// clients, to upstreams, and the listening ones).
	ConnectionsPeak map[int]int `json:"connections_peak,omitempty"`

	Errors   []LogKind      `json:"errors,omitempty"`   // error log, by kind
	Statuses []StatusSecond `json:"statuses,omitempty"` // access log, by second; at most 3600
	Logs     []LogFile      `json:"logs,omitempty"`
}

// NginxListen is one listen directive.
type NginxListen struct {
	Addr    string  `json:"addr,omitempty"` // "*" when none is given
	Port    int     `json:"port,omitempty"`
	Path    string  `json:"path,omitempty"`
	Backlog Setting `json:"backlog"` // default 511 on Linux (NGX_LISTEN_BACKLOG)
	File    string  `json:"file"`
	Line    int     `json:"line"`
}

// NginxUpstream is one place nginx passes requests to: an upstream block or a
// literal address in a *_pass directive.
type NginxUpstream struct {
	Name      string   `json:"name"`
	Via       string   `json:"via"`       // "fastcgi", "proxy", "uwsgi", "scgi", "grpc", "memcached"
	Servers   []string `json:"servers"`   // "127.0.0.1:9000", "unix:/run/php.sock"
	Keepalive Setting  `json:"keepalive"` // "0" when connections are not kept
	File      string   `json:"file"`
	Line      int      `json:"line"`
}

// NginxLimit is one limit_req or limit_conn directive.
type NginxLimit struct {
	Kind   string  `json:"kind"`            // "req", "conn"
	Zone   string  `json:"zone"`            // as log lines name it
	Key    string  `json:"key,omitempty"`   // what it counts by: "$binary_remote_addr"
	Rate   string  `json:"rate,omitempty"`  // req: "10r/s"; conn: the number
	Burst  string  `json:"burst,omitempty"` // req
	Status Setting `json:"status"`          // of the answer that is given instead; default 503
	File   string  `json:"file"`            // where it is applied
	Line   int     `json:"line"`
	Zoned  string  `json:"zoned,omitempty"` // file:line of the zone, which has the rate
}

// PHPFPM is one running php-fpm master.
type PHPFPM struct {
	PID       int       `json:"pid"`
	NetNS     uint64    `json:"netns"`
	Container string    `json:"container,omitempty"`
	Root      string    `json:"root,omitempty"`
	Config    string    `json:"config"`
	Pools     []FPMPool `json:"pools,omitempty"`
	Logs      []LogFile `json:"logs,omitempty"`
}

// FPMPool is one pool of a php-fpm master.
type FPMPool struct {
	Name          string  `json:"name"`
	Listen        Setting `json:"listen"`         // "127.0.0.1:9000", "9000", "/run/php.sock"
	ListenBacklog Setting `json:"listen_backlog"` // default 511; -1 in old versions
	PM            Setting `json:"pm"`             // "static", "dynamic", "ondemand"
	MaxChildren   Setting `json:"max_children"`

	Children []int `json:"children,omitempty"` // worker pids at the end
	// What the kernel showed of the children: each round looks at all of them.
	Rounds          int     `json:"rounds"`
	AllBusyRounds   int     `json:"all_busy_rounds"` // children ≥ max_children and none in accept()
	BusyMean        float64 `json:"busy_mean"`       // children with a request in hand
	BusyPeak        int     `json:"busy_peak"`
	RunningMean     float64 `json:"running_mean"` // of the busy ones, running or runnable
	BlockedMean     float64 `json:"blocked_mean"` // of the busy ones, asleep in other than a wait for bytes: in a sleep, a lock, a disk
	CPUSeconds      float64 `json:"cpu_seconds"`  // all children, in the window
	RunDelaySeconds float64 `json:"run_delay_seconds"`

	// SlowTimeout is request_slowlog_timeout: php-fpm looks at the stack of a
	// request that takes longer, and writes it into its slow log.
	SlowTimeout Setting      `json:"slow_timeout"`
	Slow        []SlowScript `json:"slow,omitempty"` // of the slow log, most first, at most 20

	Log []LogKind `json:"log,omitempty"`
}

// SlowScript counts entries of a slow log with the same script and place.
type SlowScript struct {
	Script   string `json:"script"`
	Function string `json:"function"`         // on top of the stack: "usleep()"
	Place    string `json:"place"`            // file:line where that was called
	Caller   string `json:"caller,omitempty"` // the function around it
	Count    int64  `json:"count"`
}

// LogKind counts log lines of one kind in the window.
type LogKind struct {
	Kind      string `json:"kind"`               // stable slug, see the app's package
	Upstream  string `json:"upstream,omitempty"` // address the line names, as written
	Count     int64  `json:"count"`
	Estimated bool   `json:"estimated,omitempty"` // scaled up from a part of a large log
	Seconds   int    `json:"seconds"`             // distinct seconds in which it was seen
	Clients   int    `json:"clients,omitempty"`   // distinct clients that the lines name, at most 64; 0 where they name none
	Number    int    `json:"number,omitempty"`    // a figure in the line, as the limit in "max_children setting (5)"
	Example   string `json:"example,omitempty"`   // first line, made printable, at most 256 bytes
}

// StatusSecond counts access log lines by HTTP status over one second.
type StatusSecond struct {
	Offset int   `json:"offset"` // seconds since the window began
	S2xx   int64 `json:"2xx"`
	S3xx   int64 `json:"3xx"`
	S4xx   int64 `json:"4xx"` // without 499
	S499   int64 `json:"499"`
	S5xx   int64 `json:"5xx"`
}

// LogFile says what was read of one log file.
type LogFile struct {
	Path       string `json:"path"`
	What       string `json:"what"`        // "error", "access", "fpm"
	GrownBytes int64  `json:"grown_bytes"` // written in the window, rotated files included
	ReadBytes  int64  `json:"read_bytes"`
	Lines      int64  `json:"lines"`
	Unparsed   int64  `json:"unparsed,omitempty"` // lines of no known form
	Problem    string `json:"problem,omitempty"`  // why it could not be read, one sentence
}
