package cause

import (
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
)

// nearMissesOnRequests are those of the causes that are judged by requests.
var nearMissesOnRequests = []miss{
	{"loss that no request notices", &networkLoss,
		quiet(nginxServed().add(2000, ms/2, ms/5, 0, quick).add(60, ms/2, ms/5, 0, parts{observe.Server: 2 * ms, observe.Retrans: ms / 2}).lost(6000, 60)),
		"60 of 6,000 segments of :8088 were retransmitted (10 ‰), which took 0.7 % of the requests' time"},
	{"a handful of segments", &networkLoss,
		quiet(nginxServed().add(200, ms/2, ms/5, 0, quick).add(4, ms/2, ms/5, observe.FlagTimeout, waitedRTO).lost(600, 4)), "4 of 600 segments"},
	{"loss on the way to what no request waits for", &networkLoss,
		quiet(fpmServed().add(2000, ms/5, ms/5, 0, parts{observe.Server: 50 * ms}),
			dbCalled().add(40, ms, ms, 0, quick).add(4, ms, ms, observe.FlagTimeout, waitedRTO).lost(120, 20)), "20 of 120 segments"},
	{"a process that serves nobody loses packets", &networkLoss,
		quiet(nginxServed().add(50, ms, ms, 0, quick), callsTo(443, "203.0.113.5", hog, "backup").add(50, ms, ms, observe.FlagTimeout, waitedRTO).lost(120, 60)),
		"0 of 150 segments of :8088"},
	{"one answer lost its last segment", &rtoTailLoss,
		quiet(nginxServed().add(500, ms/2, ms/5, 0, quick).add(1, ms/2, ms/5, observe.FlagTimeout, waitedRTO).lost(1500, 1)),
		"1 of 501 requests on :8088 waited for a retransmission timer (203 ms)"},
	{"one record of a timeout that stands for 32 requests", &rtoTailLoss, func(o *observe.Observation) {
		t := nginxServed().add(500, ms/2, ms/5, 0, quick).add(32, ms/2, ms/5, observe.FlagTimeout, waitedRTO)
		quiet(t)(o)
		o.Endpoints[0].Recorded = 17
	}, "32 of 532 requests on :8088 waited"},
	{"a timeout in ten thousand requests of 20 ms", &rtoTailLoss,
		quiet(nginxServed().add(10_000, ms/2, ms/5, 0, parts{observe.Server: 20 * ms}).add(5, ms/2, ms/5, observe.FlagTimeout, waitedRTO).lost(30_000, 5)),
		"5 of 10,005 requests"},
	{"SYN-ACKs to a scanner", &synRetransmits, func(o *observe.Observation) {
		t := nginxServed().add(200, ms, ms, 0, quick)
		t.e.SynRetrans, t.e.Connections = 500, 20
		quiet(t)(o)
	}, "500 SYN-ACKs were retransmitted"},
	{"a service that looks for a dead collector in the background", &synRetransmits, func(o *observe.Observation) {
		c := callsTo(4317, "10.7.7.9", nginxMaster, "nginx")
		c.e.SynRetrans = 30
		quiet(nginxServed().add(200, ms, ms, 0, quick), c)(o)
	}, "30 SYNs of calls to 10.7.7.9:4317"},
	{"a person at a keyboard far away", &highRTT,
		quiet(servedAt(22, "10.9.8.1", 22, "sshd").add(70, 30*ms, 29*ms, 0, parts{observe.Server: ms, observe.Network: 30 * ms}).peers(1, 29*ms)),
		"its clients are far away"},
	{"clients all over the world", &highRTT,
		quiet(nginxServed().add(3000, 80*ms, 70*ms, 0, parts{observe.Server: 3 * ms, observe.Network: 80 * ms}).peers(16, 70*ms)),
		"its clients are far away"},
	{"a client on this host that pauses before it goes on", &highRTT,
		quiet(fpmServed().add(300, 20*ms, 20*ms, 0, parts{observe.Server: 2 * ms, observe.Network: 20 * ms}).peers(1, 20*ms)),
		"both ends are on this host"},
	{"what remains of a service that ended: sockets that time out", &highRTT, func(o *observe.Observation) {
		quiet(nginxServed().add(200, ms, ms, 0, quick))(o)
		o.Window.Start = time.Unix(1_795_711_383, 0).UTC()
		o.Endpoints = append(o.Endpoints, remains(o).endpointCut())
	}, "had ended: no round trip was measured"},
	{"clients that vanish while their answers are out", &highRTT,
		func(o *observe.Observation) {
			quiet(nginxServed().add(200, ms, ms, 0, quick))(o)
			o.Endpoints = append(o.Endpoints, goneClients().endpointCut())
		}, "acknowledged nothing any more"},
	{"an answer of which the rest is lost, once", &networkLoss,
		quiet(nginxServed().add(600, ms/2, ms/5, 0, quick).add(2, ms/2, ms/5, observe.FlagTimeout|observe.FlagUnfinished, waitedRTO)), "segments of :8088"},
	{"some clients have a full link of their own", &highRTT,
		quiet(nginxServed().add(3000, 20*ms, 18*ms, 0, parts{observe.Server: 60 * ms, observe.Network: 20 * ms}).add(40, 900*ms, 30*ms, 0, bufferbloat).peers(16, 18*ms)),
		"round trips of :8088 take"},
	{"a few paused downloads are no retransmission", &rtoTailLoss,
		quiet(nginxServed().add(300, ms, ms, 0, quick).add(6, ms, ms, observe.FlagZeroWindow, zeroWindow)), "none of 306 requests"},
	{"fast retransmits on a long way", &rtoTailLoss,
		quiet(nginxServed().add(300, 80*ms, 80*ms, 0, farAway).add(20, 80*ms, 80*ms, 0, parts{observe.Retrans: 170 * ms, observe.Network: 90 * ms}).lost(1000, 20)),
		"none of 320 requests"},
	{"acknowledgements are late because the CPUs are full", &highRTT, func(o *observe.Observation) {
		o.Endpoints = []observe.Endpoint{nginxServed().add(500, 60*ms, ms/20, 0, parts{observe.Server: 3 * ms, observe.Network: 60 * ms}).endpoint()}
	}, "the CPUs are full"},
	{"a call to somewhere far that no request waits for", &highRTT,
		quiet(fpmServed().add(300, ms, ms, 0, quick), dbCalled().add(900, 25*ms, 24*ms, 0, parts{observe.Server: ms, observe.Network: 25 * ms}).peers(1, 24*ms)),
		"round trips of calls to 10.7.7.7:3306"},
	{"the load generator on full CPUs does not keep up", &slowReceiver, func(o *observe.Observation) {
		o.Endpoints[0] = nginxServed().add(500, ms, ms, observe.FlagZeroWindow, parts{observe.Server: 3 * ms, observe.SendWait: 60 * ms}).endpoint()
	}, "the receiver is on this host, and waits for a CPU"},
	{"two players that pause", &slowReceiver,
		quiet(nginxServed().add(300, ms, ms, 0, quick).add(2, ms, ms, observe.FlagZeroWindow|observe.FlagUnfinished, zeroWindow)),
		"2 of 302 requests on :8088 met a closed or small window"},
	{"the send buffer is what fills first", &slowReceiver,
		quiet(nginxServed().add(100, 20*ms, 20*ms, observe.FlagSendBuffer, parts{observe.SendWait: 400 * ms, observe.Network: 20 * ms}).add(4, ms, ms, observe.FlagZeroWindow, quick)),
		"4 of 104 requests"},
	{"a client that acknowledges with its next request", &slowClientAck,
		quiet(nginxServed().add(100, ms, ms, 0, quick).add(30, ms, ms, 0, parts{observe.Server: 14 * ms, observe.Network: ms / 2, observe.AckDelay: 18 * ms})),
		"clients of :8088 acknowledged 30 of 130 answers over 10 ms late, up to 18 ms: they had their answer"},
	{"large answers over loopback", &sendBufferLimited,
		quiet(nginxServed().add(100, ms/20, ms/20, observe.FlagSendBuffer, parts{observe.SendWait: 400 * ms, observe.Network: ms})),
		"100 of 100 requests on :8088 filled the send buffer"},
	{"an answer in two writes that nobody holds back", &nagleDelayedAck,
		quiet(nginxServed().add(300, ms, ms, observe.FlagNagle, parts{observe.Server: 2 * ms, observe.SendWait: ms / 5})),
		"300 of 300 requests on :8088 were held back"},
	{"an answer in two writes that is slow for something else", &nagleDelayedAck,
		quiet(nginxServed().add(300, ms, ms, observe.FlagNagle, parts{observe.Server: 300 * ms, observe.SendWait: 41 * ms})),
		"300 of 300 requests on :8088 were held back"},
	{"uploads in pieces", &nagleDelayedAck,
		quiet(nginxServed().add(300, ms, ms, observe.FlagUploadAcks, parts{observe.Upload: ms, observe.Server: 50 * ms})),
		"300 of 300 requests on :8088 came in pieces"},
	{"first pieces that are dropped", &nagleDelayedAck, func(o *observe.Observation) {
		quiet(nginxServed().add(200, ms, ms, observe.FlagUploadAcks, parts{observe.Upload: 205 * ms, observe.Server: ms}))(o)
		ns(o).Counters["TcpExt.DelayedACKs"] = 3
	}, "only 3 acknowledgements were delayed"},
	{"a queue of milliseconds", &acceptQueueWait,
		quiet(nginxServed().add(1000, ms, ms, 0, quick).add(20, ms, ms, 0, parts{observe.AcceptWait: 9 * ms, observe.Server: 2 * ms})),
		"on :8088 take 11 ms: accept_wait 82 %"},
	{"a queue on full CPUs", &acceptQueueWait, func(o *observe.Observation) {
		o.Endpoints = []observe.Endpoint{fpmServed().add(1000, ms, ms, 0, acceptLate).endpoint()}
	}, "the CPUs are full (2.5 % idle)"},
	{"a queue on CPUs that are full while the load lasts, which ends within the window", &acceptQueueWait, func(o *observe.Observation) {
		t := fpmServed().add(1000, ms, ms, 0, acceptLate)
		t.e.Arrivals = make([]uint32, 100)
		for i := range 37 {
			t.e.Arrivals[i] = 27
		}
		quiet(t)(o)
		for i := range 40 {
			span := observe.CPUSpan{Seconds: 0.25 * float64(i+1), Busy: 0.49, Idle: 0.01}
			if i >= 15 {
				span.Busy, span.Idle = 0.02, 0.48
			}
			o.Use.Course = append(o.Use.Course, span)
		}
	}, "the CPUs are full (2.0 % idle)"},
	{"a thread that wakes up late now and then", &applicationSlowToRead,
		quiet(nginxServed().add(1000, ms, ms, 0, quick).add(20, ms, ms, 0, parts{observe.RecvWait: 12 * ms, observe.Server: 2 * ms})),
		"recv_wait 86 %"},
	{"a server that computes", &applicationSlowToRead,
		quiet(nginxServed().add(1000, ms, ms, 0, quick).add(40, ms, ms, 0, parts{observe.Server: 900 * ms})),
		"on :8088 take 900 ms: server 100 %"},
	{"an event loop on full CPUs", &applicationSlowToRead, nil, "but the CPUs are full"},
	{"pauses of threads that wait for full CPUs", &applicationStall, func(o *observe.Observation) {
		quiet(nginxServed().add(50, ms, ms, 0, stalled))(o)
		o.Use.CPU = observe.CPUTime{User: 17, System: 2, Idle: 0.1}
		process(o, nginxMaster).RunDelaySeconds = 8
	}, "the CPUs are full"},
	{"streams of events", &applicationStall,
		quiet(nginxServed().add(1000, ms, ms, 0, quick).add(15, ms, ms, observe.FlagUnfinished, parts{observe.Server: ms, observe.Stall: 9000 * ms})),
		"15 of the slowest answers on :8088 with pauses are not finished"},
	{"short pauses", &applicationStall,
		quiet(nginxServed().add(1000, ms, ms, 0, parts{observe.Server: ms, observe.Stall: 4 * ms})), "on :8088 take 5 ms: stall 80 %"},
	{"bursts that are answered at once", &requestWaves, func(o *observe.Observation) {
		t := nginxServed().add(1000, ms, ms, 0, quick)
		t.e.Arrivals = waveArrivals(100)
		quiet(t)(o)
	}, "answered in time nevertheless"},
	{"a remote shell, busy now and then, with a few answers that take long", &requestWaves, func(o *observe.Observation) {
		t := nginxServed().add(2000, ms, ms, 0, quick).add(4, ms, ms, 0, parts{observe.Stall: 400 * ms})
		t.e.Arrivals = waveArrivals(200)
		quiet(t)(o)
	}, "answered in time nevertheless"},
	{"clients in step with a server that always takes a second", &requestWaves, func(o *observe.Observation) {
		t := nginxServed().add(500, ms, ms, 0, parts{observe.Server: 1000 * ms})
		t.e.Arrivals = waveArrivals(50)
		quiet(t)(o)
	}, "answers that all take the same time"},
	{"few requests", &requestWaves, func(o *observe.Observation) {
		quiet(nginxServed().add(20, ms, ms, 0, readLate))(o)
	}, "only 20 requests"},
	{"a database that answers in time", &slowDependency,
		quiet(fpmServed().add(300, ms, ms, 0, parts{observe.Server: 9 * ms}), dbCalled().add(900, ms, ms, 0, parts{observe.Server: 2 * ms})),
		"calls to 10.7.7.7:3306 take 2 ms on average (p50 2 ms, p99 2 ms), 67 % of the time in which php-fpm8.2 answers requests"},
	{"a queue that is polled in the background", &slowDependency,
		quiet(fpmServed().add(300, ms, ms, 0, waitsForDB), dbCalled().add(10, ms, ms, 0, parts{observe.Server: 5000 * ms})),
		"not made for one"},
	{"a test with both ends in one process", &slowDependency,
		quiet(servedAt(45501, "127.0.0.1", hog, "record.test").add(147, ms/50, ms/50, 0, parts{observe.Server: ms / 50}).add(10, ms/50, ms/50, 0, parts{observe.Server: 36 * ms}),
			callsTo(45501, "127.0.0.1", hog, "record.test").add(147, ms/50, ms/50, 0, parts{observe.Server: ms / 50}).add(10, ms/50, ms/50, 0, parts{observe.Server: 36 * ms})),
		"it calls itself, and answers hardly anything else"},
	{"a process that calls itself, and answers others too", &slowDependency,
		quiet(servedAt(45501, "127.0.0.1", hog, "record.test").add(1000, ms/50, ms/50, 0, parts{observe.Server: ms / 50}).add(300, ms/50, ms/50, 0, parts{observe.Server: 136 * ms}),
			callsTo(45501, "127.0.0.1", hog, "record.test").add(200, ms/50, ms/50, 0, parts{observe.Server: 236 * ms})),
		"it calls itself: what holds up its answers"},
	{"calls that the caller itself takes long to send", &slowDependency,
		quiet(fpmServed().add(300, ms, ms, 0, waitsForDB), dbCalled().add(300, ms, ms, 0, parts{observe.Upload: 200 * ms, observe.Server: ms})),
		"it takes that long itself to send them"},
	{"slow calls that are few next to what the service does itself", &slowDependency,
		quiet(fpmServed().add(300, ms, ms, 0, waitsForDB), dbCalled().add(20, ms, ms, 0, slowDB)), "of the time in which php-fpm8.2"},
	{"nginx before a php-fpm on full CPUs", &slowDependency, func(o *observe.Observation) {
		o.Endpoints = []observe.Endpoint{nginxServed().add(300, ms, ms, 0, waitsForDB).endpoint(), fpmCalled().add(300, ms, ms, 0, slowDB).endpoint(),
			fpmServed().add(300, ms, ms, 0, slowDB).endpoint()}
	}, "whose CPUs are full"},
}

// TestQuietHostHasNoFinding: what runs on a host that nobody complains of.
func TestQuietHostHasNoFinding(t *testing.T) {
	o := healthy()
	shell := servedAt(22, "10.9.8.1", 22, "sshd").
		add(60, 28*ms, 27*ms, 0, parts{observe.Server: ms, observe.Network: 28 * ms}).
		add(2, 28*ms, 27*ms, observe.FlagUnfinished, parts{observe.Server: ms, observe.Stall: 9000 * ms}).peers(1, 27*ms)
	site := nginxServed().add(700, ms, ms/5, 0, quick).add(12, ms, ms/5, 0, cold).
		add(9, ms, ms/5, 0, parts{observe.RecvWait: 8 * ms, observe.Server: 5 * ms}).
		add(3, 90*ms, 60*ms, observe.FlagTimeout, parts{observe.Server: 2 * ms, observe.Retrans: ms, observe.Network: 90 * ms}).lost(2200, 4)
	agent := callsTo(443, "203.0.113.5", hog, "backup").add(8, 40*ms, 40*ms, 0, parts{observe.Server: 300 * ms, observe.Network: 40 * ms})
	quiet(shell, site, agent, fpmCalled().add(200, ms, ms/20, 0, quick), fpmServed().add(200, ms, ms/20, 0, quick))(o)
	v := NewView(o)
	for _, c := range Catalogue() {
		r := c.Judge(v)
		for _, f := range r.Findings {
			t.Errorf("%s fires on a quiet host: %s", c.ID, f.Impact.Text)
		}
		if r.RuledOut == "" {
			t.Errorf("%s is ruled out without a reason", c.ID)
		}
	}
}

// TestFilterLimitsRequests: with a filter only the requests of what was asked
// for are judged, and of what it calls.
func TestFilterLimitsRequests(t *testing.T) {
	o := healthy()
	quiet(nginxServed().add(50, ms, ms, 0, stalled), fpmServed().add(300, ms, ms, 0, waitsForDB), dbCalled().add(300, ms, ms, 0, slowDB))(o)
	o.Filter.Port = fpmPort
	v := NewView(o)
	if r := applicationStall.Judge(v); len(r.Findings) != 0 {
		t.Errorf("a stall of :%d is reported for :%d", webPort, fpmPort)
	}
	if r := slowDependency.Judge(v); len(r.Findings) != 1 {
		t.Errorf("the slow dependency of :%d is not found: %s", fpmPort, r.RuledOut)
	}
}

// TestFilterTakesInWhatIsCalled: over connections that were open all the
// while too, one hop after the other.
func TestFilterTakesInWhatIsCalled(t *testing.T) {
	o := healthy()
	quiet(nginxServed().add(300, ms, ms, 0, waitsForDB), fpmCalled().add(300, ms, ms, 0, waitsForDB),
		fpmServed().add(300, ms, ms, 0, waitsForDB), dbCalled().add(300, ms, ms, 0, slowDB))(o)
	o.Connects, o.Filter.Port = nil, webPort
	v := NewView(o)
	if len(v.Services) != 2 || len(v.Ledgers()) != 4 {
		t.Fatalf("%d services and %d endpoints in view, want 2 and 4", len(v.Services), len(v.Ledgers()))
	}
	r := slowDependency.Judge(v)
	if len(r.Findings) != 1 || r.Findings[0].Subject.Port != dbPort {
		t.Errorf("the last hop is not found: %+v", r)
	}
}

// TestWavesFollowWhatTheServiceCalls: a service stands still when what it
// calls does, but not for what somebody else calls.
func TestWavesFollowWhatTheServiceCalls(t *testing.T) {
	lostSYNs := func(port int, pid int, comm string) *traffic {
		c := callsTo(port, "10.7.7.7", pid, comm).add(180, ms, ms, 0, quick)
		c.e.Connections, c.e.SynRetrans, c.e.Handshake, c.e.HandshakeMax = 180, 20, 20_000*ms, 1020*ms
		return c
	}
	waves := func() *traffic {
		w := nginxServed().add(900, ms, ms, 0, quick).add(100, ms, ms, 0, parts{observe.Server: 1020 * ms})
		w.e.Arrivals = waveArrivals(100)
		return w
	}
	pages := func() *traffic {
		return fpmServed().add(180, ms, ms, 0, quick).add(20, ms, ms, 0, parts{observe.Server: 1025 * ms})
	}
	for _, c := range []struct {
		name string
		plan []*traffic
		want bool
	}{
		{"its own call", []*traffic{waves(), lostSYNs(dbPort, nginxMaster, "nginx")}, true},
		{"a call of what it calls", []*traffic{waves(), fpmCalled().add(900, ms, ms, 0, quick), pages(), lostSYNs(dbPort, fpmMaster, "php-fpm8.2")}, true},
		{"a call of another service", []*traffic{waves(), pages(), lostSYNs(dbPort, fpmMaster, "php-fpm8.2")}, false},
	} {
		w, s := check(&requestWaves, quiet(c.plan...)), check(&synRetransmits, quiet(c.plan...))
		if len(w.Findings) != 1 || len(s.Findings) != 1 {
			t.Errorf("%s: %d findings of waves, %d of lost SYNs, want one of each (%s; %s)", c.name, len(w.Findings), len(s.Findings), w.RuledOut, s.RuledOut)
			continue
		}
		if got := w.Findings[0].MayFollow(&s.Findings[0]); got != c.want {
			t.Errorf("%s: the waves may follow from it: %v, want %v", c.name, got, c.want)
		}
	}
}

// unread is a host with requests of t, and n that nobody has read for a time
// and that are among the examples only, as all that are going on.
func unread(t *traffic, n int, p parts) func(*observe.Observation) {
	return func(o *observe.Observation) {
		quiet(t)(o)
		e := &o.Endpoints[0]
		waiting := nginxServed().add(n, 0, 0, observe.FlagUnfinished, p).endpoint()
		e.Unfinished = uint64(n)
		e.Slowest = append(waiting.Slowest, e.Slowest...)
	}
}

func asleep(seconds int64) parts { return parts{observe.RecvWait: seconds * 1000 * ms} }

// TestUnreadRequests: a service that stands still answers nothing that could be
// slow; what lies unread in its sockets shows it.
func TestUnreadRequests(t *testing.T) {
	for _, c := range []struct {
		name   string
		inject func(*observe.Observation)
		want   bool
		fix    string
	}{
		{"nothing is read at all", unread(nginxServed(), 6, asleep(12)), true, "find what its threads wait for"},
		{"the process is stopped", func(o *observe.Observation) {
			unread(nginxServed(), 6, asleep(12))(o)
			process(o, nginxMaster).State = "T"
		}, true, "is stopped: let it run again"},
		{"one worker of two stands still", unread(nginxServed().add(200, ms, ms, 0, quick), 10, asleep(3)), true, "find what its threads wait for"},
		{"two connections that were forgotten", unread(nginxServed().add(100, ms, ms, 0, quick), 2, asleep(9)), false, ""},
		{"a few forgotten connections of a busy service", unread(nginxServed().add(9000, ms, ms, 0, quick), 5, asleep(9)), false, ""},
		{"requests that were read and are worked on", unread(nginxServed().add(100, ms, ms, 0, quick), 20, parts{observe.RecvWait: ms, observe.Server: 9000 * ms}), false, ""},
		{"what a client here has not read", unread(dbCalled().add(100, ms, ms, 0, quick), 6, asleep(12)), false, ""},
	} {
		r := check(&applicationSlowToRead, c.inject)
		if got := len(r.Findings) > 0; got != c.want {
			t.Errorf("%s: found %v, want %v (%s%s)", c.name, got, c.want, r.RuledOut, r.NotChecked)
			continue
		}
		if c.want && (!strings.Contains(r.Findings[0].Fix.Text, c.fix) || r.Findings[0].Impact.Share <= 0 || r.Findings[0].Subject.PID == 0) {
			t.Errorf("%s: %+v", c.name, r.Findings[0])
		}
	}
}
