package cause

import "github.com/slowray/slowray/internal/observe"

var _ = fixturePair(
	fires{
		name: "no pod is ready", cause: &serviceWithoutEndpoints,
		inject: func(o *observe.Observation) {
			p, _ := inCart(o)
			p.Ready, p.Containers[0].Ready, p.Containers[0].State, p.Containers[0].Reason, p.Containers[0].Restarts = false, false, "waiting", "CrashLoopBackOff", 7
			for i := range o.Kubernetes.Services[0].Endpoints {
				o.Kubernetes.Services[0].Endpoints[i].Ready = false
			}
			serves(o, 0, 0)
			callsInVain(o, cartService, 400, 0)
		},
		subject: Subject{Kind: "destination", Addr: cartService, Port: appPort, PID: nginxMaster}, minShare: 0.99,
		fix: "kubernetes.io/service-name=cart", evidence: "pod cart-5d9-a=Running: CrashLoopBackOff, 7 restarts",
	},
	miss{"a service without endpoints that nobody calls", &serviceWithoutEndpoints, func(o *observe.Observation) {
		inCart(o)
		o.Kubernetes.Services[0].Endpoints = nil
		serves(o, 0, 0)
	}, "no request to it suffers"},
	miss{"a service whose endpoints somebody else writes", &serviceWithoutEndpoints, func(o *observe.Observation) {
		inCart(o)
		o.Kubernetes.Services[0].Endpoints, o.Kubernetes.Services[0].Selects = nil, false
		callsInVain(o, cartService, 400, 0)
	}, "no sign"},
	miss{"endpoints that nobody could read", &serviceWithoutEndpoints, func(o *observe.Observation) {
		inCart(o)
		o.Kubernetes.Services[0].Endpoints, o.Kubernetes.Services[0].EndpointsKnown = nil, false
		callsInVain(o, cartService, 400, 0)
	}, "no sign"},
)

// left is the other replica, which was asked to end at a time.
func left(o *observe.Observation, at, ended float64) *observe.Pod {
	p := &o.Kubernetes.Pods[1]
	p.DeletedAt, p.Ready = at, false
	c := &p.Containers[0]
	c.State, c.Ready, c.Last = "terminated", false, observe.PodExit{Reason: "Completed", At: ended}
	return p
}

var _ = fixturePair(
	fires{
		name: "an address from before", cause: &staleEndpoint,
		inject: func(o *observe.Observation) {
			inCart(o)
			left(o, -300, -299)
			serves(o, 0, 0)
			callsInVain(o, twinIP, 400, 0)
		},
		subject: Subject{Kind: "destination", Addr: twinIP, PID: nginxMaster}, minShare: 0.99, fix: "look the name up for each new connection",
		evidence: "pod that had the address=shop/cart-5d9-b, Terminating: terminated, 0 restarts",
	},
	miss{"another pod has the address by now", &staleEndpoint, func(o *observe.Observation) {
		inCart(o)
		p := *left(o, -300, -299)
		p.UID, p.Name, p.DeletedAt, p.CreatedAt, p.Containers = "99", "cart-5d9-c", 0, -200, []observe.PodContainer{{Name: "app", State: "running"}}
		o.Kubernetes.Pods = append(o.Kubernetes.Pods, p)
		callsInVain(o, twinIP, 400, 0)
	}, "no request to it suffers"},
	miss{"a pod that is gone, and nobody calls it", &staleEndpoint, func(o *observe.Observation) {
		inCart(o)
		left(o, -300, -299)
		serves(o, 0, 60)
	}, "no request to it suffers"},
)

var _ = fixturePair(
	fires{
		name: "requests in hand are reset", cause: &terminatedBeforeDrain,
		inject: func(o *observe.Observation) {
			p, _ := inCart(o)
			serves(o, 0, 60)
			p.DeletedAt, p.Ready = 8, false
			p.Containers[0].State, p.Containers[0].Last = "terminated", observe.PodExit{Reason: "Completed", At: 8.2}
		},
		subject: Subject{Kind: "pod", PID: appPID, Port: appPort}, minShare: 0.05, fix: `{"lifecycle":{"preStop":{"sleep":{"seconds":10}}},"name":"app"}`, evidence: "ended after it was asked to=0.2;",
	},
	miss{"requests that failed before it was asked to end", &terminatedBeforeDrain, func(o *observe.Observation) {
		p, _ := inCart(o)
		serves(o, 0, 60)
		p.DeletedAt = 9.9
	}, "no request to it suffers"},
	miss{"a roll-out that nobody noticed", &terminatedBeforeDrain, func(o *observe.Observation) {
		p, _ := inCart(o)
		serves(o, 0, 0)
		p.DeletedAt = 5
	}, "no request to it suffers"},
)

var _ = fixturePair(
	fires{
		name: "proxies still send to it after a preStop hook", cause: &terminatedBeforeDrain,
		inject: func(o *observe.Observation) {
			inCart(o)
			p := left(o, -4, 1)
			p.Containers[0].PreStop = true
			serves(o, 0, 0)
			callsInVain(o, twinIP, 400, 0)
		},
		subject: Subject{Kind: "pod"}, minShare: 0.99, fix: `{"preStop":{"exec":null,"httpGet":null,"sleep":{"seconds":20}}}`, evidence: "terminationGracePeriodSeconds of cart-5d9-b=30",
	},
)

var _ = fixturePair(
	fires{
		name: "the grace period is too short for the requests in hand", cause: &terminatedBeforeDrain,
		inject: func(o *observe.Observation) {
			inCart(o)
			p := left(o, -29, 1)
			p.Containers[0].PreStop = true
			serves(o, 0, 0)
			callsInVain(o, twinIP, 400, 0)
		},
		subject: Subject{Kind: "pod"}, minShare: 0.99, fix: `{"spec":{"template":{"spec":{"terminationGracePeriodSeconds":60}}}}`, evidence: "container app ended after it was asked to=30",
	},
)

// keptAlive is nginx's calls of an address over connections that it keeps, of which fail are
// reset at the end of the window.
func keptAlive(o *observe.Observation, addr string, fail uint64) *observe.Endpoint {
	e := callsTo(appPort, addr, nginxMaster, "nginx").add(1000, ms, ms, 0, quick).endpoint()
	if fail > 0 {
		cutShort(&e, fail)
		for i := range e.Failed {
			e.Failed[i].StartNS += o.Window.Start.UnixNano()
		}
	}
	o.Endpoints = append(o.Endpoints, nginxServed().add(1000, ms, ms/20, 0, quick).endpoint(), e)
	return &o.Endpoints[len(o.Endpoints)-1]
}

var _ = fixturePair(
	fires{
		name: "a client that keeps its connections alive", cause: &terminatedBeforeDrain,
		inject: func(o *observe.Observation) {
			inCart(o)
			left(o, 8, 8.2)
			serves(o, 0, 0)
			keptAlive(o, twinIP, 60)
		},
		subject: Subject{Kind: "pod"}, minShare: 0.05, fix: `{"lifecycle":{"preStop":{"sleep":{"seconds":10}}},"name":"app"}`, evidence: "preStop hook=none;",
	},
	miss{"a client whose connections were closed when idle", &terminatedBeforeDrain, func(o *observe.Observation) {
		inCart(o)
		left(o, 8, 8.2)
		serves(o, 0, 0)
		keptAlive(o, twinIP, 0)
	}, "no request to it suffers"},
)

// sidecar is a proxy next to the app, which is asked at another port and ended when.
func sidecar(o *observe.Observation, ended float64) *observe.Pod {
	p, _ := inCart(o)
	serves(o, 0, 60)
	p.DeletedAt, p.Ready = 7, false
	app := &p.Containers[0]
	app.PreStop, app.State, app.Last = true, "terminated", observe.PodExit{Reason: "Completed", At: 9}
	p.Containers = append(p.Containers, observe.PodContainer{Name: "proxy", ID: "ee55ff66aa77", Image: "proxy:1", State: "terminated", Last: observe.PodExit{Reason: "Completed", At: ended}})
	proxy := observe.Process{PID: appPID + 1, PPID: 1, Comm: "proxy", NetNS: serverNS, Container: "ee55ff66aa77", Cgroup: cartGroup[:len(cartGroup)-1]}
	o.Processes = append(o.Processes, proxy)
	return p
}

var _ = fixturePair(
	fires{
		name: "a sidecar that ends before the app", cause: &terminatedBeforeDrain,
		inject: func(o *observe.Observation) {
			sidecar(o, 7.1)
			o.Endpoints = append(o.Endpoints, servedAt(15006, cartIP, appPID+1, "proxy").add(1000, ms, ms, 0, quick).endpoint())
		},
		subject: Subject{Kind: "pod", PID: appPID}, minShare: 0.05, fix: `{"lifecycle":{"preStop":{"sleep":{"seconds":10}}},"name":"proxy"}`, evidence: "container proxy ended after it was asked to=0.1;",
	},
)

var _ = fixturePair(
	fires{
		name: "a container that answers nobody ends first", cause: &terminatedBeforeDrain,
		inject:  func(o *observe.Observation) { sidecar(o, 7.1) },
		subject: Subject{Kind: "pod", PID: appPID}, minShare: 0.05, fix: `"preStop":{"exec":null,"httpGet":null,"sleep":{"seconds":20}}}`, evidence: "container app ended after it was asked to=2;",
	},
)

var _ = fixturePair(
	fires{
		name: "an app that ignores SIGTERM", cause: &terminatedBeforeDrain,
		inject: func(o *observe.Observation) {
			inCart(o)
			left(o, -21, 9).Containers[0].Last.ExitCode = 137
			serves(o, 0, 0)
			keptAlive(o, twinIP, 60)
		},
		subject: Subject{Kind: "pod"}, minShare: 0.05, fix: "exec the program", evidence: "its last exit=Completed, exit code 137",
	},
	miss{"an app that is killed when its requests are done", &terminatedBeforeDrain, func(o *observe.Observation) {
		inCart(o)
		left(o, -21, 9).Containers[0].Last.ExitCode = 137
		serves(o, 0, 0)
		keptAlive(o, twinIP, 0)
	}, "no request to it suffers"},
)

// elsewhere is a pod of another node behind the service, which is about to end or not.
func elsewhere(o *observe.Observation, ends bool, fail uint64) {
	inCart(o)
	s := &o.Kubernetes.Services[0]
	s.Endpoints = append(s.Endpoints, observe.KubeEndpoint{Address: "10.244.2.9", Port: appPort, Pod: "cart-5d9-z", Node: "node-9", Ready: !ends, Serving: true, Terminating: ends})
	serves(o, 0, 0)
	keptAlive(o, "10.244.2.9", fail).Workload = &observe.Workload{Namespace: "shop", Pod: "cart-5d9-z", Kind: "Deployment", Name: "cart", Node: "node-9"}
}

var _ = fixturePair(
	fires{
		name: "a pod of another node, of which the client's side is seen", cause: &terminatedBeforeDrain,
		inject:  func(o *observe.Observation) { elsewhere(o, true, 60) },
		subject: Subject{Kind: "pod"}, minShare: 0.05, fix: "# in the manifest of 'deploy/cart (ns shop)': 'spec.template.spec.containers[].lifecycle.preStop'", evidence: "endpoint of service shop/cart=10.244.2.9, terminating;",
	},
	miss{"a pod of another node that goes on", &terminatedBeforeDrain, func(o *observe.Observation) { elsewhere(o, false, 60) }, "no sign"},
	miss{"a pod of another node that ends when its requests are done", &terminatedBeforeDrain, func(o *observe.Observation) { elsewhere(o, true, 0) }, "no request to it suffers"},
)

// leftService is a roll-out of the other replica, which a service had behind it, or not, and
// calls of the service that are refused.
func leftService(o *observe.Observation, behind bool) {
	inCart(o)
	left(o, 4, 4.2)
	s := &o.Kubernetes.Services[0]
	s.Endpoints = s.Endpoints[:1]
	if behind {
		s.Left = []string{"cart-5d9-b"}
	}
	serves(o, 0, 0)
	callsInVain(o, cartService, 100, 400)
}

var _ = fixturePair(
	fires{
		name: "a service sends to a pod that is gone already", cause: &terminatedBeforeDrain,
		inject:  func(o *observe.Observation) { leftService(o, true) },
		subject: Subject{Kind: "pod"}, minShare: 0.19, fix: `"preStop":{"sleep"`, evidence: "preStop hook=none;",
	},
	miss{"a service that had no part in a roll-out refuses", &terminatedBeforeDrain, func(o *observe.Observation) { leftService(o, false) }, "no request to it suffers"},
)
