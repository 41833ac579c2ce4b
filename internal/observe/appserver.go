package observe

// AppServer is one running application server or proxy that takes up a limited
// number of requests, or connections, at a time: Apache httpd, HAProxy, uWSGI,
// gunicorn, Tomcat, PgBouncer. What comes beyond the limit waits.
type AppServer struct {
	Kind      Kind   `json:"kind"`            // KindApache, KindHAProxy, KindUWSGI, KindGunicorn, KindTomcat, KindPgBouncer
	Model     string `json:"model,omitempty"` // how it works: Apache's MPM "prefork", "worker", "event"; gunicorn's worker class; PgBouncer's pool_mode
	PID       int    `json:"pid"`             // the master, or the only process
	Workers   []int  `json:"workers,omitempty"`
	NetNS     uint64 `json:"netns"`
	Container string `json:"container,omitempty"`
	Root      string `json:"root,omitempty"`   // how to reach its files from the host, "/proc/PID/root"; empty = same root
	Config    string `json:"config,omitempty"` // main file, inside its root

	Pools    []WorkerPool   `json:"pools,omitempty"`
	Backends []ProxyBackend `json:"backends,omitempty"` // HAProxy

	Log  []LogKind `json:"log,omitempty"`
	Logs []LogFile `json:"logs,omitempty"`
}

// WorkerPool is what limits how much a server takes up at once of what comes in
// at some addresses.
type WorkerPool struct {
	Name    string      `json:"name"` // "workers", "http-nio-8080", a frontend of HAProxy
	Listens []AppListen `json:"listens,omitempty"`
	Limit   int         `json:"limit"`              // requests or connections at once; 0 = not known
	Setting Setting     `json:"setting"`            // what the limit comes from
	Knob    string      `json:"knob"`               // the setting's name: "MaxRequestWorkers"
	Ceiling int         `json:"ceiling,omitempty"`  // most that the setting can be raised to without a restart (Apache's ServerLimit)
	Threads int         `json:"threads,omitempty"`  // of each worker process, when there are several
	PerConn bool        `json:"per_conn,omitempty"` // a worker is taken for as long as the connection lasts
	Timeout Setting     `json:"timeout"`            // after which a request is cut off: harakiri, gunicorn's timeout; seconds

	// What the kernel showed of worker processes of one thread: each round
	// looks at all of them. No rounds where a worker cannot be reported to be busy.
	Rounds        int     `json:"rounds,omitempty"`
	AllBusyRounds int     `json:"all_busy_rounds,omitempty"`
	BusyMean      float64 `json:"busy_mean,omitempty"`

	// HAProxy's own figures, where its statistics socket can be read.
	Status *PoolStatus `json:"status,omitempty"`
}

// AppListen is one address an application server listens at.
type AppListen struct {
	Addr    string  `json:"addr,omitempty"` // "" and "*" are any
	Port    int     `json:"port,omitempty"`
	Path    string  `json:"path,omitempty"` // unix
	Backlog Setting `json:"backlog"`
}

// ProxyBackend is one server that HAProxy passes requests to.
type ProxyBackend struct {
	Backend string  `json:"backend"`
	Server  string  `json:"server"`
	Addr    string  `json:"addr"` // as written: "10.0.0.1:80", "unix@/run/x.sock"
	MaxConn Setting `json:"maxconn"`
	// Frontends are the pools that may pass to it.
	Frontends []string    `json:"frontends,omitempty"`
	Status    *PoolStatus `json:"status,omitempty"`
}

// PoolStatus is a line of HAProxy's "show stat" at the end of the window, with
// the most of what was seen at samples.
type PoolStatus struct {
	State       string  `json:"state,omitempty"` // "OPEN", "UP", "DOWN", "MAINT"…
	Current     int     `json:"current"`         // scur: sessions
	CurrentPeak int     `json:"current_peak"`
	Limit       int     `json:"limit,omitempty"` // slim
	Queue       int     `json:"queue"`           // qcur: requests that wait for a server
	QueueMean   float64 `json:"queue_mean"`
	Samples     int     `json:"samples"`
	DownSamples int     `json:"down_samples,omitempty"` // samples in which it was DOWN
}
