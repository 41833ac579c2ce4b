package cause

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// names is the lookups of a service: of all processes of a master.
type names struct {
	pid      int
	netns    uint64
	lookups  uint64
	ns       float64 // that they took, with those that had no answer at the end
	notFound uint64
	open     uint64
	sampled  int
	searched int
	servers  []*observe.DNSServer // summed up, most queries first
	byAddr   map[string]*observe.DNSServer
	resolver *observe.Resolver
	where    int // a process whose resolver that is
}

// lookedUp sums up the lookups of the services in view.
func (v *View) sumLookups() []*names {
	var out []*names
	byMaster := map[int]*names{}
	for i := range v.DNS {
		d := &v.DNS[i]
		master := v.Master(d.PID)
		if !v.answers(master) {
			continue
		}
		n := byMaster[master]
		if n == nil {
			n = &names{pid: master, netns: d.NetNS, byAddr: map[string]*observe.DNSServer{}}
			byMaster[master] = n
			out = append(out, n)
		}
		n.lookups += d.Lookups
		n.ns += float64(max(d.LookupNS, 0)) + float64(max(d.OpenNS, 0))
		n.notFound += d.NotFound
		n.open += d.Open
		n.sampled += d.Sampled
		n.searched += d.Searched
		if n.resolver == nil && d.Resolver != nil {
			n.resolver, n.where = d.Resolver, d.PID
		}
		for j := range d.Servers {
			n.add(&d.Servers[j])
		}
	}
	for _, n := range out {
		slices.SortStableFunc(n.servers, func(a, b *observe.DNSServer) int { return cmp.Compare(b.Queries, a.Queries) })
	}
	return out
}

func (n *names) add(s *observe.DNSServer) {
	sum := n.byAddr[s.Addr]
	if sum == nil {
		sum = &observe.DNSServer{Addr: s.Addr}
		n.byAddr[s.Addr] = sum
		n.servers = append(n.servers, sum)
	}
	sum.Queries += s.Queries
	sum.Answered += s.Answered
	sum.Unanswered += s.Unanswered
	sum.Halves += s.Halves
	sum.LostNS += s.LostNS
	sum.AnswerNS += s.AnswerNS
	sum.AnswerMaxNS = max(sum.AnswerMaxNS, s.AnswerMaxNS)
	sum.Slow += s.Slow
	sum.NotFound += s.NotFound
	sum.Failed += s.Failed
}

// config names the file that the service's resolver reads, and what it says.
func (n *names) config() (file, text string) {
	if n.resolver == nil {
		return "/etc/resolv.conf", ""
	}
	r := n.resolver
	text = "nameserver " + strings.Join(r.NameServers, ", ")
	if len(r.Search) > 0 {
		text += "; search " + strings.Join(r.Search, " ")
	}
	text += fmt.Sprintf("; ndots:%d timeout:%d attempts:%d", r.NDots, r.TimeoutSeconds, r.Attempts)
	if r.Rotate {
		text += " rotate"
	}
	return fmt.Sprintf("/proc/%d/root%s", n.where, r.File), text
}

// namePort is where nameservers listen.
const namePort = 53

// nameCost is what lookups take of the requests of a service, when they take ns
// in all, in n of them; ok says that requests are slow, or fail, because of it.
// Requests that fail count as far as there are lookups to explain them.
func (v *View) nameCost(pid int, ns float64, n uint64) (h harm, ok bool) {
	busy, requests := v.answered(pid)
	h, ok = v.harmed(pid, n)
	each := ns / float64(max(n, 1))
	share := ratio(ns, busy)
	h.text = fmt.Sprintf("%s of the time in which %s answers %s requests", percent(share), v.Comm(pid), count(requests))
	if !h.slow && ok {
		h.text = fmt.Sprintf("%s of the requests of %s failed", percent(h.share), v.Comm(pid))
		return h, true
	}
	for _, l := range v.servedOf[pid] {
		// A lookup that lasts longer than any request is made for none.
		if each > longestCall*float64(l.Total.Max()) {
			continue
		}
		k := l.cost(share, observe.Server, observe.Stall)
		// Few lookups among many may make all of the slow requests.
		if l.SlowCount > 0 && float64(n) >= harmEach*float64(l.SlowCount) {
			k.slowNS = max(k.slowNS, min(each, l.SlowNS(observe.Server)+l.SlowNS(observe.Stall)))
			k.slowShare = ratio(k.slowNS, l.SlowTotalNS())
			k.usual = 0
		}
		if share >= nameTime && l.Requests >= fewRequests && k.ns >= wireFloor.mean && float64(n) >= harmEach*float64(l.Requests) {
			return harm{share, true, h.text}, true
		}
		if l.atTimes(k, attemptFloor) {
			return harm{k.slowShare, true, fmt.Sprintf("%s; %s take %s", h.text, l.slowest(), nanoseconds(l.SlowTotalNS()))}, true
		}
	}
	return h, false
}

// DNSTimeout: a nameserver does not answer. The resolver waits for its time
// limit, 5 s unless resolv.conf says otherwise, before it asks the next server,
// for each name anew: a dead first server costs each lookup that time.
const DNSTimeout ID = "dns-timeout"

var dnsTimeout = Cause{
	ID:            DNSTimeout,
	Title:         "The resolver times out on a dead nameserver",
	Layer:         LayerCall,
	Needs:         []observe.Kind{observe.KindDNS, observe.KindRequests},
	ConsequenceOf: []Parent{UDPReceiveBufferOverflow, ConntrackFull, ProcessStopped, SoftirqSaturated},
	Folds:         true,
	Check:         checkDNSTimeout,
}

func checkDNSTimeout(v *View) Result {
	r := ruledOut(v.noLookups())
	best := -1.0
	for _, n := range v.lookedUp() {
		for _, s := range n.servers {
			h, ok := v.nameCost(n.pid, float64(s.LostNS), s.Unanswered)
			text := fmt.Sprintf("%s of %s queries of %s to the nameserver %s went without an answer, for %s in all", count(s.Unanswered), count(s.Queries),
				v.Comm(n.pid), s.Addr, nanoseconds(float64(s.LostNS)))
			if !ok || s.Unanswered < fewAffected || ratio(s.Unanswered, s.Queries) < noiseShare {
				if near := float64(s.LostNS); near > best {
					r.RuledOut, best = text+": "+h.text, near
				}
				continue
			}
			r.Findings = append(r.Findings, v.dnsTimeoutFinding(n, s, h, text))
		}
	}
	return r
}

func (v *View) noLookups() string {
	if len(v.DNS) == 0 {
		return "no name was looked up over UDP"
	}
	return "no service looked up a name over UDP"
}

// nameFinding begins a finding about a nameserver.
func (v *View) nameFinding(n *names, s *observe.DNSServer, h harm, text string) Finding {
	f := supported(Subject{Kind: "destination", NetNS: n.netns, PID: n.pid, Comm: v.Comm(n.pid), Addr: s.Addr, Port: namePort})
	f.Weight = h.share
	f.Impact = h.impact(text + ": ")
	_, requests := v.answered(n.pid)
	f.Evidence = []Evidence{
		{Fact: "lookups", Value: n.lookups + n.open, Unit: "lookups for " + count(requests) + " requests", Source: "packets of port 53"},
		{Fact: "time of a lookup, mean", Value: nanoseconds(n.ns / float64(max(n.lookups+n.open, 1))), Source: "packets of port 53"},
	}
	if _, config := n.config(); config != "" {
		file, _ := n.config()
		f.Subject.Path = file
		f.Evidence = append(f.Evidence, Evidence{Fact: "resolver", Value: config, Source: file})
	}
	f.Evidence = append(f.Evidence, v.clusterDNS(s.Addr).evidence()...)
	f.MayFollow = v.follows(destination{n.netns, s.Addr, namePort})
	return f
}

func (v *View) dnsTimeoutFinding(n *names, s *observe.DNSServer, h harm, text string) Finding {
	f := v.nameFinding(n, s, h, text)
	f.Title = fmt.Sprintf("Nameserver %s does not answer %s", s.Addr, v.Comm(n.pid))
	if s.Answered > s.Unanswered {
		f.Title = fmt.Sprintf("Nameserver %s drops queries of %s", s.Addr, v.Comm(n.pid))
	}
	f.Evidence = append(f.Evidence,
		Evidence{Fact: "queries to " + s.Addr + " without an answer", Value: s.Unanswered, Limit: s.Queries, Unit: "queries", Source: "packets of port 53"},
		Evidence{Fact: "waited for it in vain", Value: round(float64(s.LostNS) / 1e9), Unit: "s", Source: "packets of port 53"})
	for _, other := range n.servers {
		if other != s && other.Answered > 0 {
			f.Evidence = append(f.Evidence, Evidence{Fact: "another nameserver answers: " + other.Addr, Value: nanoseconds(float64(other.AnswerNS) / float64(other.Answered)), Source: "packets of port 53, mean"})
			break
		}
	}
	file, _ := n.config()
	f.Fix.Text = fmt.Sprintf("Bring %s back, or take it out of %s. Until then 'options timeout:1 attempts:2 rotate' there makes each try shorter; a local cache (systemd-resolved, dnsmasq, unbound) remembers which server answers.", s.Addr, file)
	f.Fix.Commands = []shell.Command{v.in(v.place(n.netns), shell.Line("dig +time=1 +tries=1 @%s . NS", s.Addr)), shell.Line("grep -n nameserver %s", shell.Path(file))}
	f.Fix.Persist = []shell.Command{shell.Line("# in %s (or what writes it): another nameserver first, and options timeout:1 attempts:2", file)}
	if s := v.clusterDNS(s.Addr).service; s != nil {
		f.Fix.Text = fmt.Sprintf("Bring the pods behind service %s/%s back.", s.Namespace, s.Name)
		f.Fix.Commands, f.Fix.Persist = lookAtService(s), nil
	}
	if ns := v.clashedAt(n, s); ns != nil {
		v.clashWords(&f, n, s, ns)
	}
	return f
}

// DNSSlow: nameservers answer, but late, and requests wait for them.
const DNSSlow ID = "dns-slow"

var dnsSlow = Cause{
	ID:            DNSSlow,
	Title:         "Nameservers answer slowly",
	Layer:         LayerCall,
	Needs:         []observe.Kind{observe.KindDNS, observe.KindRequests},
	ConsequenceOf: []Parent{DNSTimeout, DNSSearchExpansion, UDPReceiveBufferOverflow, ClassShort},
	Folds:         true,
	Check:         checkDNSSlow,
}

func checkDNSSlow(v *View) Result {
	r := ruledOut(v.noLookups())
	best := -1.0
	for _, n := range v.lookedUp() {
		for _, s := range n.servers {
			if s.Answered == 0 {
				continue
			}
			each := float64(s.AnswerNS) / float64(s.Answered)
			// Of the time of lookups what was not lost on servers that do not answer.
			took := n.ns
			for _, other := range n.servers {
				took -= float64(other.LostNS)
			}
			took = max(took, 0) * ratio(s.AnswerNS, answerTime(n))
			h, ok := v.nameCost(n.pid, took, n.lookups)
			text := fmt.Sprintf("the nameserver %s takes %s to answer %s, on average, %s at most", s.Addr, nanoseconds(each), v.Comm(n.pid), nanoseconds(float64(s.AnswerMaxNS)))
			if !ok || each < nameSlow && s.Slow < fewAffected || n.lookups < fewRequests {
				if took > best {
					r.RuledOut, best = text+": "+h.text, took
				}
				continue
			}
			f := v.nameFinding(n, s, h, text)
			f.Title = fmt.Sprintf("Nameserver %s answers %s slowly", s.Addr, v.Comm(n.pid))
			f.Evidence = append(f.Evidence,
				Evidence{Fact: "time of an answer of " + s.Addr + ", mean", Value: round(each / 1e6), Unit: "ms", Source: "packets of port 53"},
				Evidence{Fact: "answers that took over 100 ms", Value: s.Slow, Limit: s.Answered, Unit: "answers", Source: "packets of port 53"})
			f.Fix.Text = fmt.Sprintf("Let a cache on this host answer (systemd-resolved, dnsmasq, unbound, nscd), or let %s keep its connections open, so that it looks up fewer names; then find what makes %s slow.", f.Subject.Comm, s.Addr)
			f.Fix.Commands = []shell.Command{v.in(v.place(n.netns), shell.Line("dig @%s . NS", s.Addr))}
			v.slowInCluster(&f, n, s)
			r.Findings = append(r.Findings, f)
		}
	}
	return r
}

func answerTime(n *names) (ns int64) {
	for _, s := range n.servers {
		ns += s.AnswerNS
	}
	return ns
}

// DNSSearchExpansion: a name with fewer dots than ndots is first tried under
// each search domain (resolv.conf(5)). In Kubernetes ndots is 5, so that an
// ordinary name of the internet takes four lookups, of which three fail.
const DNSSearchExpansion ID = "dns-search-expansion"

var dnsSearchExpansion = Cause{
	ID:    DNSSearchExpansion,
	Title: "Lookups try every search domain first (ndots)",
	Layer: LayerCall,
	Needs: []observe.Kind{observe.KindDNS, observe.KindRequests},
	Check: checkDNSSearch,
}

func checkDNSSearch(v *View) Result {
	r := ruledOut(v.noLookups())
	best := -1.0
	for _, n := range v.lookedUp() {
		share := ratio(n.notFound, n.lookups)
		took := n.ns * share
		text := fmt.Sprintf("%s of %s names that %s looked up are not there", count(n.notFound), count(n.lookups), v.Comm(n.pid))
		h, ok := v.nameCost(n.pid, took, n.notFound)
		searched := n.sampled > 0 && 2*n.searched > n.sampled && n.resolver != nil && len(n.resolver.Search) > 0
		if !searched && n.sampled > 0 {
			text += fmt.Sprintf(", %d of %d of them under a search domain", n.searched, n.sampled)
		}
		if !ok || !searched || share < notFound || n.notFound < fewRequests || len(n.servers) == 0 {
			if share > best {
				r.RuledOut, best = text+": "+h.text, share
			}
			continue
		}
		f := v.nameFinding(n, n.servers[0], h, text)
		f.Subject.Kind, f.Subject.Addr, f.Subject.Port = "process", "", 0
		f.Evidence = append(f.Evidence,
			Evidence{Fact: "lookups of names that are not there (NXDOMAIN)", Value: n.notFound, Limit: n.lookups, Unit: "lookups", Source: "packets of port 53"},
			Evidence{Fact: "of them under a search domain", Value: n.searched, Limit: n.sampled, Unit: "of those looked at", Source: "packets of port 53"})
		file, _ := n.config()
		f.Fix.Text = fmt.Sprintf("In %s: write names with a dot at the end ('api.example.com.'), or set 'options ndots:1' in %s (in Kubernetes dnsConfig of the pod), and leave out search domains that nobody needs.", f.Subject.Comm, file)
		f.Fix.Commands = []shell.Command{shell.Line("grep -nE 'search|ndots' %s", shell.Path(file))}
		f.Fix.Persist = []shell.Command{shell.Line("# in %s (or what writes it): options ndots:1", file)}
		if at := v.podOfProcess(n.where); at.pod != nil {
			f.Fix.Text = fmt.Sprintf("In %s: write names with a dot at the end ('api.example.com.'), or set ndots to 1 in %s.dnsConfig.options.", f.Subject.Comm, at.spec())
			f.Fix.Persist = []shell.Command{at.patchDNS(ndots, "1")}
		}
		if c := v.clusterDNS(n.servers[0].Addr); c.known() {
			f.Fix.Text += fmt.Sprintf(" Where that cannot be changed, the plugin autopath of CoreDNS goes through the search domains at the server (%s).", c.text())
			f.Fix.Commands = append(f.Fix.Commands, c.corefile())
		}
		r.Findings = append(r.Findings, f)
	}
	return r
}
