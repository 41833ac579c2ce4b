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
