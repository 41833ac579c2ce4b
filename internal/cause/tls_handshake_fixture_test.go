package cause

import "github.com/slowray/slowray/internal/observe"

// overTLS is 400 requests, each on a connection of its own, with handshakes that take so
// long each.
func overTLS(each, rtt int64) *traffic {
	t := appServed().add(400, rtt, rtt, 0, quick)
	t.e.Connections, t.e.TLS, t.e.TLSHandshake = 400, 400, 400*each
	return t
}

var _ = fixturePair(
	fires{
		name: "a server that asks somebody before it answers a ClientHello", cause: &tlsHandshakeSlow,
		inject: func(o *observe.Observation) {
			app(o, "app", 0.5, 0.1)
			with(o, overTLS(251*ms, ms/10))
		},
		subject: Subject{Kind: "listener", PID: appPID, Port: appPort}, minShare: 0.95,
		fix: "who may connect", evidence: "time of a handshake, ClientHello to Finished, mean=251",
	},
	miss{"handshakes of clients that are far away", &tlsHandshakeSlow, func(o *observe.Observation) {
		app(o, "app", 0.5, 0.1)
		with(o, overTLS(64*ms, 30*ms))
	}, "with two round trips of 60 ms"},
)

var _ = fixturePair(
	fires{
		name: "signatures with a long key", cause: &tlsHandshakeSlow,
		inject: func(o *observe.Observation) {
			app(o, "app", 9.5, 0.4)
			with(o, overTLS(180*ms, ms/10))
			o.Profile.Processes = append(o.Profile.Processes, observe.ProfileProcess{PID: appPID, Samples: 920, Functions: []observe.ProfileFunction{
				{Frame: observe.Frame{Name: "[libcrypto.so.3+0x1c5f40]", Kind: observe.FrameNative, Module: "/usr/lib/x86_64-linux-gnu/libcrypto.so.3"}, Self: 800, Total: 800, Own: 800}}})
		},
		subject: Subject{Kind: "listener", PID: appPID, Port: appPort}, minShare: 0.95,
		fix: "ECDSA", evidence: "CPU time in cryptography",
	},
	miss{"one slow handshake for many requests", &tlsHandshakeSlow, func(o *observe.Observation) {
		app(o, "app", 0.5, 0.1)
		t := overTLS(251*ms, ms/10).add(9000, ms/10, ms/10, 0, quick)
		t.e.Connections, t.e.TLS, t.e.TLSHandshake = 6, 6, 6*251*ms
		with(o, t)
	}, "6 handshakes of TLS at :8000 took 251 ms"},
)

// shakes is what the handshakes of a traffic were like.
func (t *traffic) shakes(s observe.TLSStats) *traffic {
	t.e.TLSStats = s
	return t
}

var signing = observe.ProfileProcess{PID: appPID, Samples: 920, Functions: []observe.ProfileFunction{
	{Frame: observe.Frame{Name: "[libcrypto.so.3+0x1c5f40]", Kind: observe.FrameNative, Module: "/usr/lib/x86_64-linux-gnu/libcrypto.so.3"}, Self: 800, Total: 800, Own: 800}}}

var _ = fixturePair(
	fires{
		name: "a session cache that is too small", cause: &tlsSessionRefused,
		inject: func(o *observe.Observation) {
			app(o, "app", 9.5, 0.4)
			with(o, overTLS(180*ms, ms/10).shakes(observe.TLSStats{V13: 400, Full: 390, Resumed: 10, Refused: 385, Again: 380, ServerNS: 400 * 178 * ms, ClientNS: 400 * ms}))
			o.Profile.Processes = append(o.Profile.Processes, signing)
		},
		subject: Subject{Kind: "listener", PID: appPID, Port: appPort}, minShare: 0.95,
		fix: "ticket keys", evidence: "full handshakes whose client offered a session=385",
	},
	miss{"a few sessions that have grown old", &tlsSessionRefused, func(o *observe.Observation) {
		app(o, "app", 9.5, 0.4)
		with(o, overTLS(180*ms, ms/10).shakes(observe.TLSStats{V13: 400, Full: 390, Resumed: 10, Refused: 12, Again: 380, ServerNS: 400 * 178 * ms}))
		o.Profile.Processes = append(o.Profile.Processes, signing)
	}, "12 of 400 handshakes of TLS at :8000 were full though a session was offered"},
)

var _ = fixturePair(
	fires{
		name: "full handshakes of TLS 1.2 over a distance", cause: &tlsNoResumption,
		inject: func(o *observe.Observation) {
			app(o, "app", 0.5, 0.1)
			with(o, overTLS(64*ms, 30*ms).shakes(observe.TLSStats{V12: 400, Full: 400, Again: 390, ServerNS: 400 * ms, ClientNS: 400 * 3 * ms, NetworkNS: 400 * 60 * ms}))
		},
		subject: Subject{Kind: "listener", PID: appPID, Port: appPort}, minShare: 0.3,
		fix: "ClientSessionCache", evidence: "full ones between two ends that had one before=390",
	},
	miss{"full handshakes of TLS 1.3 over a distance", &tlsNoResumption, func(o *observe.Observation) {
		app(o, "app", 0.5, 0.1)
		with(o, overTLS(34*ms, 30*ms).shakes(observe.TLSStats{V13: 400, Full: 400, Again: 390, NetworkNS: 400 * 30 * ms}))
	}, "sessions would save 0 s each"},
)

// asksFirst is a server that asks another before it answers a ClientHello.
func asksFirst(o *observe.Observation, calls int) {
	app(o, "app", 0.5, 0.1)
	served := overTLS(251*ms, ms/10).shakes(observe.TLSStats{V13: 400, Full: 400, Again: 390, ServerNS: 400 * 250 * ms})
	served.e.Split = &observe.SplitStats{Requests: 400, ServerNS: 400 * ms}
	with(o, served, callsTo(8888, "10.9.8.7", appPID, "app").add(calls, 249*ms, 249*ms, 0, parts{observe.Server: 249 * ms}))
}

var _ = fixturePair(
	fires{
		name: "a server that asks another for each handshake", cause: &tlsHandshakeCall,
		inject:  func(o *observe.Observation) { asksFirst(o, 400) },
		subject: Subject{Kind: "listener", PID: appPID, Port: appPort}, minShare: 0.95,
		fix: "ssl_stapling", evidence: "calls to 10.9.8.7:8888 outside of requests=400",
	},
	miss{"a server that calls now and then", &tlsHandshakeCall, func(o *observe.Observation) { asksFirst(o, 40) },
		"400 handshakes of TLS at :8000 took 251 ms"},
)
