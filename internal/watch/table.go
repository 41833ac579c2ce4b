package watch

import "github.com/slowray/slowray/internal/observe"

// table is the readers of a window, in the order in which they begin and sample;
// they close in its reverse. Those that have something to stop or to end do so in
// orders of their own.
type table struct {
	readers     []*reader
	stops, ends []string // names
	// first is the one with which there is something to report: who is asked to end
	// before it has begun hears an error.
	first string
}

// readers is the table of all readers.
func (s *session) readers() table {
	var (
		databases   = &databases{}
		kernelLog   = &kernelLog{}
		descriptors = &descriptors{}
		requests    = &requests{databases: databases}
		connects    = &connects{descriptors: descriptors, requests: requests}
		callErrors  = &callErrors{}
		hostState   = &hostState{}
		profile     = &profile{}
		servers     = &servers{}
		limits      = &limits{}
		packets     = &packets{}
		use         = &use{packets: packets}
		namespaces  = &namespaces{connects: connects}
		drops       = &drops{}
		nameServers = &nameServers{requests: requests}
		waits       = &waits{requests: requests}
		earlier     = &earlier{requests: requests, waits: waits}
		threads     = newThreads()
		closely     = &closely{requests: requests, threads: threads, use: use}
		processes   = &processes{threads: threads, descriptors: descriptors}
		containers  = &containers{kernelLog: kernelLog}
		kubernetes  = &kubernetes{}
		changes     = &changes{servers: servers, databases: databases}

		span = max(cpuEvery, s.opt.For/cpuSpans)
	)
	waits.earlier = earlier
	return table{
		readers: []*reader{
			// Before anything is recorded: asking is no request of anybody's.
			{name: "databases", begin: databases.begin, every: databasesEvery, sample: databases.sample, end: databases.end},
			{name: "kernel log", kind: observe.KindKernelLog, partial: true, begin: kernelLog.begin, end: kernelLog.end, close: kernelLog.close},
			{name: "nameservers", kind: observe.KindDNS, begin: nameServers.begin, stop: nameServers.stop, close: nameServers.close},
			{name: "failing calls", kind: observe.KindErrors, begin: callErrors.begin, sample: callErrors.sample, stop: callErrors.stop, close: callErrors.close},
			{name: "host state", begin: hostState.begin, every: processesEvery, sample: hostState.sample, end: hostState.end},
			{name: "CPU samples", kind: observe.KindProfile, begin: profile.begin, stop: profile.stop, close: profile.close},
			{name: "application servers", begin: servers.begin, every: tick, sample: servers.sampleWorkers, end: servers.end},
			{name: "connections of nginx", every: processesEvery, sample: servers.sampleConnections},
			{name: "control groups", begin: limits.begin, every: limitsEvery, sample: limits.sample, end: limits.end},
			{name: "use", begin: use.begin, stop: use.stop},
			{name: "packets", stop: packets.stop, close: packets.close},
			{name: "listeners", begin: namespaces.begin, every: listenersEvery, sample: namespaces.sampleListeners, stop: namespaces.stop, end: namespaces.end},
			{name: "dropped packets", kind: observe.KindDrops, begin: drops.begin, stop: drops.stop, close: drops.close},
			{name: "requests", kind: observe.KindRequests, begin: requests.begin, stop: requests.stop, close: requests.close},
			// Behind them, whose programs have a place for those of this one.
			{name: "connections", kind: observe.KindConnects, begin: connects.begin, sample: connects.sample, stop: connects.stop, close: connects.close},
			{name: "waits", needs: []string{"requests"}, kind: observe.KindWaits, begin: waits.begin, stop: waits.stop, end: waits.end, close: waits.stop},
			{name: "requests that came before", needs: []string{"waits"}, end: earlier.end},
			{name: "thread states", every: threadsEvery, sample: threads.sampleStates},
			{name: "descriptors", begin: descriptors.begin, every: processesEvery, sample: descriptors.sample},
			{name: "CPU course", begin: use.beginCourse, every: span, sample: use.sample, stop: use.sample},
			{name: "interpreters", needs: []string{"requests", "CPU samples"}, every: closelyEvery, sample: closely.sample, stop: closely.stop, end: closely.end, close: closely.close},
			{name: "thread course", begin: threads.beginCourses, every: span, sample: threads.sampleCourses, stop: threads.sampleCourses},
			{name: "sockets", sample: namespaces.sampleSockets, stop: namespaces.lastSockets},
			{name: "processes", begin: processes.begin, stop: processes.stop, end: processes.end},
			{name: "container engines", stop: containers.stop, end: containers.end},
			{name: "Kubernetes", stop: kubernetes.stop, end: kubernetes.end},
			{name: "storage", end: (*session).endStorage},
			{name: "file systems", end: (*session).endFilesystems},
			{name: "changes", end: changes.end},
		},
		// First what is recorded: what happens from here on is slowray's own doing.
		stops: []string{
			"sockets", "CPU course", "thread course", "waits", "requests", "connections", "nameservers", "failing calls",
			"CPU samples", "interpreters", "dropped packets", "use", "packets", "processes", "container engines", "Kubernetes", "listeners",
		},
		ends: []string{
			"kernel log", "listeners", "requests that came before", "waits", "interpreters", "processes", "control groups", "databases", "application servers",
			"container engines", "Kubernetes", "storage", "file systems", "host state", "changes",
		},
		first: "requests",
	}
}

// only leaves the readers with these names, of which first is the one that must
// have begun.
func (t table) only(first string, names ...string) table {
	out := table{stops: t.stops, ends: t.ends, first: first}
	for _, name := range append(names, first) {
		out.readers = append(out.readers, t.reader(name))
	}
	return out
}

// reader is the one with a name; nil when it is not in the table.
func (t table) reader(name string) *reader {
	for _, r := range t.readers {
		if r.name == name {
			return r
		}
	}
	return nil
}
