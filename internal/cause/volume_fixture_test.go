package cause

import (
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

const (
	backupUID, backupID = "9a8b7c6d-0000-4000-8000-112233445566", "bb22cc33dd44"
	kubeletPods         = "/var/lib/kubelet/pods/"
)

// onClaim is a chain whose last hop waits for a file of a volume of cart.
func onClaim(c observe.WaitChain, m observe.WaitMount) observe.WaitChain {
	c.Hops = append([]observe.WaitHop{}, c.Hops...)
	h := &c.Hops[len(c.Hops)-1]
	h.Mount, h.Process.Container = &m, cartID
	c.Path = m.Dir
	return c
}

// fastClaim is the mount of a claim that a container storage driver attached as a disk.
func fastClaim() observe.WaitMount {
	return observe.WaitMount{Dir: "/data", Root: "/", Type: "ext4", Source: "/dev/vdb", Device: "254:16", Store: "254:16", Kubelet: kubeletPods + cartUID + "/volumes/kubernetes.io~csi/pvc-7f3a/mount"}
}

// inPods has nginx be the app of cart, which has a claim, on a node where another pod, nightly's,
// runs the backup.
func inPods(o *observe.Observation) {
	at := *o
	p, _ := inCart(&at) // of the app itself nothing is needed
	p.Volumes = []observe.PodVolume{
		{Name: "data", Kind: "persistentVolumeClaim", Claim: "data-cart-0", Volume: "pvc-7f3a", Class: "fast", Container: "app", Path: "/data", Device: "254:16", Store: "254:16"},
		{Name: "scratch", Kind: "emptyDir", Container: "app", Path: "/scratch/", Device: "254:0", Store: "254:0"},
		{Name: "share", Kind: "persistentVolumeClaim", Claim: "share", Volume: "pv-share", Container: "app", Path: "/share", Device: "0:52", Store: "10.0.0.5"},
	}
	o.Kubernetes = at.Kubernetes
	o.Kubernetes.Pods = append(o.Kubernetes.Pods, observe.Pod{UID: backupUID, Namespace: "ops", Name: "nightly-1-x", Kind: "CronJob", Owner: "nightly",
		Containers: []observe.PodContainer{{Name: "tar", ID: backupID, State: "running"}}})
	for _, pid := range []int{nginxMaster, nginxWorker1, nginxWorker2} {
		q := process(o, pid)
		q.Container, q.Cgroup = cartID, cartGroup
	}
	q := process(o, hog)
	q.Container, q.Cgroup = backupID, "/kubepods/besteffort/pod"+backupUID+"/"+backupID
	o.Use.Disks = append(o.Use.Disks, observe.Disk{Name: "vdb", Number: "254:16", Writes: 900, WriteBytes: 900 << 20, WriteSeconds: 90, BusySeconds: 9.9})
	o.Use.Disks[0].Number = "254:0"
}

// noisy has the backup move most of what is read and written on the claim's disk.
func noisy(o *observe.Observation) {
	process(o, hog).WriteBytes, process(o, hog).Stores = 800<<20, []string{"254:16"}
	process(o, nginxWorker1).WriteBytes, process(o, nginxWorker1).Stores = 100<<20, []string{"254:16"}
}

// waitsOn is slow requests of nginx that wait for a file.
func waitsOn(c observe.WaitChain, m observe.WaitMount) func(*observe.Observation) {
	return stuck(stuckWeb(10), waitShare(nginxMaster, 40_000*ms, 9, onClaim(c, m)))
}

var nfsChain = func() observe.WaitChain {
	c := diskChain
	c.Hops = append([]observe.WaitHop{}, c.Hops...)
	c.Hops[0].Inside, c.Hops[0].Object = observe.InsideNetworkFS, "fd 5 → /share/a (nfs4 on 10.0.0.5:/export)"
	return c
}()

func shared() observe.WaitMount {
	return observe.WaitMount{Dir: "/share", Root: "/", Type: "nfs4", Source: "10.0.0.5:/export", Device: "0:52", Store: "10.0.0.5"}
}

var _ = fixturePair(
	fires{
		name: "a slow claim of a pod", cause: &blockedOnDisk,
		inject:  inTurn(waitsOn(diskChain, fastClaim()), inPods),
		subject: Subject{Kind: "process", PID: nginxMaster, Path: "/data"}, minShare: 0.7, fix: "kubectl -n shop describe pvc data-cart-0",
		evidence: "disk of these files, vdb=0.99;a write on vdb takes, mean=100;volume of deploy/cart (ns shop), container app=PersistentVolumeClaim data-cart-0, StorageClass fast, PersistentVolume pvc-7f3a;it is mounted at /data=ext4 on /dev/vdb",
	},
	miss{"a claim that is written all the time, and no request waits for it", &blockedOnDisk, inTurn(background(onClaim(diskChain, fastClaim())), inPods, noisy), "not while one of its 20 slow requests"},
)

var _ = fixturePair(
	fires{
		name: "a pod that keeps the disk of another's claim busy", cause: &fsyncBound,
		inject:  inTurn(waitsOn(fsyncChain, fastClaim()), inPods, noisy),
		subject: Subject{PID: nginxMaster, Path: "/data"}, minShare: 0.7, fix: "cronjob/nightly (ns ops), container tar does most of the I/O there, and no field of a pod manifest limits that. Run it at another time (spec.schedule). Keep the two on different nodes: spec.jobTemplate.spec.template.spec.affinity.podAntiAffinity, or a taint.",
		evidence: "read and written there by cronjob/nightly (ns ops), container tar=800;its pod=ops/nightly-1-x: backup (pid 300)",
	},
)

var _ = fixturePair(
	fires{
		name: "a claim on a server", cause: &nfsStalled,
		inject:  inTurn(waitsOn(nfsChain, shared()), inPods),
		subject: Subject{PID: nginxMaster}, minShare: 0.7, fix: "which 10.0.0.5 serves", evidence: "volume of deploy/cart (ns shop), container app=PersistentVolumeClaim share, PersistentVolume pv-share;it is mounted at /share=nfs4 on 10.0.0.5:/export",
	},
)

var _ = fixturePair(
	fires{
		name: "a disk that another pod keeps busy", cause: &diskSaturated,
		inject: inTurn(quiet(fpmServed().add(100, ms/10, ms/20, 0, parts{observe.Server: 50 * ms})), backedUp, inPods, func(o *observe.Observation) {
			process(o, hog).Stores = []string{"254:0"}
			o.Use.Disks[1].BusySeconds = 1
		}),
		subject: Subject{Kind: "disk", Path: "/dev/vda"}, minShare: 0.9, fix: "kubectl -n ops get pod nightly-1-x -o wide",
		evidence: "most bytes=backup (pid 300) of cronjob/nightly (ns ops), container tar 700 MB;read and written there by cronjob/nightly (ns ops), container tar=700",
	},
	miss{"a disk that another pod fills while requests are quick", &diskSaturated, inTurn(quiet(fpmServed().add(5000, ms/10, ms/20, 0, quick)), backedUp, inPods), "no request is slow for that"},
)

// TestVolumes: a volume is known by where the container mounts it, else by where the kubelet
// did, and the advice is that for its kind.
func TestVolumes(t *testing.T) {
	const layer = "mount a volume for them"
	for _, c := range []struct {
		name   string
		mount  func(*observe.WaitMount)
		change func(*observe.Observation)
		title  string
		value  string // of the evidence about the volume
		fix    string
	}{
		{"a claim", func(*observe.WaitMount) {}, nil, "Requests wait for PersistentVolumeClaim data-cart-0", "PersistentVolumeClaim data-cart-0, StorageClass fast, PersistentVolume pvc-7f3a",
			"(spec.template.spec.volumes[name=data].persistentVolumeClaim.claimName). Have it give more IOPS"},
		{"one of a StatefulSet", func(*observe.WaitMount) {}, func(o *observe.Observation) {
			p := &o.Kubernetes.Pods[0]
			p.Kind, p.Name, p.Volumes[0].Claim = "StatefulSet", "cart-0", "data-cart-0"
		}, "Requests wait for PersistentVolumeClaim data-cart-0", "PersistentVolumeClaim data-cart-0, StorageClass fast, PersistentVolume pvc-7f3a", "(spec.volumeClaimTemplates[metadata.name=data].spec.storageClassName)"},
		{"one whose container is not told", func(*observe.WaitMount) {}, func(o *observe.Observation) { o.Kubernetes.Pods[0].Containers[0].ID = "" },
			"Requests wait for PersistentVolumeClaim data-cart-0", "PersistentVolumeClaim data-cart-0, StorageClass fast, PersistentVolume pvc-7f3a", "kubectl describe pv pvc-7f3a"},
		{"of a pod of which only its runtime tells", func(*observe.WaitMount) {}, func(o *observe.Observation) { o.Kubernetes.Pods[0].Volumes = nil },
			"", "PersistentVolume pvc-7f3a", "kubectl describe pv pvc-7f3a"},
		{"an emptyDir", func(m *observe.WaitMount) {
			m.Dir, m.Store, m.Kubelet = "/scratch", "254:0", kubeletPods+cartUID+"/volumes/kubernetes.io~empty-dir/scratch"
		}, nil, "", "emptyDir scratch", "emptyDir.medium: Memory"},
		{"one of which only its runtime tells", func(m *observe.WaitMount) {
			m.Dir, m.Store, m.Kubelet = "/scratch", "254:0", kubeletPods+cartUID+"/volumes/kubernetes.io~empty-dir/scratch"
		}, func(o *observe.Observation) { o.Kubernetes.Pods[0].Volumes = nil }, "", "emptyDir scratch", "kubectl -n shop describe pod cart-5d9-a"},
		{"the container's own layer", func(m *observe.WaitMount) {
			*m = observe.WaitMount{Dir: "/", Root: "/", Type: "overlay", Source: "overlay", Device: "0:60", Store: "254:0"}
		}, nil, "", "none: the container's own layer", layer},
		{"a place that is no volume", func(m *observe.WaitMount) {
			*m = observe.WaitMount{Dir: "/etc/hosts", Root: "/x", Type: "ext4", Source: "/dev/vda", Device: "254:0", Store: "254:0"}
		}, nil, "", "", "iostat"},
		{"a block device", func(m *observe.WaitMount) {
			*m = observe.WaitMount{Dir: "/dev", Root: "/", Type: "tmpfs", Source: "tmpfs", Device: "0:61"}
		}, func(o *observe.Observation) {
			v := &o.Kubernetes.Pods[0].Volumes[0]
			v.Block, v.Path = true, "/dev/xvda"
			o.Waits.Shares[0].Chain.Hops[0].Object = "fd 5 → /dev/xvda (tmpfs on tmpfs)"
		}, "Requests wait for PersistentVolumeClaim data-cart-0", "PersistentVolumeClaim data-cart-0, StorageClass fast, PersistentVolume pvc-7f3a", "describe pvc data-cart-0"},
		{"a claim in user space", func(m *observe.WaitMount) { m.Type, m.Source = "fuse.juicefs", "JuiceFS:data" }, nil, "Requests wait for PersistentVolumeClaim data-cart-0",
			"PersistentVolumeClaim data-cart-0, StorageClass fast, PersistentVolume pvc-7f3a", "a file system in user space"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := fastClaim()
			c.mount(&m)
			o := healthy()
			inTurn(waitsOn(diskChain, m), inPods)(o)
			if c.change != nil {
				c.change(o)
			}
			r := blockedOnDisk.Judge(NewView(o))
			if len(r.Findings) != 1 {
				t.Fatal(r.RuledOut)
			}
			f := &r.Findings[0]
			if f.Title != c.title && (c.title != "" || strings.Contains(f.Title, "PersistentVolumeClaim")) {
				t.Errorf("title %q, want %q", f.Title, c.title)
			}
			if got := evidence(f); (c.value == "") == strings.Contains(got, "volume of ") || !strings.Contains(got, c.value) {
				t.Errorf("evidence %s, want %s", got, c.value)
			}
			text := f.Fix.Text
			for _, command := range f.Fix.Commands {
				text += "\n" + command.String()
			}
			if !strings.Contains(text, c.fix) {
				t.Errorf("fix %s, want %s", text, c.fix)
			}
		})
	}
}

// TestNoNeighbour: who writes most is not blamed when it is the pod whose requests wait, when
// it writes elsewhere, when it writes little, or when the disk is not busy.
func TestNoNeighbour(t *testing.T) {
	for name, change := range map[string]func(o *observe.Observation){
		"it does":         nil,
		"the same pod":    func(o *observe.Observation) { process(o, hog).Container, process(o, hog).Cgroup = cartID, cartGroup },
		"in no pod":       func(o *observe.Observation) { process(o, hog).Container, process(o, hog).Cgroup = "", "/user.slice" },
		"on another disk": func(o *observe.Observation) { process(o, hog).Stores = []string{"254:0"} },
		"mostly on another disk": func(o *observe.Observation) {
			process(o, hog).Stores = []string{"254:0", "254:16"}
			o.Use.Disks[1].WriteBytes = 110 << 20
		},
		"nobody knows where": func(o *observe.Observation) { process(o, hog).Stores = nil },
		"others may have": func(o *observe.Observation) {
			process(o, fpmMaster).WriteBytes, process(o, fpmMaster).Stores = 900<<20, nil
		},
		"on both, and others may have": func(o *observe.Observation) {
			process(o, hog).Stores = []string{"254:0", "254:16"}
			process(o, fpmMaster).WriteBytes, process(o, fpmMaster).Stores = 500<<20, nil
		},
		"less than who waits": func(o *observe.Observation) { process(o, nginxWorker1).WriteBytes = 900 << 20 },
		"a few writes": func(o *observe.Observation) {
			process(o, hog).WriteBytes, process(o, nginxWorker1).WriteBytes = 1<<20, 0
		},
		"a disk that others use":     func(o *observe.Observation) { o.Use.Disks[1].ReadBytes = 4 << 30 },
		"a disk that is slow itself": func(o *observe.Observation) { o.Use.Disks[1].BusySeconds = 2 },
		"an unknown disk":            func(o *observe.Observation) { o.Waits.Shares[0].Chain.Hops[0].Mount.Store = "" },
	} {
		o := healthy()
		inTurn(waitsOn(diskChain, fastClaim()), inPods, noisy)(o)
		if change != nil {
			change(o)
		}
		r := blockedOnDisk.Judge(NewView(o))
		if len(r.Findings) != 1 {
			t.Fatal(name, r.RuledOut)
		}
		f := &r.Findings[0]
		if named := strings.Contains(f.Fix.Text, "does most of the I/O there"); named != (change == nil) {
			t.Errorf("%s: the other pod is named: %v: %s", name, named, evidence(f))
		}
		if !strings.Contains(f.Title, "data-cart-0") {
			t.Errorf("%s: the claim is not named: %q", name, f.Title)
		}
	}
	// Of a server nothing tells how much of the bytes went there.
	for name, stores := range map[string][]string{"only there": {"10.0.0.5"}, "elsewhere, too": {"10.0.0.5", "254:0"}, "nobody knows": nil} {
		o := healthy()
		inTurn(waitsOn(nfsChain, shared()), inPods, noisy)(o)
		process(o, nginxWorker1).Stores, process(o, hog).Stores = []string{"10.0.0.5"}, stores
		r := nfsStalled.Judge(NewView(o))
		if len(r.Findings) != 1 {
			t.Fatal(name, r.RuledOut)
		}
		if named := strings.Contains(r.Findings[0].Fix.Text, "cronjob/nightly"); named != (name == "only there") {
			t.Errorf("files open on a server, %s: the other pod is named: %v", name, named)
		}
	}
	// A job that has ended is known by the volumes of its pod.
	o := healthy()
	inTurn(waitsOn(diskChain, fastClaim()), inPods, noisy)(o)
	process(o, hog).Stores, process(o, hog).EndedIn = nil, true
	o.Kubernetes.Pods[2].Volumes = []observe.PodVolume{{Name: "to", Kind: "persistentVolumeClaim", Claim: "backups", Container: "tar", Path: "/to", Store: "254:16"}}
	if f := blockedOnDisk.Judge(NewView(o)).Findings; len(f) != 1 || !strings.Contains(f[0].Fix.Text, "cronjob/nightly") {
		t.Errorf("a job that ended: %+v", f)
	}
}

// TestSamePathInTwoPods: two pods may each have a volume at one path, and are two findings.
func TestSamePathInTwoPods(t *testing.T) {
	other := fastClaim()
	other.Device, other.Store, other.Kubelet = "254:32", "254:32", ""
	second := waitShare(fpmMaster, 40_000*ms, 9, onClaim(ends(observe.EndDisk, "waits for the disk (io_schedule)", hop(fpmChild1, fpmChild1, observe.WaitDisk, "", "pread64", "fd 5 → /data/a")), other))
	g := stuckWeb(10)
	g.Slow = append(g.Slow, observe.SlowTime{PID: fpmMaster, Requests: 10, NS: 50_000 * ms, LongestNS: 6000 * ms})
	o := healthy()
	stuck(g, waitShare(nginxMaster, 40_000*ms, 9, onClaim(diskChain, fastClaim())), second)(o)
	if r := blockedOnDisk.Judge(NewView(o)); len(r.Findings) != 2 {
		t.Errorf("%d findings (%s)", len(r.Findings), r.RuledOut)
	}
}

// TestNoisyInCPUAndMemory: the pod is named that takes the CPUs, or the memory, from another.
func TestNoisyInCPUAndMemory(t *testing.T) {
	o := healthy()
	inPods(o)
	inTurn(quiet(fpmServed().add(100, ms/10, ms/20, 0, parts{observe.Server: 50 * ms})), pressed)(o)
	process(o, hog).RSSBytes = 20 << 30
	r := memoryPressure.Judge(NewView(o))
	if len(r.Findings) != 1 {
		t.Fatal(r.RuledOut)
	}
	f := &r.Findings[0]
	if got := evidence(f) + f.Fix.Text; !strings.Contains(got, "memory limit of cronjob/nightly (ns ops), container tar=none") || !strings.Contains(got, "spec.jobTemplate.spec.template.spec.containers[name=tar].resources.limits.memory") {
		t.Error(got)
	}
	o.Kubernetes.Pods[2].Containers[0].MemoryLimit = 24 << 30
	if got := memoryPressure.Judge(NewView(o)).Findings[0].Fix.Text; strings.Contains(got, "limit its memory") || !strings.Contains(got, "[name=tar].resources.requests.memory") {
		t.Errorf("a limit is set: %s", got)
	}
	for name, change := range map[string]func(){"small": func() { process(o, hog).RSSBytes = o.Use.Memory.TotalBytes / 6 }, "slowray": func() { process(o, hog).RSSBytes, o.Self = 20<<30, hog }} {
		for i := range o.Processes {
			o.Processes[i].RSSBytes = 0
		}
		change()
		if f := memoryPressure.Judge(NewView(o)).Findings; len(f) != 1 || strings.Contains(f[0].Fix.Text, "largest process") {
			t.Errorf("%s: %+v", name, f)
		}
	}
	o.Self, process(o, hog).RSSBytes = 0, 20<<30
	process(o, hog).Container, process(o, hog).Cgroup = cartID, cartGroup
	for _, pid := range []int{fpmMaster, fpmChild1, fpmChild2} { // of the pod that suffers
		process(o, pid).Container, process(o, pid).Cgroup = cartID, cartGroup
	}
	if f := memoryPressure.Judge(NewView(o)).Findings; len(f) != 1 || strings.Contains(evidence(&f[0])+f[0].Fix.Text, "largest process") {
		t.Errorf("its own pod: %+v", f)
	}
	if got := evidence(&cpuSaturated.Judge(NewView(greedy())).Findings[0]); !strings.Contains(got, "CPU request of cronjob/nightly (ns ops), container tar=none") || !strings.Contains(got, "the greediest=backup (pid 300) of cronjob/nightly (ns ops), container tar") {
		t.Error(got)
	}
}

func greedy() *observe.Observation {
	o := healthy()
	inPods(o)
	process(o, hog).UserSeconds = 14
	return o
}

// TestUsersOfMappedDisk: of a mapped device and the disks under it the numbers differ.
func TestUsersOfMappedDisk(t *testing.T) {
	o := healthy()
	inPods(o)
	process(o, hog).WriteBytes, process(o, hog).Stores = 800<<20, []string{"254:0"}
	if got := NewView(o).diskUsers("253:3"); !strings.HasPrefix(got, "backup (pid 300)") {
		t.Errorf("a disk that nobody is known to use: %q", got)
	}
	process(o, nginxWorker1).Stores = []string{"253:3"}
	if got := NewView(o).diskUsers("253:3"); got != "" {
		t.Errorf("a disk that another process uses: %q", got)
	}
	if got := NewView(o).diskUsers("10.0.0.5"); got != "" {
		t.Errorf("a server: %q", got)
	}
}

// TestMostOfOthers: a pod is named only where it has most of what others take.
func TestMostOfOthers(t *testing.T) {
	o := greedy()
	if v := NewView(o); !v.takesMost(v.podOfProcess(hog).pod) {
		t.Error("the only other one")
	}
	for pid := 9001; pid < 9004; pid++ {
		o.Processes = append(o.Processes, observe.Process{PID: pid, PPID: 1, Comm: "batch", UserSeconds: 10})
	}
	if v := NewView(o); v.takesMost(v.podOfProcess(hog).pod) {
		t.Error("one of several others")
	}
}
