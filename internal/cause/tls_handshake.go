package cause

import (
	"fmt"
	"math"
	"net/netip"
	"strings"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// What goes wrong with handshakes of TLS: one fault of an endpoint, told by one of these.
const (
	// TLSHandshakeSlow: a new connection waits for its handshake of TLS longer than the
	// round trips of it take: the serving end computes (a signature with a long RSA key), or
	// waits for somebody before it answers (who may connect, OCSP, a key elsewhere).
	TLSHandshakeSlow ID = "tls-handshake-slow"
	// TLSHandshakeCall: who waits in it calls another service meanwhile.
	TLSHandshakeCall ID = "tls-handshake-call"
	// TLSSessionRefused: clients offer sessions, and the server does not take them.
	TLSSessionRefused ID = "tls-session-refused"
	// TLSNoResumption: the same two ends shake hands in full again and again.
	TLSNoResumption ID = "tls-no-resumption"
)

var (
	tlsHandshakeSlow  = tlsCause(TLSHandshakeSlow, "TLS handshakes are slow")
	tlsHandshakeCall  = tlsCause(TLSHandshakeCall, "Each TLS handshake waits for a call")
	tlsSessionRefused = tlsCause(TLSSessionRefused, "The server refuses to resume TLS sessions", ConnectionChurn)
	tlsNoResumption   = tlsCause(TLSNoResumption, "TLS sessions are not resumed", ConnectionChurn)
)

func tlsCause(id ID, title string, parents ...Parent) Cause {
	return Cause{
		ID: id, Title: title, Layer: LayerApplication,
		Needs:         []observe.Kind{observe.KindRequests},
		ConsequenceOf: append(parents, ClassMachine, ClassWait, ClassLimit, ClassCompute, ClassPool, ClassHost, ClassShort, NetworkLoss, ClassDrop),
		Folds:         true,
		Check:         func(v *View) Result { return v.checkTLS(id) },
	}
}

// handshakes is what those of one endpoint cost.
type handshakes struct {
	each   float64 // ns, mean
	way    float64 // of it two round trips, which a full one of TLS 1.2 needs
	lost   float64 // the rest, of all of them
	share  float64 // that is of the time of handshakes and requests
	saved  float64 // round trips that sessions of TLS 1.2 would save, of all of them
	repeat float64 // of all, the full ones between two ends that had one before
}

func (l *ledger) handshakes() handshakes {
	if l.TLS == 0 {
		return handshakes{}
	}
	rtt := float64(l.RTT.Quantile(0.5))
	h := handshakes{each: float64(max(l.TLSHandshake, 0)) / float64(l.TLS), way: 2 * rtt, repeat: ratio(l.TLSStats.Again, l.TLS)}
	n := float64(l.TLS)
	if l.SampleError > 0 { // of many handshakes the beginning was not followed
		n = max(n, float64(min(l.Connections, l.Requests)))
	}
	h.lost = max(h.each-h.way, 0) * n
	h.share = ratio(h.lost, l.handshakeTime())
	h.saved = rtt * n * ratio(min(l.TLSStats.V12, l.TLSStats.Full), l.TLS)
	return h
}

// handshakeTime is that of handshakes and requests. Most handshakes are parts of one: the
// ClientHello waits in the accept queue, too.
func (l *ledger) handshakeTime() float64 {
	return l.TimeNS() + max(float64(l.TLSHandshake)-l.SumNS(observe.TLS)-l.SumNS(observe.AcceptWait), 0)
}

// slow says that they keep clients waiting, beyond their round trips.
func (h *handshakes) slow(l *ledger) bool {
	return l.TLS >= fewRequests && h.each-h.way >= threadFloor.mean && h.share >= dominantShare
}

// far says that round trips keep clients waiting which resumed sessions do not need.
func (h *handshakes) far(l *ledger) bool {
	return l.TLS >= fewRequests && h.repeat >= churnShare && h.saved >= wireFloor.mean*float64(l.TLS) && h.saved >= handshakeShare*l.handshakeTime()
}

// costs is what handshakes took that they need not have taken, ns.
func (h *handshakes) costs(l *ledger) float64 {
	switch {
	case h.slow(l):
		return h.lost
	case h.far(l):
		return h.saved
	}
	return 0
}

// tlsFault is what is wrong with the handshakes of an endpoint.
type tlsFault struct {
	handshakes
	id     ID      // none where nothing is
	asks   *ledger // whom the waiting end calls in each
	crypto float64 // share of the service's CPU samples in cryptography
	most   string  // the function with most of them
}

func (v *View) tlsFaultOf(l *ledger) tlsFault {
	f := tlsFault{handshakes: l.handshakes()}
	if f.costs(l) == 0 || l.reach < fewReach {
		return f
	}
	if !l.called() {
		f.crypto, f.most = v.encrypting(l)
	}
	f.asks = v.calledWithin(l)
	s := &l.TLSStats
	switch refused := 2*s.Refused >= s.Full && s.Refused >= fewRequests; {
	case f.asks != nil && f.slow(l):
		f.id = TLSHandshakeCall
	case refused && (f.crypto >= dominantShare || !f.slow(l)):
		f.id = TLSSessionRefused
	case f.slow(l):
		f.id = TLSHandshakeSlow
	default:
		f.id = TLSNoResumption
	}
	return f
}

// calledWithin is whom the end that is waited for calls once in each handshake, outside of
// the requests that it serves, for about as long as it is waited for; nil for nobody.
func (v *View) calledWithin(l *ledger) *ledger {
	waited := float64(l.TLSStats.ServerNS)
	if l.called() {
		waited = float64(l.TLSStats.ClientNS)
	}
	within := 0.0 // requests
	for _, o := range v.ledgers {
		if o.called() || o.pid != l.pid || l.pid == 0 {
			continue
		}
		if o.Split == nil || o.Split.Requests < fewRequests {
			return nil // what it calls in its requests is not known
		}
		within += o.serverCost(observe.ServerCall).ns * float64(o.Requests)
	}
	for _, c := range v.calledOf[l.pid] {
		n := ratio(c.Requests, l.TLS)
		if took := c.TimeNS() - within; c != l && n >= dominantShare && n <= 1/dominantShare && took >= dominantShare*waited && c.TimeNS() <= waited/dominantShare {
			return c
		}
	}
	return nil
}

func (v *View) checkTLS(id ID) Result {
	r := ruledOut("no handshake of TLS was seen")
	nearest := 0.0
	for _, l := range v.ledgers {
		if l.TLS == 0 || l.called() && l.here != nil {
			continue // its other end tells
		}
		t := v.tlsFaultOf(l)
		if t.id == id {
			r.Findings = append(r.Findings, v.handshakeFinding(l, &t))
			continue
		}
		share, text := t.share, fmt.Sprintf("%s of TLS at %s took %s, on average, with two round trips of %s: %s of the time of handshakes and requests",
			figure.Counted(l.TLS, "handshake"), l.name(), nanoseconds(t.each), nanoseconds(t.way), percent(t.share))
		switch s := &l.TLSStats; {
		case id == TLSSessionRefused:
			share, text = ratio(s.Refused, l.TLS), fmt.Sprintf("%s of %s of TLS at %s were full though a session was offered", count(s.Refused), figure.Counted(l.TLS, "handshake"), l.name())
		case id == TLSNoResumption:
			share, text = t.repeat, fmt.Sprintf("%s of %s of TLS at %s were full between two ends that had one before; sessions would save %s each",
				count(s.Again), figure.Counted(l.TLS, "handshake"), l.name(), nanoseconds(t.saved/float64(l.TLS)))
		}
		if share >= nearest {
			r.RuledOut, nearest = text, share
		}
	}
	return r
}

func (v *View) handshakeFinding(l *ledger, t *tlsFault) Finding {
	s := Subject{Kind: "listener", NetNS: l.NetNS, PID: l.pid, Comm: v.commOf(l), Port: l.Port, Addr: l.Addr}
	if l.called() {
		s.Kind = "destination"
	}
	f := supported(s)
	costs := t.costs(l)
	share, lost := ratio(costs, l.handshakeTime()), costs/1e9
	f.Weight, f.lost = share*l.reach, &lost
	what := nanoseconds(t.each-t.way) + " of it not on the network"
	if t.id == TLSNoResumption {
		what = nanoseconds(costs/float64(l.TLS)) + " of it a round trip that a resumed one does not need"
	}
	f.Impact = Impact{Share: round(share), Of: "the time of handshakes and requests", OfTime: true,
		Text: fmt.Sprintf("%s took %s each, on average, %s; %s took %s", figure.Counted(l.TLS, "handshake"), nanoseconds(t.each), what,
			l.all(), nanoseconds(math.Max(l.TimeNS()-l.SumNS(observe.TLS), 0)/float64(max(l.Requests, 1))))}
	f.Evidence = l.handshakeEvidence(t)
	f.MayFollow = v.at(l)
	if t.crypto >= dominantShare {
		f.Parents = []Parent{ClassLimit, CPUSteal} // what its threads compute are the handshakes
	}
	at := netip.AddrPortFrom(l.address, uint16(l.Port)).String()
	switch t.id {
	case TLSHandshakeCall:
		f.Title = fmt.Sprintf("TLS handshakes at %s wait for %s", l.name(), t.asks.name())
		f.Evidence = append([]Evidence{
			{Fact: t.asks.name() + " outside of requests", Value: t.asks.Requests, Limit: l.TLS, Unit: "calls, for handshakes", Source: recorded},
			{Fact: "such a call takes, mean", Value: round(t.asks.TimeNS() / float64(max(t.asks.Requests, 1)) / 1e6), Unit: "ms", Source: recorded},
		}, f.Evidence...)
		f.Fix.Text = fmt.Sprintf("Let %s remember what %s answers, or ask ahead of time: OCSP is stapled (nginx: ssl_stapling on), CRLs and keys are fetched in the background.", f.Subject.Comm, destinationName(t.asks))
		if l.pid > 0 {
			f.Fix.Commands = append(f.Fix.Commands, lookAtWaits(l.pid))
		}
	case TLSSessionRefused:
		f.Title = fmt.Sprintf("%s refuses to resume TLS sessions", l.name())
		f.Fix.Text = "It has forgotten the session, or has other keys for its tickets: make the cache larger and its time longer, give all servers behind one name the same ticket keys, and keep the keys over a reload (nginx: ssl_session_ticket_key; Go: SetSessionTicketKeys)."
		f.Fix.Commands = []shell.Command{v.in(l.ns, shell.Line("openssl s_time -connect %s -www / -reuse -time 2   # an r for each that is resumed", at))}
		f.Fix.Persist = v.sessionCache(l)
	case TLSNoResumption:
		f.Title = fmt.Sprintf("TLS sessions at %s are not resumed", l.name())
		f.Fix.Text = "Let the server keep sessions, let clients offer them (Go: ClientSessionCache; curl and browsers do), and keep connections open. TLS 1.3 saves this round trip in any case."
		f.Fix.Commands = []shell.Command{v.in(l.ns, shell.Line("openssl s_time -connect %s -tls1_2 -www / -reuse -time 2   # an r for each that is resumed", at))}
		f.Fix.Persist = v.sessionCache(l)
	default:
		v.slowHandshakes(&f, l, t, at)
	}
	return f
}

// sessionCache is the lines for a server that is known.
func (v *View) sessionCache(l *ledger) []shell.Command {
	n := v.nginxByPID(l.pid)
	if n == nil {
		return nil
	}
	return []shell.Command{shell.Line("# in %s, http: ssl_session_cache shared:SSL:10m, ssl_session_timeout 1d", n.Root+n.Config)}
}

func (l *ledger) handshakeEvidence(t *tlsFault) []Evidence {
	const source = "records of TLS"
	s := &l.TLSStats
	list := []Evidence{
		{Fact: "handshakes of TLS completed", Value: l.TLS, Unit: "handshakes", Source: source},
		{Fact: "time of a handshake, ClientHello to Finished, mean", Value: round(t.each / 1e6), Unit: "ms", Source: source},
	}
	if s.ServerNS+s.ClientNS > 0 {
		list = append(list,
			Evidence{Fact: "of it, waiting for the serving end", Value: round(float64(s.ServerNS) / float64(l.TLS) / 1e6), Unit: "ms", Source: source},
			Evidence{Fact: "of it, waiting for the client", Value: round(float64(s.ClientNS) / float64(l.TLS) / 1e6), Unit: "ms", Source: source})
	}
	list = append(list, Evidence{Fact: "two round trips", Value: round(t.way / 1e6), Unit: "ms", Source: "TCP sockets"})
	var kinds []Evidence
	if s.Refused > 0 {
		kinds = append(kinds, Evidence{Fact: "full handshakes whose client offered a session", Value: s.Refused, Limit: s.Full, Unit: "handshakes", Source: source})
	}
	if s.Again > 0 {
		kinds = append(kinds, Evidence{Fact: "full ones between two ends that had one before", Value: s.Again, Limit: s.Full, Unit: "handshakes", Source: source})
	}
	if known := s.Full + s.Resumed; known > 0 {
		kinds = append(kinds, Evidence{Fact: "full handshakes, with a certificate", Value: s.Full, Limit: known, Unit: "handshakes", Source: source})
	}
	if t.id == TLSSessionRefused || t.id == TLSNoResumption {
		list = append(kinds, list...)
	} else {
		list = append(list, kinds...)
	}
	if t.crypto >= dominantShare {
		list = append(list, Evidence{Fact: "CPU time in cryptography, most in " + t.most, Value: round(t.crypto), Limit: 1.0, Unit: "share of the service's CPU samples", Source: "CPU samples"})
	}
	list = append(list, Evidence{Fact: "connections opened", Value: l.Connections, Unit: "connections, for " + count(l.Requests) + " requests", Source: recorded})
	if l.TLSFailed > 0 {
		list = append(list, Evidence{Fact: "connections that ended within the handshake", Value: l.TLSFailed, Limit: l.TLS + l.TLSFailed, Unit: "connections", Source: source})
	}
	return list
}

func (v *View) slowHandshakes(f *Finding, l *ledger, t *tlsFault, at string) {
	f.Title = fmt.Sprintf("TLS handshakes at %s are slow (%s each)", l.name(), nanoseconds(t.each))
	f.Fix.Commands = []shell.Command{v.in(l.ns, shell.Line("openssl s_time -connect %s -new -time 2   # how many handshakes a second it makes", at))}
	switch {
	case l.called():
		f.Fix.Text = fmt.Sprintf("%s takes so long to answer a ClientHello: look there. Keep connections open meanwhile, so that fewer handshakes are made.", destinationName(l))
	case t.crypto >= dominantShare:
		f.Fix.Text = fmt.Sprintf("%s computes signatures: a key of ECDSA (P-256) takes a fraction of one of RSA (4,096 bits: some 30 times that of P-256). Have clients keep connections open and resume sessions, and let more workers take part.", f.Subject.Comm)
		f.Fix.Commands = append(f.Fix.Commands, v.in(l.ns, shell.Line("openssl s_client -brief -connect %s </dev/null   # the kind of its signature", at)))
	default:
		f.Fix.Text = fmt.Sprintf("Find what %s waits for before it answers a ClientHello (who may connect, OCSP, a key or a certificate from elsewhere), and remember its answer. Have clients keep connections open and resume sessions.", f.Subject.Comm)
		if l.pid > 0 {
			f.Fix.Commands = append([]shell.Command{lookAtWaits(l.pid)}, f.Fix.Commands...)
		}
	}
}

// encrypting is the share of a service's CPU samples in functions of cryptography, and
// the one with most of them.
func (v *View) encrypting(l *ledger) (share float64, most string) {
	e := v.executedBy(v.atWork(l).procs, 0)
	var n, greatest uint64
	for i := range e.functions {
		f := &e.functions[i]
		if !cryptographic(f) {
			continue
		}
		n += f.Self
		if f.Self > greatest {
			most, greatest = f.Name, f.Self
		}
	}
	return ratio(n, e.samples), most
}

func cryptographic(f *observe.ProfileFunction) bool {
	for _, library := range []string{"libcrypto", "libssl", "libgnutls", "libhogweed", "libgmp", "libmbedcrypto", "libnss3", "libfreebl"} {
		if strings.HasPrefix(f.Module[strings.LastIndexByte(f.Module, '/')+1:], library) {
			return true
		}
	}
	return strings.HasPrefix(f.Name, "crypto/") || strings.HasPrefix(f.Name, "math/big.") || strings.HasPrefix(f.Name, "sun.security.") || strings.HasPrefix(f.Name, "java.math.")
}
