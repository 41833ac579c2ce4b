package cause

import "github.com/slowray/slowray/internal/observe"

const (
	deafServer, goodServer = "10.96.0.9", "10.96.0.10"
	sec                    = 1000 * ms
)

// lookups are those of a php-fpm child.
func lookups(d observe.DNS) func(*observe.Observation) {
	return func(o *observe.Observation) {
		d.PID, d.Comm, d.NetNS = fpmChild1, "php-fpm8.2", serverNS
		if d.Resolver == nil {
			d.Resolver = &observe.Resolver{File: "/etc/resolv.conf", NameServers: []string{deafServer, goodServer}, NDots: 1, TimeoutSeconds: 5, Attempts: 2}
		}
		o.DNS = append(o.DNS, d)
	}
}

// inTurn injects one thing after the other.
func inTurn(injects ...func(*observe.Observation)) func(*observe.Observation) {
	return func(o *observe.Observation) {
		for _, p := range injects {
			p(o)
		}
	}
}

// deafFirst is lookups that ask a server in vain, each for a second, before
// they ask the next one.
func deafFirst(n uint64) observe.DNS {
	return observe.DNS{Lookups: n, LookupNS: int64(n) * 1002 * ms, LookupMaxNS: 1010 * ms, Servers: []observe.DNSServer{
		{Addr: deafServer, Queries: 2 * n, Unanswered: 2 * n, LostNS: int64(n) * sec},
		{Addr: goodServer, Queries: 2 * n, Answered: 2 * n, AnswerNS: int64(2*n) * ms, AnswerMaxNS: 3 * ms},
	}}
}

func clusterSearch() *observe.Resolver {
	return &observe.Resolver{File: "/etc/resolv.conf", NameServers: []string{goodServer}, NDots: 5, TimeoutSeconds: 5, Attempts: 2,
		Search: []string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local"}}
}

var firingOnNames = []fires{
	{
		name: "the first nameserver is dead", cause: &dnsTimeout,
		inject:  inTurn(quiet(fpmServed().add(60, ms/10, ms/20, 0, parts{observe.Server: 1010 * ms})), lookups(deafFirst(60))),
		subject: Subject{Kind: "destination", PID: fpmMaster, Addr: deafServer, Port: 53, Path: "/proc/201/root/etc/resolv.conf"}, minShare: 0.95,
		fix: "Bring 10.96.0.9 back, or take it out of /proc/201/root/etc/resolv.conf", evidence: "another nameserver answers: 10.96.0.10=1 ms",
	},
	{
		name: "one lookup in twenty", cause: &dnsTimeout,
		inject: inTurn(quiet(fpmServed().add(950, ms/10, ms/20, 0, quick).add(50, ms/10, ms/20, 0, parts{observe.Server: 1010 * ms})),
			lookups(deafFirst(50))),
		subject: Subject{Addr: deafServer}, minShare: 0.9, fix: "timeout:1", evidence: "without an answer=100",
	},
	{
		name: "names that are never found out, and requests fail", cause: &dnsTimeout,
		inject: inTurn(quiet(failing(fpmServed(), 100, 30)), lookups(observe.DNS{Open: 30, OpenNS: 60 * sec, Servers: []observe.DNSServer{
			{Addr: deafServer, Queries: 30, Unanswered: 30, LostNS: 60 * sec}}})),
		subject: Subject{Addr: deafServer}, minShare: 0.29, fix: "Bring 10.96.0.9 back",
	},
	{
		name: "80 ms for each name", cause: &dnsSlow,
		inject: inTurn(quiet(fpmServed().add(100, ms/10, ms/20, 0, parts{observe.Server: 90 * ms})),
			lookups(observe.DNS{Lookups: 100, LookupNS: 8 * sec, LookupMaxNS: 85 * ms, Servers: []observe.DNSServer{
				{Addr: goodServer, Queries: 100, Answered: 100, AnswerNS: 8 * sec, AnswerMaxNS: 85 * ms}}})),
		subject: Subject{Kind: "destination", Addr: goodServer, Port: 53, PID: fpmMaster}, minShare: 0.85, fix: "a cache on this host", evidence: "mean=80",
	},
	{
		name: "four lookups for a name", cause: &dnsSearchExpansion,
		inject: inTurn(quiet(fpmServed().add(100, ms/10, ms/20, 0, parts{observe.Server: 50 * ms})),
			lookups(observe.DNS{Lookups: 400, LookupNS: 4 * sec, NotFound: 300, Sampled: 4, Searched: 4, Resolver: clusterSearch(), Servers: []observe.DNSServer{
				{Addr: goodServer, Queries: 800, Answered: 800, AnswerNS: 8 * sec, NotFound: 600}}})),
		subject: Subject{Kind: "process", PID: fpmMaster}, minShare: 0.55, fix: "ndots:1", evidence: "names that are not there (NXDOMAIN)=300",
	},
	{
		name: "a server that answers names reads too slowly", cause: &udpReceiveBufferOverflow,
		inject: func(o *observe.Observation) {
			ns(o).Counters["Udp.RcvbufErrors"], ns(o).Counters["Udp.InDatagrams"] = 500, 4500
			ns(o).UDP = []observe.UDPSocket{{Addr: "0.0.0.0", Port: 53, Inode: 9, PID: hog, QueueBytes: 200_000, Drops: 500}}
		},
		subject: Subject{Kind: "process", PID: hog, Port: 53}, minShare: 0.1, fix: "a larger SO_RCVBUF", evidence: "dropped at this socket=500",
	},
	{
		name: "the nameserver of the service that was asked for", cause: &udpReceiveBufferOverflow,
		inject: inTurn(quiet(fpmServed().add(60, ms/10, ms/20, 0, parts{observe.Server: 1010 * ms})), lookups(deafFirst(60)), func(o *observe.Observation) {
			o.Filter.Port = fpmPort
			o.Namespaces = append(o.Namespaces, observe.NetNS{Inode: 7, PID: hog, Addrs: []string{deafServer},
				Counters: map[string]uint64{"Udp.RcvbufErrors": 60, "Udp.InDatagrams": 100},
				UDP:      []observe.UDPSocket{{Addr: deafServer, Port: 53, Inode: 9, PID: hog, Drops: 60}}})
		}),
		subject: Subject{Kind: "process", PID: hog, NetNS: 7, Port: 53}, minShare: 0.37, fix: "SO_RCVBUF",
	},
}

var nearMissesOnNames = []miss{
	{"a nameserver that nobody waits for", &dnsTimeout, inTurn(quiet(fpmServed().add(1000, ms/10, ms/20, 0, quick)), lookups(deafFirst(2))), "4 of 4 queries"},
	{"lookups of a program that serves nobody", &dnsTimeout, inTurn(quiet(fpmServed().add(60, ms/10, ms/20, 0, parts{observe.Server: 1010 * ms})), func(o *observe.Observation) {
		d := deafFirst(60)
		d.PID = hog
		o.DNS = []observe.DNS{d}
	}), "no service looked up a name"},
	{"a few lost queries among many", &dnsTimeout, inTurn(quiet(fpmServed().add(1000, ms/10, ms/20, 0, quick)),
		lookups(observe.DNS{Lookups: 5000, LookupNS: 20 * sec, Servers: []observe.DNSServer{{Addr: goodServer, Queries: 5000, Answered: 4996, Unanswered: 4, LostNS: 4 * sec, AnswerNS: 5 * sec}}})),
		"4 of 5,000 queries"},
	{"slow answers in the background", &dnsSlow, inTurn(quiet(fpmServed().add(5000, ms/10, ms/20, 0, quick)),
		lookups(observe.DNS{Lookups: 10, LookupNS: 800 * ms, Servers: []observe.DNSServer{{Addr: goodServer, Queries: 10, Answered: 10, AnswerNS: 800 * ms}}})),
		"takes 80 ms to answer"},
	{"many quick lookups", &dnsSlow, inTurn(quiet(fpmServed().add(1000, ms/10, ms/20, 0, parts{observe.Server: 9 * ms})),
		lookups(observe.DNS{Lookups: 1000, LookupNS: sec, Servers: []observe.DNSServer{{Addr: goodServer, Queries: 1000, Answered: 1000, AnswerNS: sec}}})),
		"takes 1 ms to answer"},
	{"a mail filter asks lists of senders, which do not have them", &dnsSearchExpansion, inTurn(quiet(fpmServed().add(100, ms/10, ms/20, 0, parts{observe.Server: 50 * ms})),
		lookups(observe.DNS{Lookups: 400, LookupNS: 4 * sec, NotFound: 300, Sampled: 4, Searched: 0, Resolver: clusterSearch(), Servers: []observe.DNSServer{
			{Addr: goodServer, Queries: 400, Answered: 400, AnswerNS: 4 * sec, NotFound: 300}}})),
		"0 of 4 of them under a search domain"},
	{"search domains with a quick server", &dnsSearchExpansion, inTurn(quiet(fpmServed().add(100, ms/10, ms/20, 0, parts{observe.Server: 50 * ms})),
		lookups(observe.DNS{Lookups: 400, LookupNS: 80 * ms, NotFound: 300, Sampled: 4, Searched: 4, Resolver: clusterSearch(), Servers: []observe.DNSServer{
			{Addr: goodServer, Queries: 800, Answered: 800, AnswerNS: 160 * ms, NotFound: 600}}})),
		"300 of 400 names"},
	{"a few datagrams of many", &udpReceiveBufferOverflow, func(o *observe.Observation) {
		ns(o).Counters["Udp.RcvbufErrors"], ns(o).Counters["Udp.InDatagrams"] = 20, 45_000
		ns(o).UDP = []observe.UDPSocket{{Addr: "0.0.0.0", Port: 8125, Inode: 9, PID: hog, Drops: 20}}
	}, "20 datagrams"},
	{"a few datagrams of many over IPv6", &udpReceiveBufferOverflow, func(o *observe.Observation) {
		ns(o).Counters["Ip6.Udp6RcvbufErrors"], ns(o).Counters["Ip6.Udp6InDatagrams"] = 12, 2_000_000
		ns(o).UDP = []observe.UDPSocket{{Addr: "::", Port: 443, Inode: 9, PID: hog, Drops: 12}}
	}, "12 datagrams"},
	{"wrong checksums", &udpReceiveBufferOverflow, func(o *observe.Observation) {
		ns(o).Counters["Udp.InCsumErrors"], ns(o).Counters["Udp.InDatagrams"] = 500, 4500
		ns(o).UDP = []observe.UDPSocket{{Addr: "0.0.0.0", Port: 8125, Inode: 9, PID: hog, Drops: 500}}
	}, "500 datagrams"},
}
