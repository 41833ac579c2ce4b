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
