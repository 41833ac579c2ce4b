package cause

import (
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

const (
	cartUID   = "0f1e2d3c-4b5a-4678-9a0b-c1d2e3f40516"
	cartID    = "aa11bb22cc33"
	cartGroup = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0f1e2d3c_4b5a_4678_9a0b_c1d2e3f40516.slice/cri-containerd-aa11bb22cc33" +
		"44dd55ee66ff77008899aabbccddeeff00112233445566778899.scope"
	outerID                     = "4455667788990011223344556677889900112233445566778899aabbccddeeff" // of a container that a node runs in
	cartIP, twinIP, cartService = "10.244.1.7", "10.244.1.8", "10.96.0.40"
)

// inCart is the app as the one container of a pod of deployment cart, of which another
// replica runs on this node, behind a service.
func inCart(o *observe.Observation) (*observe.Pod, *observe.Cgroup) {
	p := app(o, "app", 1, 0)
	p.Container, p.Cgroup = cartID, cartGroup
	o.Cgroups = append(o.Cgroups, observe.Cgroup{Path: cartGroup, Version: 2, PIDs: []int{appPID}})
	probe := func() *observe.Probe {
		return &observe.Probe{Kind: "http", Path: "/healthz", Port: appPort, TimeoutSeconds: 1, PeriodSeconds: 5, FailureThreshold: 3}
	}
	pod := func(uid, name, id, ip string) observe.Pod {
		return observe.Pod{UID: uid, Namespace: "shop", Name: name, Kind: "Deployment", Owner: "cart", IPs: []string{ip}, Phase: "Running", QoS: "Burstable", Ready: true,
			CreatedAt: -3600, ReadySince: -3500, GraceSeconds: 30,
			Containers: []observe.PodContainer{{Name: "app", ID: id, Image: "cart:1", Ready: true, State: "running", Started: -3590, CPULimit: 0.5, CPURequest: 0.1, MemoryLimit: 512 << 20,
				Liveness: probe(), Readiness: probe()}}}
	}
	o.Kubernetes = &observe.Kubernetes{Node: observe.KubeNode{Name: "node-7", Zone: "b"},
		Pods: []observe.Pod{pod(cartUID, "cart-5d9-a", cartID, cartIP), pod("77", "cart-5d9-b", "dd44ee55ff66", twinIP)},
		Services: []observe.KubeService{{Namespace: "shop", Name: "cart", IPs: []string{cartService}, Selects: true, EndpointsKnown: true,
			Endpoints: []observe.KubeEndpoint{{Address: cartIP, Port: appPort, Pod: "cart-5d9-a", Node: "node-7", Ready: true}, {Address: twinIP, Port: appPort, Pod: "cart-5d9-b", Node: "node-7", Ready: true}}}},
		Sources: []observe.KubeSource{{Name: "cri"}, {Name: "kubelet"}, {Name: "api"}},
	}
	return &o.Kubernetes.Pods[0], &o.Cgroups[len(o.Cgroups)-1]
}

// cutShort makes fail requests of a hundred fail at the end of the window, with a reset.
func cutShort(e *observe.Endpoint, fail uint64) {
	e.Unanswered = fail
	e.OK -= fail
	e.Flags["reset"], e.Flags["unanswered"] = fail, fail
	for range min(fail, 20) {
		e.Failed = append(e.Failed, observe.RequestSample{StartNS: 9e9, TotalNS: ms, Status: "error", Flags: []string{"reset", "unanswered"}})
	}
}

// Requests of cart that take longer than a probe waits: nobody works for them, or what they
// ask for takes long.
var (
	dragging  = parts{observe.RecvWait: 2400 * ms, observe.Server: 100 * ms, observe.Network: ms / 10}
	pondering = parts{observe.RecvWait: ms, observe.Server: 2500 * ms, observe.Network: ms / 10}
)

// serves gives the app requests of which some crawl, and some fail.
func serves(o *observe.Observation, slow int, fail uint64) {
	o.Window.Start = o.Window.Start.UTC()
	t := servedAt(appPort, cartIP, appPID, "app").add(1000-slow, ms, ms, 0, quick)
	if slow > 0 {
		t.add(slow, ms, ms, 0, dragging)
	}
	with(o, t)
	if fail > 0 {
		cutShort(&o.Endpoints[0], fail)
		for i := range o.Endpoints[0].Failed {
			o.Endpoints[0].Failed[i].StartNS += o.Window.Start.UnixNano()
		}
	}
}

// callsInVain has nginx, of whose requests most fail, call an address in vain.
func callsInVain(o *observe.Observation, addr string, vain, well uint64) {
	o.Endpoints = append(o.Endpoints, nginxServed().add(500, ms, ms/20, 0, quick).endpoint())
	answered(400, "5xx", 502)(&o.Endpoints[len(o.Endpoints)-1])
	o.Connects = append(o.Connects, observe.Connect{PID: nginxWorker1, Comm: "nginx", NetNS: serverNS, Family: "inet", Addr: addr, Port: appPort,
		Calls: vain + well, Started: vain + well, Failed: vain, Refused: vain, Established: well})
}

func event(o *observe.Observation, at float64, reason, name, message string) {
	o.Kubernetes.Events = append(o.Kubernetes.Events, observe.KubeEvent{At: at, Count: 3, Warning: true, Reason: reason, Kind: "Pod", Namespace: "shop", Name: name, Message: message})
}

// restarted is a container that the kubelet ended for its probe 6 s into the window.
func restarted(c *observe.PodContainer) {
	c.Restarts, c.ID, c.Started, c.Last = 4, "ffffffffffff", 7, observe.PodExit{Reason: "Error", ExitCode: 137, Signal: 9, At: 6}
}

// Causes of their own, in a pod.
var _ = fixturePair(
	fires{
		name: "the CPU limit of a container in a pod", cause: &cpuQuotaThrottled,
		inject: func(o *observe.Observation) {
			_, c := inCart(o)
			throttledIn(o, c)
			o.Cgroups = append(o.Cgroups, *c) // the pod's, with the same quota
			o.Cgroups[1].Path = cartGroup[:strings.LastIndexByte(cartGroup, '/')]
		},
		subject: Subject{Kind: "cgroup", PID: appPID, Path: cartGroup}, minShare: 0.5,
		fix: "kubectl -n shop set resources deployment/cart -c app --limits=cpu=1.2", evidence: "CPUs that it ran on while the quota let it, in periods that used the quota up=1.188",
	},
)

// throttledIn has the quota of a group hold the app back.
func throttledIn(o *observe.Observation, c *observe.Cgroup) {
	c.QuotaCPUs, c.QuotaFile, c.PeriodNS, c.Periods, c.ThrottledPeriods, c.ThrottledSeconds = 0.5, "/sys/fs/cgroup/cart/cpu.max", 1e8, 100, 95, 5.5
	p := process(o, appPID)
	p.UserSeconds, p.RunDelaySeconds = 2, 8
	with(o, servedAt(appPort, cartIP, appPID, "app").add(100, ms, ms, 0, computed))
	followed(o, map[observe.ServerPart]float64{observe.ServerThrottled: 0.8, observe.ServerCPU: 0.2})
}

var _ = fixturePair(
	fires{
		name: "the memory limit of a container in a pod", cause: &containerOOMKilled,
		inject: func(o *observe.Observation) {
			p, c := inCart(o)
			c.MemoryLimitBytes = 512 << 20
			restarted(&p.Containers[0])
			p.Containers[0].Last.Reason = "OOMKilled"
			process(o, appPID).EndedIn = true
			serves(o, 0, 60)
			o.OOMKills = []observe.OOMKill{{At: 6, PID: appPID, Comm: "app", Cgroup: cartGroup, LimitCgroup: cartGroup, Container: cartID, AnonBytes: 505 << 20, LimitBytes: 512 << 20}}
		},
		subject: Subject{PID: appPID, Port: appPort}, minShare: 0.05,
		fix: "kubectl -n shop set resources deployment/cart -c app --limits=memory=1024Mi", evidence: "restarts of deploy/cart (ns shop), container app=4;its last exit=OOMKilled, exit code 137, 4 s before the end",
	},
)

var _ = fixturePair(
	fires{
		name: "a pod that takes the CPUs of others", cause: &cpuSaturated,
		inject: func(o *observe.Observation) {
			process(o, hog).UserSeconds, process(o, hog).Container, process(o, hog).Cgroup = 14, cartID, cartGroup
			at := *o
			inCart(&at)
			at.Kubernetes.Pods[0].Containers[0].CPULimit = 0
			o.Kubernetes = at.Kubernetes
		},
		subject: Subject{PID: hog}, minShare: 0.3, fix: "kubectl -n shop set resources deployment/cart -c app --limits=cpu=0.7", evidence: "CPU limit of deploy/cart (ns shop), container app=none",
	},
)

// inPodOf puts php-fpm's child, which looks names up, into the pod, and the nameserver
// behind a service.
func inPodOf(o *observe.Observation) {
	at := *o
	inCart(&at) // of the app itself nothing is needed
	o.Kubernetes = at.Kubernetes
	process(o, fpmChild1).Container, process(o, fpmChild1).Cgroup = cartID, cartGroup
	o.Kubernetes.Services = append(o.Kubernetes.Services, observe.KubeService{Namespace: "kube-system", Name: "kube-dns", IPs: []string{deafServer, goodServer}, Selects: true, EndpointsKnown: true,
		Endpoints: []observe.KubeEndpoint{{Address: "10.244.0.2", Pod: "coredns-1", Ready: true}, {Address: "10.244.0.3", Pod: "coredns-2"}}})
}

var _ = fixturePair(
	fires{
		name: "ndots of a pod", cause: &dnsSearchExpansion,
		inject:  inTurn(firingNamed(&dnsSearchExpansion, "four lookups for a name"), inPodOf),
		subject: Subject{Kind: "process", PID: fpmMaster}, minShare: 0.55, evidence: "ready endpoints of service kube-system/kube-dns=1;",
		fix: `kubectl -n shop patch deployment/cart --patch '{"spec":{"template":{"spec":{"dnsConfig":{"options":[{"name":"ndots","value":"1"}]}}}}}'`,
	},
)

var _ = fixturePair(
	fires{
		name: "a nameserver behind a service", cause: &dnsTimeout,
		inject:  inTurn(firingNamed(&dnsTimeout, "the first nameserver is dead"), inPodOf),
		subject: Subject{Addr: deafServer, PID: fpmMaster}, minShare: 0.95, fix: "Bring the pods behind service kube-system/kube-dns back.",
		evidence: "ready endpoints of service kube-system/kube-dns=1;",
	},
)

// firingNamed is what a fixture of another file injects.
func firingNamed(c *Cause, name string) func(*observe.Observation) {
	return func(o *observe.Observation) {
		for _, f := range firingOnNames {
			if f.cause == c && f.name == name {
				f.inject(o)
				return
			}
		}
		panic("no such fixture: " + name)
	}
}

var _ = fixturePair(
	fires{
		name: "a small request of CPUs next to a neighbour", cause: &lowCPUWeight,
		inject: func(o *observe.Observation) {
			_, c := inCart(o)
			c.CPUWeight, c.WeightFile = 2, "/sys/fs/cgroup/cart/cpu.weight"
			p := process(o, appPID)
			p.RunDelaySeconds, p.Course = 9, course(appPID, 0.1, 0.85)
			full(o)
			process(o, hog).UserSeconds = 16
			with(o, servedAt(appPort, cartIP, appPID, "app").add(100, ms, ms, 0, computed))
			followed(o, map[observe.ServerPart]float64{observe.ServerRunq: 0.9, observe.ServerCPU: 0.1})
		},
		subject: Subject{Kind: "cgroup", Path: cartGroup}, minShare: 0.5, fix: "kubectl -n shop set resources deployment/cart -c app --requests=cpu=0.5",
		evidence: "CPU weight of deploy/cart (ns shop), container app=2",
	},
)

var _ = fixturePair(
	fires{
		name: "kube-proxy rejects what goes to a service without endpoints", cause: &firewallReject,
		inject: losing(func(o *observe.Observation) {
			r := nftRule("input", 4, false, 0)
			r.Verdict, r.Chain = "reject", "KUBE-SERVICES"
			rules(o, r)
			ns(o).Firewall.All = 5120
			dropped(o, "NETFILTER_DROP", "nft_do_chain", "eth0", observe.DropData, true, 60)
		}),
		subject: Subject{Rule: "nft inet fw KUBE-SERVICES handle 4"}, fix: "kubectl get endpointslices", evidence: "rules of the packet filter, kube-proxy's among them=5120",
	},
)

// TestPodUID: paths of both drivers of the kubelet's control groups, and what is none.
func TestPodUID(t *testing.T) {
	for path, want := range map[string]string{
		cartGroup:                               cartUID,
		"/kubepods/burstable/pod12-34/ab":       "12-34",
		"/kubepods/pod12-34/ab":                 "12-34", // Guaranteed
		"/kubepods/besteffort/pod12-34/crio-ab": "12-34",
		// CRI-O; crun makes a group below the scope, and the monitor has one next to it.
		"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod12_34.slice/crio-ab.scope/container":    "12-34",
		"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod12_34.slice/crio-conmon-ab.scope":       "12-34",
		"/system.slice/containerd.service/kubepods-burstable-pod12_34.slice:cri-containerd:ab":                    "12-34",                            // containerd with the other driver
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podd41d8cd98f00b204e9800998ecf8427e.slice/x": "d41d8cd98f00b204e9800998ecf8427e", // a static pod
		// kind with both drivers, minikube with Docker as its driver, a --cgroup-root.
		"/docker/" + outerID + "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod12_34.slice/cri-containerd-ab.scope": "12-34",
		"/docker/" + outerID + "/kubelet/kubepods/besteffort/pod12-34/ab":                                                    "12-34",
		"/system.slice/docker-" + outerID + ".scope/kubepods.slice/kubepods-pod12_34.slice/docker-ab.scope":                  "12-34",
		"/site.slice/site-kubepods.slice/site-kubepods-burstable.slice/site-kubepods-burstable-pod12_34.slice/crio-ab.scope": "12-34",
		"/../../kubelet-kubepods-pod12_34.slice/cri-containerd-ab.scope":                                                     "12-34", // from a control group namespace
		"/docker/" + outerID + "/init.scope":                                                                                 "",
		"/kubepods.slice":                                                                                                    "",
		"/kubepods.slice/kubepods-burstable.slice":                                                                           "",
		"/system.slice/kubepods-monitor.service":                                                                             "",
		"/kubepods.slice/kubepods-podab_cd.slice/crio-1.scope":                                                               "ab-cd",
		"/machine.slice/libpod-abc.scope/container":                                                                          "",
		"/podium":                     "ium", // known to no pod
		"/system.slice/nginx.service": "",
		"":                            "",
	} {
		if got := podUID(path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}

// TestClaim: the volume of a pod on a busy disk is reported by the name of its claim.
func TestClaim(t *testing.T) {
	o := healthy()
	p, _ := inCart(o)
	o.Use.Disks[0].Number = "254:0"
	p.Volumes = []observe.PodVolume{{Name: "data", Claim: "data-cart-0", Container: "app", Path: "/data", Device: "254:0"}, {Name: "logs", Claim: "logs", Device: "8:16"}}
	got := NewView(o).diskEvidence("")
	last := got[len(got)-1]
	if last.Fact != "claim on it, of deploy/cart (ns shop), container app" || last.Value != "data-cart-0" {
		t.Errorf("%+v", got)
	}
}

// TestManifestOf: what kubectl edits it is given, and of all else the field is named.
func TestManifestOf(t *testing.T) {
	for _, c := range []struct{ kind, owner, ns, want string }{
		{"Deployment", "cart", "shop", "kubectl -n shop set resources deployment/cart -c app --limits=cpu=2"},
		{"CronJob", "nightly", "shop", "kubectl -n shop set resources cronjob/nightly -c app --limits=cpu=2"},
		{"Rollout", "cart", "shop", "# in the manifest of 'rollout/cart (ns shop)': 'spec.containers[name=app].resources.limits.cpu=2'"},
		{"Pod", "", "shop", "# in the manifest of 'pod/cart-1 (ns shop)': 'spec.containers[name=app].resources.limits.cpu=2'"},
		{"Deployment", "a b;rm -rf /", "-shop", "kubectl -n -shop set resources 'deployment/a b;rm -rf /' -c app --limits=cpu=2"},
	} {
		at := inPod{&observe.Pod{Namespace: c.ns, Name: "cart-1", Kind: c.kind, Owner: c.owner}, &observe.PodContainer{Name: "app"}, &observe.KubeNode{}}
		if got := at.setResource("limits.cpu", "2").String(); got != c.want {
			t.Errorf("%s: %s, want %s", c.kind, got, c.want)
		}
	}
}

// TestRootOfProbeKills: a pod that its CPU limit holds back is killed for its probe, and the
// service has nobody left: the limit is why.
func TestRootOfProbeKills(t *testing.T) {
	o := healthy()
	p, c := inCart(o)
	throttledIn(o, c)
	restarted(&p.Containers[0])
	v := NewView(o)
	quota := cpuQuotaThrottled.Judge(v)
	if len(quota.Findings) != 1 {
		t.Fatal(quota.RuledOut)
	}
	if got := quota.Findings[0].Fix.Text; !strings.Contains(got, "spec.template.spec.containers[name=app].resources.limits.cpu") {
		t.Error(got)
	}
	if w := v.SubjectWorkload(&quota.Findings[0].Subject); w.ContainerText() != "deploy/cart (ns shop), container app" {
		t.Errorf("%+v", w)
	}
	to := v.inPods(v.aimAt(p))
	for _, c := range []struct {
		name string
		f    Finding
		want bool
	}{
		{"its own limit", quota.Findings[0], true},
		{"another group's", Finding{Cause: CPUQuotaThrottled, class: cpuQuotaThrottled.Class, Subject: Subject{Kind: "cgroup", Path: "/other"}}, false},
		{"an autoscaler of the workload", Finding{Cause: AutoscalerFlapping, class: autoscalerFlapping.Class, Subject: Subject{Kind: "pod", Workload: observe.Workload{Namespace: "shop", Kind: "Deployment", Name: "cart"}}}, true},
		{"an autoscaler of another one", Finding{Cause: AutoscalerFlapping, class: autoscalerFlapping.Class, Subject: Subject{Kind: "pod", Workload: observe.Workload{Namespace: "shop", Kind: "Deployment", Name: "stock"}}}, false},
		{"full CPUs", Finding{Cause: CPUSaturated, class: cpuSaturated.Class, Subject: Subject{Kind: "process", PID: hog}}, true},
		{"a kill elsewhere", Finding{Cause: ContainerOOMKilled, class: containerOOMKilled.Class, Subject: Subject{Kind: "process", PID: hog, Path: "/other"}}, false},
	} {
		if got := to(&c.f); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestServiceWhosePodLeft: a service that has nobody behind it when the window ends had a pod
// in it: what became of that one is why, and calls of the service are calls of it.
func TestServiceWhosePodLeft(t *testing.T) {
	o := healthy()
	p, _ := inCart(o)
	sv := &o.Kubernetes.Services[0]
	sv.Endpoints, sv.Left = nil, []string{"cart-5d9-a", "cart-unknown"}
	serves(o, 0, 0)
	callsInVain(o, cartService, 400, 0)
	event(o, 5, "Evicted", p.Name, "The node was low on resource: memory.")
	v := NewView(o)
	without, evicted := serviceWithoutEndpoints.Judge(v), nodePressureEviction.Judge(v)
	if len(without.Findings) != 1 || len(evicted.Findings) != 1 {
		t.Fatalf("%s; %s", without.RuledOut, evicted.RuledOut)
	}
	if f := &without.Findings[0]; !f.MayFollow(&evicted.Findings[0]) || !strings.Contains(evidence(f), "pod cart-5d9-a=") {
		t.Errorf("it does not follow from the eviction: %s", evidence(f))
	}
	sv.Left = nil
	if f := &serviceWithoutEndpoints.Judge(NewView(o)).Findings[0]; f.MayFollow(&evicted.Findings[0]) {
		t.Error("it follows from what became of a pod that never was behind it")
	}
}
