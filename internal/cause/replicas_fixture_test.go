package cause

import "github.com/slowray/slowray/internal/observe"

func rescale(o *observe.Observation, sizes ...int) {
	o.Kubernetes.Autoscalers = []observe.KubeAutoscaler{{Namespace: "shop", Name: "cart", Kind: "Deployment", Target: "cart", Min: 1, Max: 9, Current: 2, Desired: 8, StabilizeDownSeconds: 0}}
	for i, n := range sizes {
		o.Kubernetes.Events = append(o.Kubernetes.Events, observe.KubeEvent{At: -400 + 100*float64(i), Count: 1, Reason: "SuccessfulRescale", Kind: "HorizontalPodAutoscaler",
			Namespace: "shop", Name: "cart", Message: "New size: " + itoa(n) + "; reason: cpu resource utilization (percentage of request) above target"})
	}
}

var _ = fixturePair(
	fires{
		name: "an image that cannot be pulled", cause: &replicasMissing,
		inject: func(o *observe.Observation) {
			inCart(o)
			p := &o.Kubernetes.Pods[1]
			p.Ready, p.Phase, p.IPs, p.CreatedAt = false, "Pending", nil, -120
			p.Containers[0] = observe.PodContainer{Name: "app", Image: "cart:2", State: "waiting", Reason: "ImagePullBackOff"}
			event(o, 2, "Failed", "cart-5d9-b", `Failed to pull image "cart:2": not found`)
			serves(o, 200, 0)
		},
		subject: Subject{Kind: "pod"}, minShare: 0.19, fix: "kubectl -n shop rollout undo deployment/cart   # if it is new", evidence: `Failed to pull image "cart:2": not found=3;`,
	},
	miss{"an image that cannot be pulled, and the others have time to spare", &replicasMissing, func(o *observe.Observation) {
		inCart(o)
		p := &o.Kubernetes.Pods[1]
		p.Ready, p.CreatedAt = false, -120
		p.Containers[0] = observe.PodContainer{Name: "app", Image: "cart:2", State: "waiting", Reason: "ImagePullBackOff"}
		serves(o, 0, 0)
	}, "no request to it suffers"},
	miss{"one that does not start, and the others are slow by themselves", &replicasMissing, func(o *observe.Observation) {
		inCart(o)
		p := &o.Kubernetes.Pods[1]
		p.Ready, p.CreatedAt = false, -120
		p.Containers[0] = observe.PodContainer{Name: "app", State: "waiting", Reason: "CrashLoopBackOff"}
		with(o, servedAt(appPort, cartIP, appPID, "app").add(800, ms, ms, 0, quick).add(200, ms, ms, 0, pondering))
		cutShort(&o.Endpoints[0], 60)
	}, "no request to it suffers"},
	miss{"a pod that was made a moment ago", &replicasMissing, func(o *observe.Observation) {
		inCart(o)
		p := &o.Kubernetes.Pods[1]
		p.Ready, p.CreatedAt = false, 8
		p.Containers[0] = observe.PodContainer{Name: "app", State: "waiting", Reason: "ContainerCreating"}
		serves(o, 200, 0)
	}, "no sign"},
)

var _ = fixturePair(
	fires{
		name: "up and down, and the requests of those that go are reset", cause: &autoscalerFlapping,
		inject: func(o *observe.Observation) {
			inCart(o)
			rescale(o, 2, 8, 2, 8)
			serves(o, 0, 60)
		},
		subject: Subject{Kind: "pod"}, minShare: 0.05, fix: `kubectl -n shop patch hpa cart --patch '{"spec":{"behavior":{"scaleDown":{"stabilizationWindowSeconds":600}}}}'`, evidence: "one after the other=2, 8, 2, 8",
	},
	miss{"an autoscaler that follows a load", &autoscalerFlapping, func(o *observe.Observation) {
		inCart(o)
		rescale(o, 2, 4, 8, 6)
		serves(o, 0, 60)
	}, "it changed direction once"},
	miss{"an autoscaler that goes up and down for nobody", &autoscalerFlapping, func(o *observe.Observation) {
		inCart(o)
		rescale(o, 2, 8, 2, 8)
		serves(o, 0, 0)
	}, "no request to it suffers"},
)

var _ = fixturePair(
	fires{
		name: "a pod that is evicted for another one's memory", cause: &nodePressureEviction,
		inject: func(o *observe.Observation) {
			_, c := inCart(o)
			c.MemoryUsedBytes = 3 << 30
			o.Kubernetes.Pods[0].Containers[0].MemoryRequest = 64 << 20
			o.Kubernetes.Pods[1].Phase = "Failed"
			o.Kubernetes.Node.Pressure = []string{"MemoryPressure"}
			event(o, 3, "Evicted", "cart-5d9-b", "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi.")
			serves(o, 200, 0)
		},
		subject: Subject{Kind: "pod"}, minShare: 0.19, fix: "kubectl -n shop set resources deployment/cart -c app --requests=memory=3072Mi", evidence: "conditions of node node-7=MemoryPressure",
	},
	miss{"a node under pressure that evicts nobody", &nodePressureEviction, func(o *observe.Observation) {
		inCart(o)
		o.Kubernetes.Node.Pressure = []string{"MemoryPressure"}
		serves(o, 200, 60)
	}, "no pod was evicted"},
	miss{"an eviction that nobody noticed", &nodePressureEviction, func(o *observe.Observation) {
		inCart(o)
		event(o, 3, "Evicted", "cart-5d9-b", "The node was low on resource: memory.")
		serves(o, 0, 0)
	}, "no request to it suffers"},
)
