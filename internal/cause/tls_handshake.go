package cause

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// TLSHandshakeSlow: a new connection waits for its handshake of TLS longer than the
// round trips of it take: the serving end computes (a signature with a long RSA key), or
// waits for somebody before it answers (who may connect, OCSP, a key elsewhere). No
// request has begun then, so that requests look quick.
const TLSHandshakeSlow ID = "tls-handshake-slow"

var tlsHandshakeSlow = Cause{
	ID:            TLSHandshakeSlow,
	Title:         "TLS handshakes are slow",
	Layer:         LayerApplication,
	Needs:         []observe.Kind{observe.KindRequests},
	ConsequenceOf: []Parent{ClassMachine, ClassWait, ClassLimit, ClassCompute, ClassPool, ClassHost, ClassShort, NetworkLoss, ClassDrop},
	Folds:         true,
	Check:         checkTLSHandshakes,
}

// handshakes is what those of one endpoint cost.
type handshakes struct {
	each  float64 // ns, mean
	way   float64 // of it two round trips, which TLS 1.2 needs; 1.3 has one
	lost  float64 // the rest, of all of them
	share float64 // that is of the time of handshakes and requests
}

func (l *ledger) handshakes() handshakes {
	if l.TLS == 0 {
		return handshakes{}
	}
	h := handshakes{each: float64(max(l.TLSHandshake, 0)) / float64(l.TLS), way: 2 * float64(l.RTT.Quantile(0.5))}
	h.lost = max(h.each-h.way, 0) * float64(l.TLS)
	h.share = ratio(h.lost, float64(l.TLSHandshake)+l.TimeNS())
	return h
}

// slow says that they keep clients waiting.
func (h *handshakes) slow(l *ledger) bool {
	return l.TLS >= fewRequests && h.each-h.way >= threadFloor.mean && h.share >= dominantShare
}

func checkTLSHandshakes(v *View) Result {
	r := ruledOut("no handshake of TLS was seen")
	nearest := 0.0
	for _, l := range v.ledgers {
		if l.TLS == 0 || l.called() && l.here != nil {
			continue // its other end tells
		}
		h := l.handshakes()
		text := fmt.Sprintf("%s of TLS at %s took %s, on average, with two round trips of %s: %s of the time of handshakes and requests",
			figure.Counted(l.TLS, "handshake"), l.name(), nanoseconds(h.each), nanoseconds(h.way), percent(h.share))
		if !h.slow(l) || l.reach < fewReach {
			if h.share >= nearest {
				r.RuledOut, nearest = text, h.share
			}
			continue
		}
		r.Findings = append(r.Findings, v.handshakeFinding(l, h))
	}
	return r
}

func (v *View) handshakeFinding(l *ledger, h handshakes) Finding {
	s := Subject{Kind: "listener", NetNS: l.NetNS, PID: l.pid, Comm: v.commOf(l), Port: l.Port, Addr: l.Addr}
	if l.called() {
		s.Kind = "destination"
	}
	f := supported(s)
	f.Weight = h.share * l.reach
	lost := h.lost / 1e9
	f.lost = &lost
	f.Title = fmt.Sprintf("TLS handshakes at %s are slow (%s each)", l.name(), nanoseconds(h.each))
	f.Impact = Impact{Share: round(h.share), Of: "the time of handshakes and requests", OfTime: true,
		Text: fmt.Sprintf("%s took %s each, on average, %s of it not on the network; %s took %s", figure.Counted(l.TLS, "handshake"), nanoseconds(h.each), nanoseconds(h.each-h.way),
			l.all(), nanoseconds(l.TimeNS()/float64(max(l.Requests, 1))))}
	f.Evidence = []Evidence{
		{Fact: "handshakes of TLS completed", Value: l.TLS, Unit: "handshakes", Source: "records of TLS"},
		{Fact: "time of a handshake, ClientHello to Finished, mean", Value: round(h.each / 1e6), Unit: "ms", Source: "records of TLS"},
		{Fact: "two round trips", Value: round(h.way / 1e6), Unit: "ms", Source: "TCP sockets"},
		{Fact: "connections opened", Value: l.Connections, Unit: "connections, for " + count(l.Requests) + " requests", Source: recorded},
	}
	if l.TLSFailed > 0 {
		f.Evidence = append(f.Evidence, Evidence{Fact: "connections that ended within the handshake", Value: l.TLSFailed, Limit: l.TLS + l.TLSFailed, Unit: "connections", Source: "records of TLS"})
	}
	f.MayFollow = v.at(l)
	at := netip.AddrPortFrom(l.address, uint16(l.Port)).String()
	f.Fix.Commands = []shell.Command{v.in(l.ns, shell.Line("openssl s_time -connect %s -new -time 2   # how many handshakes a second it makes", at))}
	if l.called() {
		f.Fix.Text = fmt.Sprintf("%s takes so long to answer a ClientHello: look there. Keep connections open meanwhile, so that fewer handshakes are made.", destinationName(l))
		return f
	}
	share, most := v.encrypting(l)
	if share >= dominantShare {
		f.Parents = []Parent{ClassLimit, CPUSteal} // what its threads compute are the handshakes
		f.Evidence = append(f.Evidence, Evidence{Fact: "CPU time in cryptography, most in " + most, Value: round(share), Limit: 1.0, Unit: "share of the service's CPU samples", Source: "CPU samples"})
		f.Fix.Text = fmt.Sprintf("%s computes signatures: a key of ECDSA (P-256) takes a fraction of one of RSA (4,096 bits: some 30 times that of P-256). Have clients keep connections open and resume sessions, and let more workers take part.", f.Subject.Comm)
		f.Fix.Commands = append(f.Fix.Commands, v.in(l.ns, shell.Line("openssl s_client -brief -connect %s </dev/null   # the kind of its signature", at)))
		return f
	}
	f.Fix.Text = fmt.Sprintf("Find what %s waits for before it answers a ClientHello (who may connect, OCSP, a key or a certificate from elsewhere), and remember its answer. Have clients keep connections open and resume sessions.", f.Subject.Comm)
	if l.pid > 0 {
		f.Fix.Commands = append([]shell.Command{lookAtWaits(l.pid)}, f.Fix.Commands...)
	}
	return f
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
