package cause

// The policy of the checks: from which figure on something counts. A share is 0
// to 1 of what its comment names; ns, µs and s are times. What has no source was
// found by trial: on the lab's incidents it tells what hurts from the controls
// that look like it. What several causes ask alike stands first.
//
// What slow means, for every cause that judges by the ledger of requests: a part
// of the ledger is to blame only where it takes a good part of the time, and so
// much of it that somebody notices: either of the requests in general (their
// mean), or of the slowest hundredth, where those are slow next to the median of
// the same endpoint and next to what they usually spend in this part.
// Retransmission is mere waste, so that less of it counts, in however few
// requests. Anything less is reported with its figures and found to be harmless.

const (
	noiseShare    = 0.01 // of requests, connections, answers, lookups or datagrams: fewer that fail, are lost or are slow are noise
	nearLimit     = 0.95 // of a limit: as much is at the limit
	fewPackets    = 10   // packets: fewer that are lost are an accident
	sightsAtMost  = 20   // signs of trouble that no finding is about: more would hide those that matter
	fewReadings   = 10   // readings of a pool: fewer tell nothing of it
	fileWorkShare = 0.40 // of a service's CPU time, in one kind of work on files
)

// Requests: slow.go.
const (
	fewRequests   = 5   // fewer of them say nothing
	tailRequests  = 50  // as many it takes to tell slow ones from usual ones
	fewAffected   = 3   // requests hit by something: fewer are an accident
	dominantShare = 0.4 // of the time
	wasteShare    = 0.2 // of the time, where it is mere waste
	slowerThan    = 2.0 // times the median: a slow request
	unusual       = 3.0 // times the median of the part
)

// Requests: account.go.
const (
	harmShare        = 0.1  // of an endpoint's time: fewer seconds lost are what any busy service loses
	ownFloor         = 5e7  // ns that a request computes, or sleeps by choice: less may be how a healthy service works
	ownShare         = 0.8  // of its time
	harmedLeast      = 10   // requests that failed, or were never answered
	leftInHand       = 3    // times the requests in hand on average are as many as a client that ends leaves
	leftWithin       = 1e8  // ns: clients that give up within it, after waits of all lengths, are one that ends
	patience         = 0.95 // of the answers come sooner than a client gives up that has waited too long
	seenLeast        = 0.25 // of the slow time told by looks at threads: less does not stand for the rest
	calledByOwn      = 0.8  // of its requests: an endpoint that services of this host call for less has clients of its own
	errorsPassed     = 0.5  // of a service's errors: so many calls must fail for them to be where these come from
	unexplainedShare = 0.5  // of what an endpoint lost: less may be the error of the estimate
)

// Requests: ledger.go.
const (
	// lateShare is the part of the requests' time that threads of a service which
	// wait for full CPUs may account for, before that is what the requests wait for.
	lateShare = 0.5
	// lackingHops is through how many services of this host calls are followed to one that
	// waits for a CPU.
	lackingHops = 4
)

// Requests: began.go.
const (
	beganAfter  = 1.0 // s into the window: what was slow from its beginning began before
	beganBefore = 0.1 // of the requests came before it, and were quick
	beganSlow   = 2.0 // times the quick ones of them
	beganQuiet  = 2   // times the longest time between two slow ones after it
)

// Requests: application_wait.go.
const (
	unreadTime = 1e9 // ns: a request that nobody has read for so long is left alone
	unreadBusy = 5e9 // the same on full CPUs, where every thread is late
	// aloneOnCPU is the use of a CPU from which on a single process is taken to be
	// out of it.
	aloneOnCPU = 0.85
)

// Requests: request_waves.go.
const (
	waveRequests = 100  // requests: fewer have no rhythm
	waveBins     = 40   // tenths of a second
	waveIdle     = 0.4  // of them without a request
	waveIndex    = 10.0 // variance of the requests in a bin to their mean; 1 when they come by chance
	waveCount    = 3    // bursts
	waveSlow     = 50e6 // ns: quicker requests are not slow
	waveSpread   = 4.0  // between slow requests and quick ones of the same endpoint
)

// Requests: call_errors.go.
const (
	callsMore = 3.0 // calls for each failed request: with more, most of them do no harm,
	mostFail  = 0.5 // unless this share of the requests fails
)

// Requests: slow_dependency.go.
const (
	callTime    = 25e6 // ns: a service whose calls take less is not slow because of them
	callShare   = 0.5  // of the time in which the service is busy with requests
	callSlower  = 5.0  // times the median: a slow call among quick ones
	longestCall = 1.2  // times the longest request: a call that takes more is not made for one
)

// Requests: connect_outcomes.go.
const (
	harmEach = 0.2 // attempts for each request that suffers, at least: with fewer it is something else
)

// Requests: keepalive_race.go.
const (
	raceShare   = 0.9  // of the calls without an answer that were looked at
	raceMost    = 0.3  // of the calls: an upstream that is gone takes more
	raceAllowed = 20e6 // ns, next to two round trips
)

// Network: network_loss.go.
const (
	lossPermille = 2 // of the segments, retransmitted: less is what TCP lives with
	// fewReach is the share of a service's time below which its calls to an
	// endpoint do not matter.
	fewReach = 0.2
	// longSegment is the bytes from which on a segment may be too long for a path:
	// tunnels and links of today take 1,280 at least (RFC 8200, 5), with headers.
	longSegment = 1000
)

// Requests: recurs.go.
const (
	burstGap     = 200e6 // ns between slow requests, from which on they are of another burst
	burstShare   = 0.35  // of the window: what takes more of it is no burst
	burstRegular = 0.4   // of the interval, by which one may differ from another
	fewInBursts  = 6     // slow requests: fewer have no pattern
	arrivalsEach = 5     // tenths of a second
)

// Network: reordering.go.
const (
	spuriousShare = 0.5 // of what was retransmitted had arrived
)

// Network: high_rtt.go.
const (
	queueTimes  = 5.0  // times the least round trip of the connection
	queueExcess = 10e6 // ns above it
	farRTT      = 5e6  // ns: a round trip inside one place takes less
	fewEnds     = 4    // other ends that are machines of ours and not the public
	farRate     = 10   // requests a second: fewer may be a person at a keyboard
)

// Network: slow_client_ack.go.
const (
	lateAck = 10e6 // ns: later than any network of one place
)

// Network: slow_start_idle.go.
const (
	idleRTT        = 10e6 // ns: with shorter round trips there is little to win
	roundsLeast    = 2.0  // round trips that an answer takes
	roundsOfTheory = 0.7  // of those that slow start would take
)

// Network: send_wait.go.
const (
	bufferRTT = 1e6 // ns: with less, a buffer is filled again before it is noticed
)

// Network: syn_retransmits.go.
const (
	synWait = 0.9e9 // ns: a SYN without an answer is retransmitted after 1 s (TCP_TIMEOUT_INIT)
)

// Network: syn_queue.go.
const (
	synQueueFull = 0.5 // of its limit, at a sample: it changes faster than it is looked at
	synsIgnored  = 0.5 // SYN-ACKs retransmitted for each half-open connection: nobody answers them
)

// Network: drop_exchange.go.
const (
	ackEvents = 0.25 // of a retransmission, for an acknowledgement that was dropped: the next one makes up for it, mostly
)

// Network: drop_firewall.go.
const (
	// fewUncounted is the share of the dropped packets below which what counters
	// leave over is the time between two readings.
	fewUncounted = 0.05
)

// Network: drop_harm.go.
const (
	// explains is the share of what was retransmitted that a site must have dropped
	// for it to be one of the reasons.
	explains = 0.05
	// heldShare is the share of its segments that a sender's own host must drop for
	// it to be more than how TCP finds the rate of a link.
	heldShare = 0.02
	// unseenShare is the share of the segments that come in which must die for
	// clients elsewhere to be sure to wait.
	unseenShare = 0.01
	// A connection tracking table with so much of its limit in use throws entries out to
	// make room (early_drop in net/netfilter/nf_conntrack_core.c tries 8 buckets only).
	fullTable = 0.95
	// Applications keep idle connections for minutes: pools, keepalive of upstreams. A
	// firewall that forgets them earlier than shortTracking (s) breaks them. TCP's own
	// keepalive is first sent after two hours; wantedTracking (s) is above it.
	shortTracking  = 3600
	wantedTracking = 86400
)

// Network: dns.go.
const (
	nameTime = 0.3  // of the time in which the service answers requests
	nameSlow = 15e6 // ns: an answer that takes less is not slow
	notFound = 0.5  // of the lookups end with a name that is not there
	// clashShare is of the queries without an answer: as many or more were dropped as their
	// conntrack entry clashed.
	clashShare = 0.5
)

// Sockets: accept_queue.go.
const (
	// smallBacklog is a queue so short that a burst of ordinary traffic fills it,
	// whatever the application does: the defaults are 511 (nginx, php-fpm, Redis),
	// 128 (Java has 50), 4096 (the kernel's somaxconn since 5.4).
	smallBacklog = 64
	// A queue that is always full of more than slowDrain seconds of work is long
	// enough: the application takes too little out of it.
	alwaysFull = 0.8  // of the limit, on average
	slowDrain  = 0.25 // s
	// partlyWatched is the share of the window from which on calls count as watched
	// all the time.
	partlyWatched = 0.9
)

// Sockets: ephemeral_ports.go.
const (
	// ampleRange is a port range that is not to blame by itself: what fills it is.
	ampleRange = 10_000
)

// Sockets: time_wait.go.
const (
	searchShare   = 0.08 // of a process's CPU
	searchSamples = 20   // samples of a profile: fewer tell nothing
)

// Sockets: close_wait.go.
const (
	leakShare = 0.5 // of the open files, in CLOSE_WAIT
)

// Sockets: connection_churn.go.
const (
	churnShare     = 0.9 // connections for each call
	handshakeShare = 0.3 // of the service's time that goes into handshakes
	handshakeLong  = 3.0 // times the round trip: a handshake that takes longer met something else
)

// Servers: worker_pool.go.
const (
	takenShare = 0.85 // of the workers, on average while requests come in
	takenMost  = 1.3  // times as many are not what this limit holds back
	queueLeast = 0.5  // connections in an accept queue, on average
)

// Servers: connection_pool.go.
const (
	poolMost    = 1000 // connections: more are no pool that somebody has set
	poolWaiting = 0.4  // of what the service has in hand waits for a connection
	poolOverlap = 0.1  // of the calls share a connection: then connections are no limit
)

// Servers: thread_pool.go.
const (
	poolLooks = 4    // at a pool; each is one at each of its threads
	poolQueue = 0.25 // of the requests in hand: as many wait for a thread
	poolTurns = 0.8  // of the requests: as often a thread of the pool ends a wait, at the least
)

// Servers: php_fpm_children.go.
const (
	allBusyShare = 0.6  // of the readings with no child free
	idleCPUShare = 0.15 // of the machine: enough for more children to run on
	// Where there is less: what of the busy children's time is sleep, or how
	// little of it, and of the machine, is work.
	blockedShare = 0.3  // of their time, asleep
	workShare    = 0.15 // of their time, running
	poolCPUShare = 0.10 // of the machine
	drownedShare = 0.75 // of the requests: errors, which take the CPUs that answers want
)

// Servers: php_fpm_slow.go.
const (
	slowEntries = 3   // in the slow log
	slowSame    = 0.5 // of them in the same line
)

// Servers: nginx_limits.go.
const (
	limitedShare = 0.05 // of the requests are turned away
	limitedLeast = 10   // requests turned away
	fewClients   = 0.25 // of the clients: a limit is there to hold back some
)

// Servers: nginx_upstream.go.
const (
	abortSeconds = 3 // distinct seconds with aborts, the last second of traffic left out
)

// Servers: event_loop.go.
const (
	loopTogether = 3    // of the slowest requests, under way in one process at once
	loopAlone    = 0.80 // of the process's CPU time, by its busiest thread
	loopBlocked  = 0.02 // of the looks at its threads that found one blocked: an occasional long call
)

// Servers: database_slow.go.
const (
	slowCommandShare = 0.05 // of the window, in slow commands of a Redis: in less few others wait
	scanRows         = 1000 // rows looked at for each that is given: an index would help
	lockedShare      = 0.5  // of a statement's time, waiting for locks: it is not slow by itself
)

// Servers: database_stalls.go.
const (
	forkStall = 50_000 // µs in fork(2): shorter ones stop nobody for long
)

// CPU: cpu.go.
const (
	idleWhenFull     = 0.10 // of the CPUs: less is full
	outsiderShare    = 0.20 // of the machine, used by processes not on the requests' way
	spellsLeast      = 0.10 // of the window, with full CPUs: threads wait for one that long
	burstSlow        = 0.7  // of the slow requests' time, in which the CPUs were full: they are slow for that
	delayPerCPU      = 0.5  // s of waiting for a CPU for each s of computing, of the servers
	delayFloor       = 0.10 // s of waiting a second, of the servers together
	niceMeansYield   = 15   // processes this nice give way by themselves
	throttledShare   = 0.05 // of the periods
	throttledSeconds = 0.05 // s of waiting per s, over the threads
)

// CPU: cpu_share.go.
const (
	lowWeight     = 50   // of 100: half of the usual one
	lowNice       = 5    // from here on a process gives way noticeably: a third of the usual weight
	narrowBusy    = 0.80 // of the time, the CPUs that the service may use
	narrowIdle    = 0.30 // of the time, the others
	realtimeShare = 0.5  // of a CPU
	stealShare    = 0.05 // of the CPUs' time: less is usual where CPUs are shared
)

// CPU: cpu_hardware.go.
const (
	freqCapped = 0.6 // of the hardware's frequency
	freqBusy   = 0.5 // of the CPUs in use: with less to do they run slowly by themselves
	lockupSlow = 1e9 // ns of the slowest requests
)

// CPU: run_queue.go.
const (
	// queuedLeast is the share of the time, while the slowest requests are under
	// way, in which the thread that waits most for a CPU does so. A thread that is
	// seldom ready makes nobody wait for lack of a CPU.
	queuedLeast = 0.3
)

// CPU: follows.go.
const (
	// noDelay is the time in which the threads of a service waited for a CPU, in s
	// for each s of the window, below which a lack of CPUs is not why it is slow.
	noDelay = 0.01
)

// CPU: at_work.go.
const (
	busyThreadShare = 0.90 // of the time, running or wanting to: a thread that can do no more
	busyOnCPU       = 0.50 // of the time, running: less is a lack of CPUs, not of threads
	computeShare    = 0.30 // of the slow requests' time: in less the thread that answers waits for something else
	profileLeast    = 30   // samples: fewer tell nothing about functions
	// splitLeast is the share of the Server time that has to be split for the
	// split to tell about all of it.
	splitLeast = 0.5
)

// CPU: functions.go.
const (
	// hotShare is the share of the samples from which on a function has most of
	// the CPU time.
	hotShare = 0.50
	// hotOwnShare is how much of that it has to do itself.
	hotOwnShare = 0.25
)

// CPU: hot_function.go.
const (
	hotOwn   = 0.40 // of a request's time, computing on its own behalf
	hotFloor = 2e6  // ns a request computes in the function: less is the load's doing, not the function's
	fewLong  = 0.10 // of the requests compute for long: more are not few
	hotAlone = 3e7  // ns a request computes while CPUs are idle: less may be how a healthy service works
	hotFill  = 0.25 // of the CPU time that is used, by the service, on full CPUs
)

// CPU: single_thread.go.
const (
	othersIdle = 0.25 // CPUs with nothing to do: with less, another thread would have none
	severalNow = 1.5  // requests under way at once: fewer do not wait for each other
)

// CPU: gil_contention.go.
const (
	gilTogether = 0.85 // of a CPU, the threads together
	gilMost     = 1.30 // of a CPU: who gets more shares no lock
	gilInTurn   = 0.30 // of the slow requests' time, waiting for the interpreter's lock
	gilThread   = 0.05 // of a CPU, of a thread that takes part
	gilTop      = 0.80 // of what they use, the busiest: it hardly shares
	gilAlone    = 0.70 // of a thread that serves nothing, on a CPU or ready for one
	// gilMeanwhile is the share of the slow requests' time in which such a thread was on a
	// CPU, or ready for one, that holds it now and then.
	gilMeanwhile = 0.50
	inTurnLeast  = 0.50 // of what requests wait: so much for the lock of the interpreter, and it is that
	gilHeld      = 0.40 // of a CPU, all threads together: on full CPUs who has the lock waits, too
)

// CPU: gc_pauses.go.
const (
	gcShare = 0.30 // of a service's CPU time, or of the slow requests' time
)

// CPU: gc_pauses.go.
const (
	gcStuck = 0.5 // of the window, in threads that collect, of a service that answers nobody
)

// CPU: serial_gc.go.
const (
	gcOfWindow = 0.10 // of the window, with all threads standing still
)

// CPU: kernel_work.go.
const (
	clockShare  = 0.10     // of a service's CPU time
	switchShare = 0.30     // the same
	switchRate  = 20_000.0 // time slices a second, of all threads of a service
)

// Netfilter: long_rule_list.go.
const (
	longList   = 1000 // rules of a chain: fewer are passed in microseconds
	rulesShare = 0.20 // of a service's CPU time, on its packets' way through them
)

// CPU: tracer_attached.go.
const (
	tracedLeast = 0.10 // of the looks at threads with work in hand
)

// CPU: softirq.go.
const (
	softirqShare   = 0.30 // of one CPU: from here on packets wait for it
	ksoftirqdShare = 0.10 // of one CPU
	uselessShare   = 0.50 // of the TCP and UDP packets that came in, for no socket
)

// CPU: kernel_thread.go.
const (
	kernelThreadShare = 0.25 // of a CPU, by one kernel thread
	reasonShare       = 0.30 // of its samples: what it mostly does
)

// CPU: process_storm.go.
const (
	stormRate  = 5.0  // processes and threads that begin each second
	stormShare = 0.20 // of the CPUs, by processes that began and ended within the window
	stormOwn   = 0.25 // of the request latency that starts them: it waits for them to begin and to end, too
	stormSeen  = 5    // of them, seen on a CPU: fewer are no storm
)

// CPU: scheduled_job.go.
const (
	jobShare = 0.5 // of what processes take that are not on the requests' way
)

// Memory and storage: machine.go.
const (
	memoryStall = 0.10  // of the window (PSI "some")
	diskBusy    = 0.95  // of the window
	diskWait    = 10e-3 // s a request takes on average
	diskBlocked = 0.10  // of the serving threads' time, in uninterruptible sleep
)

// Memory and storage: neighbour.go.
const (
	neighbourShare = 0.5       // of the bytes that all processes move on a disk or a server: why others wait for it
	neighbourBusy  = 0.5       // of the window: a disk that is less busy is slow by itself
	neighbourRate  = 128 << 10 // bytes/s: 32 small reads, which keep a slow disk busy
)

// Memory and storage: machine.go.
const (
	largeMemory = 0.2 // of the machine's memory, in one process: worth a limit
)

// Memory and storage: group_limits.go.
const (
	refaultRate = 200  // pages a second: 0.8 MB of files read twice
	ioOfLimit   = 0.80 // of what a group may do
	diskOfBusy  = 0.20 // of the time in which a process had work in hand, in uninterruptible sleep
)

// Memory and storage: heap_limit.go.
const (
	// besideHeap is what a runtime needs next to its heap, as a share of it: metaspace,
	// stacks of threads, buffers outside the heap.
	besideHeap  = 0.25
	heapOfLimit = 0.75 // of the limit: what a heap may have
	// manyWorkers is how many processes of one program make a pool.
	manyWorkers = 3
	leakOfLimit = 0.6 // of the limit, held by the process itself each time
)

// Memory and storage: oom.go.
const (
	// killLeast is the weight of a kill at the least: a process that answered is
	// gone, with all that it had in hand.
	killLeast = 0.05
)

// Memory and storage: slow_start.go.
const (
	startThrottled = 0.30 // of the periods
	startWaiting   = 0.50 // of the time that its threads could run
	startYoung     = 120  // s: what began earlier is not starting any more
	startRefused   = 3    // calls
	startResets    = 5    // segments with RST, of its network namespace
)

// Memory and storage: storage_state.go.
const (
	slabShare = 0.20 // of the memory, by the kernel's own objects
)

// Memory and storage: filesystem.go.
const (
	fullShare = 0.01 // of a file system left: less is full
)

// Waits: waits.go.
const (
	callIsIt     = 0.7      // of what requests wait for a channel: so much of a call, and the channel is its answer
	waitLost     = 10e6     // ns of a slow request: less nobody notices
	waitSamples  = 5        // looks at a thread that waited so: fewer say nothing,
	waitLongest  = 5e8      // ns: unless one of them saw a wait as long as that
	waitRound    = 1e9      // ns: a circle that lasts no longer is none
	stoppedLeast = 1e9      // ns that requests lost to a process which is stopped: less is the stop of a debugger or of a snapshot, unless it hits several
	waitAnswer   = 1e9      // ns: a remote service that answers sooner does answer
	waitMean     = 1e8      // ns: slow requests that are noise by their number count where they take so long on average,
	waitWeight   = 0.2      // and this much of the time of all
	statementCPU = 1e7      // ns that a database computes for a statement: less is what statements cost
	scanCPU      = 0.15     // of what a database computes, to go from row to row: what it does with each is the rest
	fewRows      = 64 << 10 // bytes of an answer: a long one may need all the rows
	sleepFloor   = 1e8      // ns of a request that it sleeps by its own choice: less may be how it works
)

// Waits: kernel_waits.go.
const (
	hungLeast = 1e9 // ns without a step
)

// Pods: probe.go, endpoints.go, replicas.go.
const (
	recentlyUnready = -900 // s into the window: a pod that became unready earlier is a state, not a fault of now
	longestProbe    = 30   // s that a probe is proposed to allow
	synsAgain       = 4    // s: until a SYN that was retransmitted twice has its answer (TCP_TIMEOUT_INIT is 1 s, and doubles)
	drainSeconds    = 10   // that a preStop hook sleeps: proxies know by then that a pod ends
	startsWithin    = 5    // s in which a pod may start
	flapsLeast      = 2    // changes of direction of an autoscaler
	mostPodsShown   = 4    // pieces of evidence about pods
)
