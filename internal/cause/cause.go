package cause

import (
	"cmp"
	"slices"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// Layer says where on a request's way a cause sits, from the wire up. A
// request meets the layers in this order.
type Layer int

// The layers, in the order a request meets them.
const (
	LayerPath Layer = iota // the network between the two ends
	LayerNetfilter
	LayerSocket
	LayerApplication
	LayerCall // the service as a client of another one
	LayerMachine
)

// ID names a cause. It is stable, and in kebab-case.
type ID string

// Cause is one declaration of the catalogue.
type Cause struct {
	ID    ID
	Title string // a plain sentence about what is wrong
	Layer Layer
	Needs []observe.Kind // without these it is "not checked"
	// OnWire says that packets alone tell it: the requests of a capture will do.
	OnWire bool
	// InTCPRT says that a log of TCPRT tells it too.
	InTCPRT bool
	Class   Class
	// ConsequenceOf lists what may bring this one about.
	ConsequenceOf []Parent
	// Folds says that this one is reported as a consequence whenever one of them
	// is found too; otherwise only where the check itself has evidence of it.
	Folds bool
	// Informational says that it explains time which nobody on this host can
	// be blamed for: it is never a finding, and what was seen of it is reported
	// among what is ruled out.
	Informational bool
	// Check looks for it in a view. What all its findings have in common is
	// filled in by [Cause.Judge].
	Check func(*View) Result
	// Try gives the changes that would fix it at once, to prove it by: for a
	// finding, or, where Target.Finding is nil, for a service on which it was not
	// found. They are made together, in their order, and undone in the opposite
	// one. None: it cannot be tried there.
	Try func(*View, Target) []Change
}

// Result is what a check came to.
type Result struct {
	Findings []Finding
	// RuledOut says, when there is no finding, why not, with the figures. It
	// begins with "no", "none", "nothing" or "0" where there was not even a sign.
	RuledOut string
	// NotChecked says instead that there was too little to go by.
	NotChecked string
}

// Role says whether a finding is a cause or follows from another one.
type Role string

// The roles of a finding.
const (
	RoleCause       Role = "cause"
	RoleConsequence Role = "consequence"
)

// Verdict says how sure a finding is. A check only ever gives supported;
// proved is the result of an experiment.
type Verdict string

// The verdicts of a finding.
const (
	Supported Verdict = "supported"
	Proved    Verdict = "proved"
)

// Finding is a cause found on a subject. Its JSON is part of the report's
// contract (schema/report.schema.json).
type Finding struct {
	Cause   ID      `json:"cause"`
	Title   string  `json:"title"`
	Verdict Verdict `json:"verdict"`
	// Confidence is how likely it is to be true, 0 to 1: of findings like this one on
	// incidents that were drawn (docs/scoreboard.md) so many were.
	Confidence    float64 `json:"confidence"`
	Role          Role    `json:"role"`
	ConsequenceOf *ID     `json:"consequence_of"`
	Subject       Subject `json:"subject"`
	// Pods are those of one workload that it was found in, the one that loses most, which
	// is the subject's, first; nil where it was found in one, or in none.
	Pods     []PodShare `json:"pods,omitempty"`
	Impact   Impact     `json:"impact"`
	Evidence []Evidence `json:"evidence"`
	Fix      Fix        `json:"fix"`
	// Prove is nil where nothing can be changed to prove it.
	Prove *Prove `json:"prove,omitempty"`

	// Chain is who waits for whom, hop by hop, where a chain of waits is the
	// evidence; ChainEnd says why it goes no further.
	Chain    []observe.WaitHop `json:"chain,omitempty"`
	ChainEnd string            `json:"chain_end,omitempty"`
	// Began is when the requests that it is about began to suffer, in seconds into
	// the window; nil where that was before it or is not known.
	Began *float64 `json:"began_s,omitempty"`
	// Since is when it began, where windows that were judged before tell.
	Since *observe.Since `json:"since,omitempty"`
	// Asked is when the first request came to it, as View.Asked has it.
	Asked *float64 `json:"asked_s,omitempty"`
	// Over is set where several windows were judged: the other fields are those
	// of the worst one, but for the share.
	Over *observe.Over `json:"over,omitempty"`

	// Weight orders findings: the fraction of the attempts to get a good
	// response that this cause spoils, 0 to 1, as far as repairing it alone
	// would help.
	Weight float64 `json:"-"`
	// Parents narrows, for this finding, the causes it may follow from; nil
	// leaves all that its declaration names.
	Parents []Parent `json:"-"`
	// MayFollow narrows them to findings on the right subject; nil allows those
	// of the same network namespace and of the machine.
	MayFollow func(parent *Finding) bool `json:"-"`
	// Holds are the services, by their master process, that a chain of waits
	// holds up; Via all processes on it.
	Holds []int `json:"-"`
	Via   []int `json:"-"`
	// hurts is the endpoints that packets dropped at one place belonged to.
	hurts map[*ledger]bool
	// keepsOff is where connections were not established because of them.
	keepsOff map[destination]bool
	site     *DropSite // where, of a finding that was made from one place
	// firstNS is when looks at threads saw it first, ns into the window; 0: none did.
	firstNS int64
	// lost is the seconds that clients lost to it, where the check itself counts
	// what they lost (see Price); uncounted says that no recorded request tells.
	lost      *float64
	uncounted bool
	crew      *crew // a pool that has nothing free
	held      held  // what waits for what it is about
	spoils    []end // the services whose losses it accounts for
	// layer and class are its cause's.
	layer Layer
	class Class
}

// Subject is what the finding is about; Kind says which fields count.
type Subject struct {
	Kind      string `json:"kind"` // "namespace", "listener", "process", "pool", "cgroup", "destination", "host", "disk"
	NetNS     uint64 `json:"netns,omitempty"`
	PID       int    `json:"pid,omitempty"`
	Comm      string `json:"comm,omitempty"`
	Port      int    `json:"port,omitempty"`
	Addr      string `json:"addr,omitempty"`
	Interface string `json:"interface,omitempty"`
	Rule      string `json:"rule,omitempty"`
	Container string `json:"container,omitempty"` // name with id, else the id, of the container it is in
	Path      string `json:"path,omitempty"`      // configuration file with line, socket path, cgroup
	// Workload is the pod that it is in, in Kubernetes.
	Workload observe.Workload `json:"workload,omitzero"`
}

// PodShare is what a finding does in one pod of several of a workload.
type PodShare struct {
	Pod   string   `json:"pod"`
	PID   int      `json:"pid,omitempty"`
	Share float64  `json:"share"` // as in Impact, of this pod's
	Cost  *float64 `json:"cost_s,omitempty"`
}

// Impact is how much of the trouble the finding explains.
type Impact struct {
	Share float64 `json:"share"` // 0 to 1
	Of    string  `json:"of"`    // "failed requests", "new connections"…
	Text  string  `json:"text"`
	// OfTime says that Of is a time, not a number of attempts.
	OfTime bool `json:"-"`
	// Cost is the seconds that clients of this host lost to it in the window,
	// estimated (View.Price): by it findings about different services compare.
	// Nil where no request tells it.
	Cost *float64 `json:"cost_s,omitempty"`
}

// Evidence is one measured fact with where it was read.
type Evidence struct {
	Fact   string `json:"fact"`
	Value  any    `json:"value"`
	Limit  any    `json:"limit,omitempty"`
	Unit   string `json:"unit,omitempty"`
	Source string `json:"source"`
}

// Fix says how to fix the cause: commands that work at once on the running
// system, and what to write down so that it lasts.
type Fix struct {
	Text     string          `json:"text"`
	Commands []shell.Command `json:"commands"`
	Persist  []shell.Command `json:"persist,omitempty"`
	// Changes are the same as something slowray can do, prove and undo by itself.
	Changes []Change `json:"changes,omitempty"`
}

// Prove says how a finding can be proved.
type Prove struct {
	Command shell.Command `json:"command"`
	Hot     bool          `json:"hot"` // no server has to read its configuration anew
}

// Catalogue lists every cause that is known, in the order of the layers.
func Catalogue() []Cause {
	all := []Cause{
		networkLoss,
		qdiscDrop, tcIngressDrop, tcEgressDrop, xdpDrop, mtuMismatch, pmtuBlackhole, nicRing, linkErrors, softnetBacklog,
		rpFilterDrop, noRoute, neighbourUnresolved, neighbourTable, ipReassembly, ipsecPolicy, checksumErrors, firewallDrop, firewallReject,
		rtoTailLoss,
		synRetransmits,
		highRTT,
		slowReceiver,
		windowLimited,
		reordering,
		slowStartAfterIdle,
		slowClientAck,
		conntrackFull, conntrackForgot, longRuleList,
		acceptQueueOverflow,
		synCookiesSent,
		abortOnOverflow,
		synFlood,
		synQueueOverflow,
		receiveBufferPruned,
		socketBacklogDrop,
		pawsDrop,
		timeWaitBuckets,
		sendBufferLimited,
		closeWaitLeak,
		fdLimit,
		nginxWorkerConnections,
		phpFPMSlowScript,
		phpFPMChildrenExhausted,
		apacheWorkersExhausted,
		uwsgiWorkersBusy,
		gunicornWorkersBusy,
		tomcatThreadsExhausted,
		haproxyMaxconn,
		uwsgiHarakiri,
		gunicornWorkerTimeout,
		tlsHandshakeSlow,
		tlsHandshakeCall,
		tlsSessionRefused,
		tlsNoResumption,
		nginxLimitReq,
		nginxLimitConn,
		ephemeralPortsExhausted,
		timeWaitPortSearch,
		finTimeout,
		serviceWithoutEndpoints,
		staleEndpoint,
		terminatedBeforeDrain,
		upstreamRefused,
		connectTimeout,
		ipv6Fallback,
		connectionChurn,
		udpReceiveBufferOverflow,
		keepaliveRace,
		nssStall,
		dnsTimeout,
		dnsSearchExpansion,
		dnsSlow,
		processStopped,
		deadlock,
		logCollectorStalled,
		blockedOnPipe,
		unixDatagramBlocked,
		unixSocketBacklog,
		blockedOnFileLock,
		lockConvoy,
		applicationSleep,
		fsyncBound,
		blockedOnDisk,
		blockedOnRemote,
		nginxUpstreamErrors,
		errorAnswers,
		clientAborts,
		acceptQueueWait,
		applicationSlowToRead,
		cpuHotFunction,
		singleThreadSaturated,
		gilContention,
		threadPoolExhausted,
		gcPauses,
		eventLoopBlocked,
		autoreloadStatStorm,
		tracerAttached,
		slowClocksource,
		filesPerRequest,
		contextSwitchThrash,
		logFlooding,
		applicationStall,
		requestWaves,
		nagleDelayedAck,
		haproxyServerQueue,
		haproxyNoServer,
		connectionPoolExhausted,
		mariadbConnections,
		postgresConnections,
		redisMaxClients,
		memcachedConnections,
		mariadbLockWait,
		postgresLockWait,
		mariadbSlowQuery,
		postgresSlowQuery,
		redisSlowCommand,
		redisForkStall,
		redisAOFFsync,
		postgresCheckpoints,
		slowDependency,
		jvmHeapOverLimit,
		nodeHeapOverLimit,
		workersOverLimit,
		leakTowardLimit,
		containerOOMKilled,
		hostOOMKilled,
		slowStart,
		livenessProbeKills,
		readinessProbeUnlists,
		replicasMissing,
		autoscalerFlapping,
		nodePressureEviction,
		cpuQuotaThrottled,
		lowCPUWeight,
		affinityTooNarrow,
		realtimeHog,
		cpuSteal,
		jvmSerialGC,
		memoryHighThrottled,
		pageCacheThrash,
		cgroupIOThrottled,
		pidsLimit,
		cpuSaturated,
		shortLivedProcessStorm,
		runQueueWait,
		softirqSaturated,
		kernelThreadBusy,
		memoryPressure,
		tcpMemoryPressure,
		orphansLimit,
		diskSaturated,
		scheduledJobCollision,
		cpuFrequencyCapped,
		softLockup,
		raidDegraded,
		cachesDropped,
		slabBloat,
		dirtyThrottled,
		writebackThrottled,
		journalCommitStall,
		nfsStalled,
		swapThrash,
		directReclaimStall,
		compactionStall,
		mmapLockContention,
		directoryLockContention,
		fileWriteLock,
		coreDump,
		entropyWait,
		auditBacklog,
		hungTask,
		syslogBlocked,
		slowConsole,
		diskFull,
		inodesExhausted,
		shmFull,
		filesystemReadOnly,
		diskQuotaExceeded,
		diskIOErrors,
		maxMapCount,
		commitLimit,
		fileMax,
		inotifyLimit,
		aioLimit,
		sysvLimit,
		fileSizeLimit,
		staleHandle,
		securityDenials,
		unexplained,
	}
	slices.SortStableFunc(all, func(a, b Cause) int { return int(a.Layer - b.Layer) })
	return all
}

// Judge checks a view for the cause.
func (c *Cause) Judge(v *View) Result {
	r := c.Check(v)
	for i := range r.Findings {
		f := &r.Findings[i]
		f.Cause, f.layer, f.class = c.ID, c.Layer, c.Class
		f.Title = cmp.Or(f.Title, c.Title)
		f.Evidence = slices.DeleteFunc(f.Evidence, func(e Evidence) bool { return e.Value == "" })
	}
	return r
}

// supported begins a finding.
func supported(s Subject) Finding {
	return Finding{Verdict: Supported, Role: RoleCause, Subject: s, Fix: Fix{Commands: []shell.Command{}}}
}

// tried is the cause with changes that would fix it.
func (c Cause) tried(try func(*View, Target) []Change) Cause {
	c.Try = try
	return c
}

// follows says, from evidence, which cause a finding follows from.
func (f *Finding) follows(id ID) { f.ConsequenceOf = &id }

func ruledOut(because string) Result { return Result{RuledOut: because} }
