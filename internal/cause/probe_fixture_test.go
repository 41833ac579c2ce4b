package cause

import "github.com/slowray/slowray/internal/observe"

var _ = fixturePair(
	fires{
		name: "a pod that answers later than its probe waits", cause: &livenessProbeKills,
		inject: func(o *observe.Observation) {
			p, _ := inCart(o)
			restarted(&p.Containers[0])
			serves(o, 200, 60)
			event(o, 6, "Killing", "cart-5d9-a", "Container app failed liveness probe, will be restarted")
		},
		subject: Subject{Kind: "pod", PID: appPID, Port: appPort}, minShare: 0.05,
		fix:      `kubectl -n shop patch deployment/cart --patch '{"spec":{"template":{"spec":{"containers":[{"livenessProbe":{"failureThreshold":3,"timeoutSeconds":6},"name":"app"}]}}}}'`,
		evidence: "Container app failed liveness probe, will be restarted=3;",
	},
	miss{"a pod that is killed for its probe and answers in time", &livenessProbeKills, func(o *observe.Observation) {
		p, _ := inCart(o)
		restarted(&p.Containers[0])
		serves(o, 0, 60)
		event(o, 6, "Killing", "cart-5d9-a", "Container app failed liveness probe, will be restarted")
	}, "took longer than 1 s"},
	miss{"a slow pod that is killed while nobody asks", &livenessProbeKills, func(o *observe.Observation) {
		p, _ := inCart(o)
		restarted(&p.Containers[0])
		serves(o, 200, 0)
		event(o, 6, "Killing", "cart-5d9-a", "Container app failed liveness probe, will be restarted")
	}, "no request to it suffers"},
	miss{"clients that give up on a slow pod", &livenessProbeKills, func(o *observe.Observation) {
		p, _ := inCart(o)
		restarted(&p.Containers[0])
		serves(o, 200, 60)
		for i := range o.Endpoints[0].Failed {
			o.Endpoints[0].Failed[i].Flags, o.Endpoints[0].Flags["half_closed"] = []string{"unanswered", "half_closed"}, 60
		}
	}, "no request to it suffers"},
	miss{"a probe that fails once or twice", &livenessProbeKills, func(o *observe.Observation) {
		inCart(o)
		serves(o, 200, 60)
		event(o, 6, "Unhealthy", "cart-5d9-a", "Liveness probe failed: context deadline exceeded")
	}, "no sign"},
	miss{"an OOM kill", &livenessProbeKills, func(o *observe.Observation) {
		p, _ := inCart(o)
		restarted(&p.Containers[0])
		p.Containers[0].Last.Reason = "OOMKilled"
		serves(o, 200, 60)
	}, "no sign"},
)

// probed is a pod that was ended for a liveness probe of another kind, with slow requests.
func probed(o *observe.Observation, kind string, late int) *observe.Pod {
	p, _ := inCart(o)
	p.Containers[0].Liveness = &observe.Probe{Kind: kind, Port: appPort, TimeoutSeconds: 1, PeriodSeconds: 5, FailureThreshold: 3}
	restarted(&p.Containers[0])
	serves(o, late, 60)
	event(o, 6, "Killing", "cart-5d9-a", "Container app failed liveness probe, will be restarted")
	return p
}

// appListener is where the app listens.
func appListener(o *observe.Observation) *observe.Listener {
	for i := range ns(o).Listeners {
		if l := &ns(o).Listeners[i]; l.Port == appPort {
			return l
		}
	}
	panic("the app listens nowhere")
}

var _ = fixturePair(
	fires{
		name: "a tcpSocket probe at a full accept queue", cause: &livenessProbeKills,
		inject: func(o *observe.Observation) {
			probed(o, "tcp", 200)
			l := appListener(o)
			l.Drops, l.QueuePeak, l.Limit = 400, 129, 128
		},
		subject: Subject{Kind: "pod", PID: appPID, Port: appPort}, minShare: 0.05, fix: `{"livenessProbe":{"failureThreshold":3,"timeoutSeconds":4},"name":"app"}`,
		evidence: "connection attempts dropped at port 8000, which the probe connects to=400;",
	},
	miss{"a tcpSocket probe, which the kernel answers for a slow process", &livenessProbeKills, func(o *observe.Observation) { probed(o, "tcp", 200) }, "the probe only connects, and the accept queue of port 8000 had room"},
	miss{"a tcpSocket probe of a port where nobody listens", &livenessProbeKills, func(o *observe.Observation) {
		probed(o, "tcp", 200).Containers[0].Liveness.Port = 1
	}, "of port 1 nothing is known"},
)

var _ = fixturePair(
	fires{
		name: "an exec probe of a slow pod", cause: &livenessProbeKills,
		inject:  func(o *observe.Observation) { probed(o, "exec", 200).Containers[0].Liveness.Port = 0 },
		subject: Subject{Kind: "pod", PID: appPID, Port: appPort}, minShare: 0.05, fix: `"timeoutSeconds":6`, evidence: "requests on :8000 that took longer than 1 s=200;",
	},
	miss{"an exec probe whose command fails by itself", &livenessProbeKills, func(o *observe.Observation) { probed(o, "exec", 0) }, "took longer than 1 s"},
)

var _ = fixturePair(
	fires{
		name: "a grpc probe makes a slow pod unready", cause: &readinessProbeUnlists,
		inject: func(o *observe.Observation) {
			p, _ := inCart(o)
			o.Kubernetes.Pods = o.Kubernetes.Pods[:1]
			p.Containers[0].Readiness.Kind = "grpc"
			p.Ready, p.ReadySince, p.Containers[0].Ready = false, 3, false
			serves(o, 200, 0)
			callsInVain(o, cartService, 400, 100)
		},
		subject: Subject{Kind: "pod", PID: appPID}, minShare: 0.79, fix: "readinessProbe.timeoutSeconds", evidence: "requests on :8000 that took longer than 1 s=200;",
	},
	miss{"a readiness probe that only connects", &readinessProbeUnlists, func(o *observe.Observation) {
		p, _ := inCart(o)
		p.Containers[0].Readiness.Kind = "tcp"
		p.Ready, p.ReadySince = false, 3
		serves(o, 200, 0)
		callsInVain(o, cartService, 400, 100)
	}, "had room"},
)

var _ = fixturePair(
	fires{
		name: "nothing but the kubelet's status tells of the kill", cause: &livenessProbeKills,
		inject: func(o *observe.Observation) {
			p, _ := inCart(o)
			restarted(&p.Containers[0])
			serves(o, 200, 60)
		},
		subject: Subject{Kind: "pod", PID: appPID}, minShare: 0.05, fix: "livenessProbe.timeoutSeconds", evidence: "its last exit=Error, exit code 137, 4 s before the end",
	},
)

var _ = fixturePair(
	fires{
		name: "the service has nobody left", cause: &readinessProbeUnlists,
		inject: func(o *observe.Observation) {
			p, _ := inCart(o)
			o.Kubernetes.Pods = o.Kubernetes.Pods[:1]
			p.Ready, p.ReadySince, p.Containers[0].Ready = false, 3, false
			s := &o.Kubernetes.Services[0]
			s.Endpoints = s.Endpoints[:1]
			s.Endpoints[0].Ready = false
			serves(o, 200, 0)
			callsInVain(o, cartService, 400, 100)
		},
		subject: Subject{Kind: "pod", PID: appPID}, minShare: 0.79, fix: "readinessProbe.timeoutSeconds", evidence: "ready endpoints of service shop/cart=0;",
	},
	miss{"a pod that becomes ready and unready while all are answered", &readinessProbeUnlists, func(o *observe.Observation) {
		inCart(o)
		serves(o, 200, 0)
		event(o, 6, "Unhealthy", "cart-5d9-a", "Readiness probe failed: context deadline exceeded")
	}, "no request to it suffers"},
	miss{"a pod that is unready and quick", &readinessProbeUnlists, func(o *observe.Observation) {
		p, _ := inCart(o)
		p.Ready, p.ReadySince = false, 3
		serves(o, 0, 0)
		callsInVain(o, cartService, 400, 100)
	}, "took longer than 1 s"},
)

var _ = fixturePair(
	fires{
		name: "the other replica gets all requests", cause: &readinessProbeUnlists,
		inject: func(o *observe.Observation) {
			p, _ := inCart(o)
			event(o, 4, "Unhealthy", "cart-5d9-a", "Readiness probe failed: context deadline exceeded")
			p.ReadySince = 8
			serves(o, 200, 0)
			e := callsTo(appPort, twinIP, nginxMaster, "nginx").add(400, ms, ms, 0, quick).add(100, ms, ms, 0, dragging)
			o.Endpoints = append(o.Endpoints, e.endpoint(), nginxServed().add(500, ms, ms/20, 0, quick).endpoint())
		},
		subject: Subject{Kind: "pod", PID: appPID}, minShare: 0.19, fix: "run more replicas", evidence: "readiness probes that failed",
	},
)

var _ = fixturePair(
	fires{
		name: "a pod that its CPU limit slows down", cause: &livenessProbeKills,
		inject: func(o *observe.Observation) {
			p, c := inCart(o)
			throttledIn(o, c)
			slow := parts{observe.RecvWait: ms, observe.Server: 1500 * ms, observe.Network: ms / 10}
			with(o, servedAt(appPort, cartIP, appPID, "app").add(100, ms, ms, 0, slow))
			followed(o, map[observe.ServerPart]float64{observe.ServerThrottled: 0.8, observe.ServerCPU: 0.2})
			cutShort(&o.Endpoints[0], 30)
			restarted(&p.Containers[0])
			callsInVain(o, cartIP, 300, 100)
		},
		subject: Subject{Kind: "pod", PID: appPID}, minShare: 0.7, fix: `"timeoutSeconds":3`, evidence: "took longer than 1 s=100;",
	},
)
