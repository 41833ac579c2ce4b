package cause

import (
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// tracksQueries has a network namespace, without processes of its own, track the queries to the
// server that answers only some, and drop as many as connection tracking could not insert.
func tracksQueries(failed, halves uint64, at int) func(*observe.Observation) {
	return func(o *observe.Observation) {
		for i := range o.DNS {
			o.DNS[i].Servers[0].Halves = halves
		}
		o.Namespaces = append(o.Namespaces, observe.NetNS{Inode: routerNS, PID: at, Name: "edge", Path: "/run/netns/edge", Counters: map[string]uint64{},
			Conntrack: &observe.Conntrack{Entries: 40, PeakEntries: 40, Max: 262144, Drop: failed, InsertFailed: failed, ClashResolved: 7}})
		o.Drops = &observe.Drops{Reasons: true, List: []observe.Drop{{Reason: "NETFILTER_DROP", Location: "nf_hook_slow", NetNS: routerNS, Interface: "eth0", Kind: "udp", Packets: failed, Segments: failed,
			Flows: []observe.DropFlow{{Src: "10.9.8.1", Dst: deafServer, DstPort: 53, Segments: failed}}}}}
	}
}

// halfLost is lookups of which one in twenty loses a query, and asks again after 5 s.
var halfLost = inTurn(quiet(fpmServed().add(950, ms/10, ms/20, 0, quick).add(50, ms/10, ms/20, 0, parts{observe.Server: 5010 * ms})),
	lookups(observe.DNS{Lookups: 1000, LookupNS: 251 * sec, LookupMaxNS: 5010 * ms, Servers: []observe.DNSServer{
		{Addr: deafServer, Queries: 2100, Answered: 2050, Unanswered: 50, LostNS: 250 * sec, AnswerNS: 2 * sec, AnswerMaxNS: 3 * ms}}}))

// inCoreDNS has a replica of coredns run on this node.
func inCoreDNS(o *observe.Observation) {
	inPodOf(o)
	o.Kubernetes.Pods = append(o.Kubernetes.Pods, observe.Pod{UID: "78", Namespace: "kube-system", Name: "coredns-1", Kind: "Deployment", Owner: "coredns", IPs: []string{"10.244.0.2"},
		Phase: "Running", Ready: true, Containers: []observe.PodContainer{{Name: "coredns", ID: "cc11bb22aa33", Ready: true, State: "running"}}})
}

var _ = fixturePair(
	fires{
		name: "one of two queries at once is lost in conntrack", cause: &dnsTimeout,
		inject:  inTurn(halfLost, tracksQueries(50, 48, 0)),
		subject: Subject{Addr: deafServer, PID: fpmMaster}, minShare: 0.8, fix: "options single-request-reopen",
		evidence: "entry clashed in network namespace edge=50;",
	},
	miss{"entries that clashed, and no query without an answer", &dnsTimeout, inTurn(quiet(fpmServed().add(1000, ms/10, ms/20, 0, quick)),
		lookups(observe.DNS{Lookups: 1000, LookupNS: 2 * sec, Servers: []observe.DNSServer{{Addr: deafServer, Queries: 2000, Answered: 2000, AnswerNS: 2 * sec}}}), tracksQueries(500, 0, 0)),
		"0 of 2,000 queries"},
)

var _ = fixturePair(
	fires{
		name: "queries of a pod are lost in conntrack by halves", cause: &dnsTimeout,
		inject: inTurn(halfLost, inPodOf, tracksQueries(50, 48, 0), func(o *observe.Observation) {
			o.Kubernetes.Pods[0].DNSOptions = []observe.DNSOption{{Name: "ndots", Value: "2"}, {Name: "use-vc"}}
		}),
		fix: `kubectl -n shop patch deployment/cart --patch '{"spec":{"template":{"spec":{"dnsConfig":{"options":[{"name":"single-request-reopen"},{"name":"ndots","value":"2"},{"name":"use-vc"}]}}}}}'`,
	},
)

var _ = fixturePair(
	fires{
		name: "queries are translated to ports that are taken", cause: &dnsTimeout,
		inject:  inTurn(halfLost, tracksQueries(50, 0, 0)),
		subject: Subject{Addr: deafServer}, minShare: 0.8, fix: "ip netns exec edge iptables-legacy-save -t nat",
	},
)

// Entries that clashed elsewhere, or were few, are not why a nameserver does not answer.
var _ = fixturePair(
	fires{name: "entries clash in another pod's namespace", cause: &dnsTimeout, inject: inTurn(halfLost, tracksQueries(50, 48, hog)), fix: "Bring 10.96.0.9 back"},
)

var _ = fixturePair(
	fires{name: "a few entries clash", cause: &dnsTimeout, inject: inTurn(halfLost, tracksQueries(10, 48, 0)), fix: "Bring 10.96.0.9 back"},
)

var _ = fixturePair(
	fires{name: "entries of others' packets clash", cause: &dnsTimeout, fix: "Bring 10.96.0.9 back", inject: inTurn(halfLost, tracksQueries(50, 48, 0), func(o *observe.Observation) {
		o.Drops.List[0].Flows[0].DstPort = 123
	})},
)

var _ = fixturePair(
	fires{name: "a firewall rule drops the queries", cause: &dnsTimeout, fix: "Bring 10.96.0.9 back", inject: inTurn(halfLost, tracksQueries(50, 48, 0), func(o *observe.Observation) {
		o.Namespaces[len(o.Namespaces)-1].Firewall = &observe.Firewall{All: 1, Rules: []observe.FirewallRule{{Backend: "nft", Family: "inet", Table: "filter", Chain: "forward", Text: "udp dport 53 drop",
			Verdict: "drop", Counted: true, Packets: 50, Protocol: "udp", DstPorts: [][2]int{{53, 53}}}}}
	})},
)

var _ = fixturePair(
	fires{name: "queries die where no socket takes them", cause: &dnsTimeout, fix: "Bring 10.96.0.9 back", inject: inTurn(halfLost, tracksQueries(50, 48, 0), func(o *observe.Observation) {
		o.Drops.List[0].Reason = "NO_SOCKET"
	})},
)

var _ = fixturePair(
	fires{name: "few of the packets dropped where entries clash are queries", cause: &dnsTimeout, fix: "Bring 10.96.0.9 back", inject: inTurn(halfLost, tracksQueries(50, 48, 0), func(o *observe.Observation) {
		o.Drops.List[0].Flows[0].Segments = 10
	})},
)

var _ = fixturePair(
	fires{name: "entries clash where drops are not watched, and no twin was answered", cause: &dnsTimeout, fix: "Bring 10.96.0.9 back", inject: inTurn(halfLost, tracksQueries(50, 0, 0), func(o *observe.Observation) {
		o.Drops = nil
	})},
)

var _ = fixturePair(
	fires{name: "one of two queries at once is lost where drops are not watched", cause: &dnsTimeout, fix: "options single-request-reopen", inject: inTurn(halfLost, tracksQueries(50, 48, 0), func(o *observe.Observation) {
		o.Drops = nil
	})},
)

var _ = fixturePair(
	fires{
		name: "CoreDNS is slow", cause: &dnsSlow,
		inject:  inTurn(firingNamed(&dnsSlow, "80 ms for each name"), inCoreDNS),
		subject: Subject{Addr: goodServer, Port: 53, PID: fpmMaster}, minShare: 0.85, fix: "kubectl -n kube-system scale deployment/coredns --replicas=2",
		evidence: "who answers there=deploy/coredns (ns kube-system)",
	},
	miss{"CoreDNS is slow, and nobody waits", &dnsSlow, inTurn(quiet(fpmServed().add(5000, ms/10, ms/20, 0, quick)),
		lookups(observe.DNS{Lookups: 10, LookupNS: 800 * ms, Servers: []observe.DNSServer{{Addr: goodServer, Queries: 10, Answered: 10, AnswerNS: 800 * ms}}}), inCoreDNS), "takes 80 ms to answer"},
)

var _ = fixturePair(
	fires{
		name: "CoreDNS is slow on other nodes, with names that it does not find", cause: &dnsSlow,
		inject: inTurn(firingNamed(&dnsSlow, "80 ms for each name"), inPodOf, func(o *observe.Observation) {
			o.DNS[0].Sampled, o.DNS[0].Searched, o.DNS[0].Resolver = 4, 2, clusterSearch()
		}),
		fix: `kubectl -n shop patch deployment/cart --patch '{"spec":{"template":{"spec":{"dnsConfig":{"options":[{"name":"ndots","value":"1"}]}}}}}'`, evidence: "who answers there=svc/kube-dns (ns kube-system)",
	},
)

// TestCorefile: a ConfigMap is named as a Deployment or a DaemonSet is, and as nothing else.
func TestCorefile(t *testing.T) {
	service := &observe.KubeService{Namespace: "kube-system", Name: "kube-dns"}
	for _, c := range []struct {
		kind    string
		service *observe.KubeService
		want    string
	}{
		{"Deployment", service, "get configmap coredns "},
		{"DaemonSet", nil, "get configmap coredns "},
		{"StatefulSet", service, "get service kube-dns "},
		{"Node", nil, "describe pod coredns-1 "},
	} {
		p := observe.Pod{Namespace: "kube-system", Name: "coredns-1", Kind: c.kind, Owner: "coredns"}
		if got := (clusterDNS{service: c.service, at: inPod{pod: &p}}).corefile().String(); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.kind, got, c.want)
		}
	}
}
