package server

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slowray/slowray/lab/sandbox"
)

// Pod is the pod of a Deployment that the server runs in, as its one container. What a
// kubelet does with it a stand-in does: it makes the control group, asks the liveness probe,
// ends the container and starts it again, and tells of it on the read-only port. The zero
// value is no pod.
type Pod struct {
	Deployment string
	Container  string
	CPUs       float64       // its limit; 0 = none
	Timeout    int           // s that the liveness probe waits; 0 = no probe
	RollOut    time.Duration // each so often it is asked to end, and another takes its place; 0 = never
	Grace      int           // s that it may take to end before it is killed; 0 = 30
	// Cluster says that an API server tells of it, of a service and of the node, in place of
	// the kubelet's port.
	Cluster    bool
	Unselected bool          // the service selects no pod
	Flaps      bool          // an autoscaler changes its mind: what RollOut does
	Evict      time.Duration // each so often the kubelet evicts it, and another takes its place; 0 = never
	Claim      Claim
	Deaf       bool // it ignores SIGTERM, as the child of a shell that passes no signal on seems to
}

// defaultGrace is terminationGracePeriodSeconds where it is not set, in s.
const defaultGrace = 30

func (p *Pod) grace() time.Duration {
	return time.Duration(cmp.Or(p.Grace, defaultGrace)) * time.Second
}

const (
	readOnlyPort     = 10255 // of a kubelet (KubeletConfiguration, readOnlyPort)
	probeEvery       = time.Second
	failureThreshold = 2
	podNamespace     = "shop"
	templateHash     = "6d9f7c4b58"
)

// kubelet is the stand-in.
type kubelet struct {
	s    *starter
	args []string // of the program in the container

	api *cluster // nil where there is none

	mu   sync.Mutex
	pods []*corev1.Pod // the last one is the one that serves
	jobs []*corev1.Pod // next to it
	proc *sandbox.Proc
}

// pod starts a server as the container of a pod.
func (s *starter) pod(args ...string) error {
	k := &kubelet{s: s, args: args}
	if s.v.Pod.Cluster {
		var err error
		if k.api, err = s.cluster(); err == nil {
			err = k.join()
		}
		if err != nil {
			return err
		}
	} else {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", readOnlyPort))
		if err != nil {
			return fmt.Errorf("the stand-in for a kubelet: %w", err)
		}
		s.serveUntilGone(l, k)
	}
	if err := k.disk(); err != nil {
		return err
	}
	if err := k.create(); err != nil {
		return err
	}
	if err := k.job(); err != nil {
		return err
	}
	s.soon(func() error {
		go k.keep()
		return nil
	})
	return nil
}

// serveUntilGone answers on a socket as long as the sandbox is there.
func (s *starter) serveUntilGone(l net.Listener, h http.Handler) {
	web := &http.Server{Handler: h, ReadHeaderTimeout: time.Second}
	go web.Serve(l) // until it is closed
	go func() {
		select {
		case <-s.ctx.Done():
		case <-s.box.Gone():
		}
		web.Close()
	}()
}

func (k *kubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/pods" {
		http.NotFound(w, r)
		return
	}
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
	k.mu.Lock()
	for _, p := range slices.Concat(k.jobs, k.pods) {
		list.Items = append(list.Items, *p.DeepCopy())
	}
	k.mu.Unlock()
	json.NewEncoder(w).Encode(list) // whoever asks may be gone
}

// create makes a pod and starts its container.
func (k *kubelet) create() error {
	spec, name := k.s.v.Pod, k.s.v.Pod.Deployment+"-"+templateHash
	uid, controller, now := randomHex(16), true, metav1.Now()
	c := corev1.Container{Name: spec.Container, Image: spec.Deployment + ":1"}
	if spec.CPUs > 0 {
		c.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(int64(spec.CPUs*1000), resource.DecimalSI)}
	}
	if spec.Timeout > 0 {
		c.LivenessProbe = &corev1.Probe{TimeoutSeconds: int32(spec.Timeout), PeriodSeconds: int32(probeEvery / time.Second), FailureThreshold: failureThreshold,
			ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt(k.s.v.FrontPort)}}}
	}
	addr := k.s.v.ServerAddr
	if k.api != nil {
		addr = podIP
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: podNamespace, Name: name + "-" + uid[:5], UID: types.UID(uid), CreationTimestamp: now, Labels: map[string]string{"pod-template-hash": templateHash},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: name, Controller: &controller}}},
		Spec: corev1.PodSpec{NodeName: NodeName, Containers: []corev1.Container{c}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: addr, PodIPs: []corev1.PodIP{{IP: addr}}, QOSClass: corev1.PodQOSBurstable,
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: c.Name, Image: c.Image, Ready: true}}},
	}
	if err := k.attach(p, spec.Claim.Name, spec.Claim.Path); err != nil {
		return err
	}
	k.mu.Lock()
	k.pods = append(k.pods, p)
	k.mu.Unlock()
	return k.run(p)
}

// run starts the container of a pod, in a group of its own.
func (k *kubelet) run(p *corev1.Pod) error {
	id := randomHex(32)
	groups, err := k.s.podGroups(string(p.UID), id)
	if err != nil {
		return err
	}
	out, args := filepath.Join(k.s.box.Dir, "container.out"), k.inMounts(p, k.args)
	if k.s.v.Pod.Deaf {
		args = append([]string{"env", "--ignore-signal=TERM"}, args...)
	}
	proc, err := k.s.box.Server.Start(k.s.ctx, sandbox.Spec{Args: args, Stdout: out, Stderr: out, NoFile: k.s.v.NoFile, Cgroups: groups})
	if err != nil {
		return err
	}
	began := metav1.Now()
	k.mu.Lock()
	k.proc = proc
	st := &p.Status.ContainerStatuses[0]
	st.ContainerID, st.State = "containerd://"+id, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: began}}
	k.tell()
	k.mu.Unlock()
	return k.s.box.Server.Listening(k.s.ctx, k.s.v.FrontPort)
}

// keep does what a kubelet does until the sandbox ends.
func (k *kubelet) keep() {
	spec := &k.s.v.Pod
	failed, rolled, each := 0, time.Now(), max(spec.RollOut, spec.Evict)
	for {
		select {
		case <-k.s.ctx.Done():
			return
		case <-k.s.box.Gone():
			return
		case <-time.After(probeEvery):
		}
		var err error
		switch {
		case each > 0 && time.Since(rolled) >= each:
			rolled = time.Now()
			err = k.replace()
		case spec.Timeout > 0 && k.probe() != nil:
			if failed++; failed >= failureThreshold {
				failed = 0
				err = k.restart()
			}
		default:
			failed = 0
		}
		if err != nil {
			return // the servers are gone, which is measured
		}
	}
}

// probe asks as the node does, from outside of the pod.
func (k *kubelet) probe() error {
	url := fmt.Sprintf("http://%s/healthz", net.JoinHostPort(k.s.v.ServerAddr, strconv.Itoa(k.s.v.FrontPort)))
	_, err := k.s.box.Client.Output(k.s.ctx, "curl", "--silent", "--fail", "--output", "/dev/null", "--max-time", strconv.Itoa(k.s.v.Pod.Timeout), url)
	return err
}

// end asks the container to, kills it when its time is over, and gives how it ended.
func (k *kubelet) end() (*corev1.ContainerStateTerminated, error) {
	k.mu.Lock()
	proc, p := k.proc, k.pods[len(k.pods)-1]
	st := &p.Status.ContainerStatuses[0]
	last := &corev1.ContainerStateTerminated{ExitCode: 128 + int32(syscall.SIGTERM), Reason: "Error", ContainerID: st.ContainerID, StartedAt: st.State.Running.StartedAt}
	k.mu.Unlock()
	if err := proc.Signal(k.s.ctx, syscall.SIGTERM); err != nil {
		return nil, err
	}
	killed := atomic.Bool{}
	late := time.AfterFunc(k.s.v.Pod.grace(), func() {
		killed.Store(true)
		proc.Signal(k.s.ctx, syscall.SIGKILL) // it may have ended just now
	})
	defer late.Stop()
	if _, err := proc.Wait(k.s.ctx); err != nil {
		return nil, err
	}
	if killed.Load() {
		last.ExitCode = 128 + int32(syscall.SIGKILL)
	}
	last.FinishedAt = metav1.Now()
	return last, nil
}

// restart ends the container and starts it again.
func (k *kubelet) restart() error {
	last, err := k.end()
	if err != nil {
		return err
	}
	k.mu.Lock()
	p := k.pods[len(k.pods)-1]
	st := &p.Status.ContainerStatuses[0]
	st.RestartCount++
	st.LastTerminationState.Terminated = last
	k.mu.Unlock()
	return k.run(p)
}

// replace ends the pod, and has another take its place.
func (k *kubelet) replace() error {
	grace := int64(k.s.v.Pod.grace() / time.Second)
	by := metav1.NewTime(time.Now().Add(k.s.v.Pod.grace()))
	k.mu.Lock()
	p := k.pods[len(k.pods)-1]
	if k.s.v.Pod.Evict > 0 {
		k.event("evicted-"+p.Name, "Pod", p.Name, "Evicted", "The node was low on resource: memory.", time.Now())
		p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted"
	} else {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &by, &grace
	}
	k.tell()
	k.mu.Unlock()
	last, err := k.end()
	if err != nil {
		return err
	}
	k.mu.Lock()
	st := &p.Status.ContainerStatuses[0]
	st.State, st.Ready = corev1.ContainerState{Terminated: last}, false
	k.tell()
	k.mu.Unlock()
	return k.create()
}

// podGroups makes the control groups of a container, as a kubelet with the driver cgroupfs
// names them.
func (s *starter) podGroups(uid, id string) ([]string, error) {
	group, err := s.box.CgroupName(s.ctx)
	if err != nil {
		return nil, err
	}
	way := filepath.Join(group, "kubepods", "burstable", "pod"+uid, id)
	quota := strconv.Itoa(int(s.v.Pod.CPUs * 100_000))
	var dirs []string
	for _, controller := range []string{"cpu", "memory", "pids"} {
		root := filepath.Join("/sys/fs/cgroup", controller)
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
			continue
		}
		dir := filepath.Join(root, way)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		if controller == "cpu" && s.v.Pod.CPUs > 0 {
			if err := os.WriteFile(filepath.Join(dir, "cpu.cfs_quota_us"), []byte(quota), 0); err != nil {
				return nil, err
			}
		}
		dirs = append(dirs, dir)
	}
	if len(dirs) > 0 {
		return dirs, nil
	}
	at := "/sys/fs/cgroup" // version 2
	for part := range strings.SplitSeq(strings.Trim(way, "/"), "/") {
		if err := os.WriteFile(filepath.Join(at, "cgroup.subtree_control"), []byte("+cpu +memory +pids"), 0); err != nil {
			return nil, err
		}
		at = filepath.Join(at, part)
		if err := os.MkdirAll(at, 0o755); err != nil {
			return nil, err
		}
	}
	if s.v.Pod.CPUs > 0 {
		err = os.WriteFile(filepath.Join(at, "cpu.max"), []byte(quota+" 100000"), 0)
	}
	return []string{at}, err
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
