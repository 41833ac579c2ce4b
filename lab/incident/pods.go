package incident

import (
	"fmt"
	"time"

	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/server"
)

// pods is services in pods of a node whose kubelet is a stand-in, and of some the API server too:
// only that tells of services, autoscalers and events.
func pods() []Incident {
	in := func(code string, pod server.Pod) func() server.Setup {
		pod.Deployment, pod.Container = "cart", "app"
		return on(errand(code), func(s *server.Setup) { s.Pod = pod })
	}
	// Who begins reads its caches first, as most do: what an end costs is good answers.
	const (
		computes = "def request(n):\n    sum(range(1_200_000))\n"
		waits    = "def begin():\n    time.sleep(2)\ndef request(n):\n    time.sleep(random.uniform(1.1, 1.8))\n"
		looksUp  = "def begin():\n    global fares\n    fares = os.open(FARES, os.O_RDONLY | os.O_DIRECT)\n" +
			"def request(n):\n    page = mmap.mmap(-1, 4096)\n    os.preadv(fares, [page], random.randrange(24_000) * 4096)\n"
		idles = "def request(n):\n    pass\n"
		brief = "def begin():\n    time.sleep(1)\ndef request(n):\n    time.sleep(0.2)\n"
	)
	// A request reads a page of a file that is on the claim, and not in memory.
	at := func(dir string) string { return fmt.Sprintf("FARES = %q\n", dir+"/"+server.ClaimFile) + looksUp }
	return []Incident{{
		Name:    "pod-slow-claim",
		Summary: "a request reads a page from a PersistentVolumeClaim, whose disk reads little in a second",
		Setup:   in(at("/srv"), server.Pod{Cluster: true, Claim: server.Claim{Name: "fares", Plugin: "csi", Path: "/srv"}}),
		Load:    load.Load{Conns: 8, Think: 20 * time.Millisecond},
		Quick:   true,
		Faults: []Fault{{Name: "disk", Cause: "disk-saturated", Or: []string{"blocked-on-disk"}, Says: "StorageClass shared-disk", Alongside: []string{"blocked-on-disk"},
			Text: "a disk that reads 150 kB in a second", Inject: func(s *server.Setup) { s.Pod.Claim.Rate = 150_000 }}},
	}, {
		Name:    "pod-noisy-disk",
		Summary: "a request reads a page from a local volume, while a pod of a CronJob reads all of its disk",
		Setup:   in(at("/mnt"), server.Pod{Claim: server.Claim{Name: "fares", Plugin: "local-volume", Path: "/mnt", Rate: 4_000_000}}),
		Load:    load.Load{Conns: 4, Think: 40 * time.Millisecond},
		Quick:   true,
		Faults: []Fault{{Name: "job", Cause: "disk-saturated", Or: []string{"blocked-on-disk"}, Says: "spec.jobTemplate.spec.template.spec.affinity.podAntiAffinity", Alongside: []string{"blocked-on-disk"},
			Text: "a CronJob that reads the same disk", Inject: func(s *server.Setup) { s.Pod.Claim.Job = true }}},
	}, {
		Name:    "pod-busy-claim",
		Summary: "a pod of a CronJob keeps the disk of a PersistentVolumeClaim busy, and requests need nothing of it",
		Setup:   in(idles, server.Pod{Cluster: true, Claim: server.Claim{Name: "fares", Plugin: "csi", Path: "/srv", Rate: 4_000_000, Job: true}}),
		Load:    load.Load{Conns: 4, Think: 40 * time.Millisecond},
		Quick:   true, Control: true,
	}, {
		Name:    "pod-cpu-limit",
		Summary: "a service computes for each request, and the CPU limit of its container throttles it",
		Setup:   in(computes, server.Pod{}),
		Load:    load.Load{Conns: 4, Think: 40 * time.Millisecond},
		Faults: []Fault{{Name: "limit", Cause: "cpu-quota-throttled", Says: "spec.template.spec.containers[name=app].resources.limits.cpu",
			Text: "resources.limits.cpu: 200m", Inject: func(s *server.Setup) { s.Pod.CPUs = 0.2 }}},
	}, {
		Name:    "pod-cpu-limit-probe",
		Summary: "the CPU limit of a container makes it answer so late that its liveness probe kills it",
		Setup:   in(computes, server.Pod{Timeout: 1}),
		Load:    load.Load{Conns: 16, Think: 40 * time.Millisecond},
		Faults: []Fault{{Name: "limit", Cause: "cpu-quota-throttled", Says: "kubectl -n shop set resources deployment/cart -c app --limits=cpu=",
			Alongside: []string{"slow-start-on-quota", "liveness-probe-kills"},
			Text:      "resources.limits.cpu: 100m, with a liveness probe of 1 s", Inject: func(s *server.Setup) { s.Pod.CPUs = 0.1 }}},
	}, {
		Name:    "liveness-probe-kills",
		Summary: "requests take 1.1 to 1.8 s, and the liveness probe waits 1 s: the kubelet ends the container again and again",
		Setup:   in(waits, server.Pod{Timeout: 5}),
		Load:    load.Load{Conns: 20, Think: 20 * time.Millisecond},
		Faults: []Fault{{Name: "probe", Cause: "liveness-probe-kills", Alongside: []string{"application-sleep", "request-waves"}, Says: "livenessProbe.timeoutSeconds",
			Text: "livenessProbe.timeoutSeconds: 1", Inject: func(s *server.Setup) { s.Pod.Timeout = 1 }}},
	}, {
		Name:    "terminated-before-drain",
		Summary: "a pod after the other is replaced, and each ends with requests in hand",
		Setup:   in(brief, server.Pod{}),
		Load:    load.Load{Conns: 20, Think: 20 * time.Millisecond},
		Faults: []Fault{{Name: "roll-out", Cause: "terminated-before-drain", Alongside: []string{"application-sleep"}, Says: "preStop",
			Text: "a roll-out every two seconds, without a preStop hook", Inject: func(s *server.Setup) { s.Pod.RollOut = 2 * time.Second }}},
	}, {
		Name:    "terminated-deaf",
		Summary: "a pod after the other is replaced, ignores SIGTERM, and is killed with requests in hand",
		Setup:   in(brief, server.Pod{Cluster: true, Grace: 1, Deaf: true}),
		Load:    load.Load{Conns: 20, Think: 20 * time.Millisecond},
		Faults: []Fault{{Name: "roll-out", Cause: "terminated-before-drain", Alongside: []string{"application-sleep"}, Says: "It goes on after SIGTERM until it is killed",
			Text: "a roll-out every two seconds of an app that ignores SIGTERM", Inject: func(s *server.Setup) { s.Pod.RollOut = 2 * time.Second }}},
	}, {
		Name:    "service-without-endpoints",
		Summary: "a service selects no pod, and kube-proxy rejects what goes to its address",
		Setup:   in(brief, server.Pod{Cluster: true}),
		Load:    load.Load{Conns: 20, Think: 20 * time.Millisecond},
		Faults: []Fault{{Name: "selector", Cause: "service-without-endpoints", AtClients: true, Alongside: []string{"firewall-reject"}, Says: "kubernetes.io/service-name=cart",
			Text: "a selector that no pod matches", Inject: func(s *server.Setup) { s.Pod.Unselected = true }}},
	}, {
		Name:    "autoscaler-flapping",
		Summary: "an autoscaler adds a pod and removes one again and again, with requests in hand",
		Setup:   in(brief, server.Pod{Cluster: true}),
		Load:    load.Load{Conns: 20, Think: 20 * time.Millisecond},
		Faults: []Fault{{Name: "autoscaler", Cause: "autoscaler-flapping", Alongside: []string{"terminated-before-drain", "application-sleep"}, Says: "stabilizationWindowSeconds",
			Text: "behavior.scaleDown.stabilizationWindowSeconds: 0", Inject: func(s *server.Setup) { s.Pod.Flaps, s.Pod.RollOut = true, 2*time.Second }}},
	}, {
		Name:    "node-pressure-eviction",
		Summary: "the kubelet evicts a pod after the other because memory runs out",
		Setup:   in(brief, server.Pod{Cluster: true}),
		Load:    load.Load{Conns: 20, Think: 20 * time.Millisecond},
		Faults: []Fault{{Name: "pressure", Cause: "node-pressure-eviction", Alongside: []string{"application-sleep"}, Says: "Request what the pods use",
			Text: "MemoryPressure, and an eviction every two seconds", Inject: func(s *server.Setup) { s.Pod.Evict = 2 * time.Second }}},
	}}
}
