package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/kube/owner"
	"github.com/slowray/slowray/internal/sense/workload"
)

// sockets are where runtimes speak CRI: containerd, CRI-O, k3s and RKE2, k0s, MicroK8s, and
// Docker by cri-dockerd. None goes through /var/run: of another root that link leads here.
var sockets = []string{"/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/k3s/containerd/containerd.sock", "/run/k0s/containerd.sock",
	"/var/snap/microk8s/common/run/containerd.sock", "/run/cri-dockerd.sock"}

const (
	criTimeout = 2 * time.Second // for one answer, and for those about images together
	criBytes   = 16 << 20        // of one answer
	criNew     = 512             // sandboxes that are asked for their addresses in one look, and containers for their images
	imageAgain = time.Minute     // until a container is asked again whose image was not told
)

// Labels that the kubelet gives to what it makes (pkg/kubelet/types/labels.go).
const (
	labelPodName       = "io.kubernetes.pod.name"
	labelPodNamespace  = "io.kubernetes.pod.namespace"
	labelPodUID        = "io.kubernetes.pod.uid"
	labelContainerName = "io.kubernetes.container.name"
)

// cri asks a container runtime (k8s.io/cri-api, runtime.v1).
type cri struct {
	state *state
	// asked are the sockets that are there, in the order of sockets: Docker has a containerd
	// of its own, next to that of the kubelet, which speaks no CRI or knows no pod.
	asked []criSocket

	looking   sync.Mutex // of one look at a time, and of what follows
	sandboxes map[string]sandbox
	images    map[string]string    // beginning of the digest, by container
	untold    map[string]time.Time // when a container's image was asked for in vain
	pods      map[string]*pod
	known     time.Time // of the last answer

	mu  sync.Mutex
	at  int // which of asked has the pods
	err error
}

type criSocket struct {
	path string
	conn *grpc.ClientConn
}

// sandbox is what does not change of one.
type sandbox struct {
	addrs []string
	host  bool // its network is the node's
}

// findCRI finds the sockets of runtimes; nil when there is none. Only root's are asked.
func findCRI(root string, s *state) *cri {
	c := &cri{state: s, sandboxes: map[string]sandbox{}, images: map[string]string{}, untold: map[string]time.Time{}}
	for _, path := range sockets {
		for _, at := range []string{root, "/proc/1/root"} {
			st, err := os.Stat(at + path)
			if err != nil || st.Mode()&os.ModeSocket == 0 {
				continue
			}
			if sys, ok := st.Sys().(*syscall.Stat_t); !ok || sys.Uid != 0 && int(sys.Uid) != os.Getuid() {
				continue
			}
			conn, err := grpc.NewClient("unix://"+at+path, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableServiceConfig(),
				grpc.WithIdleTimeout(time.Minute), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(criBytes)))
			if err == nil {
				c.asked = append(c.asked, criSocket{path, conn})
				break // the other one is the same, or another root's
			}
		}
	}
	if len(c.asked) == 0 {
		return nil
	}
	return c
}

func (c *cri) close() {
	if c == nil {
		return
	}
	for _, s := range c.asked {
		_ = s.conn.Close() // it was only read from
	}
}

// look asks which sandboxes and containers there are, and says how many pods.
func (c *cri) look(ctx context.Context) (int, error) {
	c.looking.Lock()
	defer c.looking.Unlock()
	now := time.Now()
	at, pods, running, err := c.first(ctx)
	c.mu.Lock()
	c.at, c.err = at, err
	c.mu.Unlock()
	if err != nil {
		return 0, err
	}
	c.state.listed(workload.CRI, c.pods, pods, c.known, now)
	c.pods, c.known = pods, now
	c.state.index.Horizon(workload.CRI, now.Add(lease).UnixNano())
	c.askImages(ctx, running, now) // for which no address has to wait
	return len(pods), nil
}

// first asks the runtime that had the pods, and the others only where it has none: one that
// is away for a moment is not given up for one without any.
func (c *cri) first(ctx context.Context) (at int, pods map[string]*pod, running []criContainer, err error) {
	at = c.at
	pods, running, err = c.list(ctx, c.asked[at].conn)
	for i := range c.asked {
		if len(pods) > 0 || i == at {
			continue
		}
		if more, run, why := c.list(ctx, c.asked[i].conn); len(more) > 0 || why == nil && errors.Is(err, errNoCRI) {
			at, pods, running, err = i, more, run, why
		}
	}
	return at, pods, running, err
}

// criContainer is one that runs.
type criContainer struct {
	id  string // as a whole
	pod *pod
	at  int // in its Containers
}

func (c *cri) list(ctx context.Context, conn *grpc.ClientConn) (pods map[string]*pod, running []criContainer, err error) {
	client := runtimeapi.NewRuntimeServiceClient(conn)
	asked, cancel := context.WithTimeout(ctx, criTimeout)
	defer cancel()
	boxes, err := client.ListPodSandbox(asked, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, nil, told(err)
	}
	list, err := client.ListContainers(asked, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, nil, told(err)
	}
	in, there := map[string]*pod{}, map[string]bool{}
	pods = map[string]*pod{}
	fresh := 0
	for _, b := range boxes.Items {
		uid := b.Labels[labelPodUID]
		if uid == "" || len(pods) >= maxPods {
			continue
		}
		there[b.Id] = true
		if _, known := c.sandboxes[b.Id]; !known && fresh < criNew && b.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			fresh++
			if box, err := c.sandbox(ctx, client, b.Id); err == nil {
				c.sandboxes[b.Id] = box
			}
		}
		created := time.Unix(0, b.CreatedAt)
		p := pods[uid]
		if p == nil {
			p = &pod{}
			p.UID, p.Namespace, p.Name = clip(uid), clip(b.Labels[labelPodNamespace]), clip(b.Labels[labelPodName])
			kind, name := owner.ByLabels(b.Labels[labelPodName], b.Labels, created)
			p.Kind, p.Owner = clip(kind), clip(name)
			p.CreatedAt, p.Phase = secondsOf(created), "Succeeded"
			pods[uid] = p
		}
		in[b.Id] = p
		if b.State != runtimeapi.PodSandboxState_SANDBOX_READY {
			continue // one that was there before, and has no address any more
		}
		p.Phase = "Running"
		p.began(created)
		p.HostNetwork = c.sandboxes[b.Id].host
		for _, a := range c.sandboxes[b.Id].addrs {
			p.address(a)
		}
	}
	for id := range c.sandboxes {
		if !there[id] {
			delete(c.sandboxes, id)
		}
	}
	for _, m := range list.Containers {
		p := in[m.PodSandboxId]
		if p == nil || len(p.past) >= maxContainers {
			continue
		}
		name, id := clip(m.Labels[labelContainerName]), containerID(m.Id)
		p.past = append(p.past, past{name: name, id: id, from: time.Unix(0, m.CreatedAt)})
		if m.State == runtimeapi.ContainerState_CONTAINER_RUNNING && len(p.Containers) < maxContainers {
			running = append(running, criContainer{m.Id, p, len(p.Containers)})
			p.Containers = append(p.Containers, observe.PodContainer{Name: name, ID: id, Image: clip(m.GetImage().GetUserSpecifiedImage()), ImageID: c.images[m.Id], State: "running",
				Restarts: int(m.GetMetadata().GetAttempt()), Started: secondsOf(time.Unix(0, m.CreatedAt))})
		}
	}
	return pods, running, nil
}

// askImages asks for the digests of images of containers that are new, and adds them to the
// pods: what the kubelet takes over into the pod's status, of the repository. What the list
// has is the id of the image on this node. It ends with the first that is not told.
func (c *cri) askImages(ctx context.Context, running []criContainer, now time.Time) {
	client := runtimeapi.NewRuntimeServiceClient(c.asked[c.at].conn)
	asked, cancel := context.WithTimeout(ctx, criTimeout)
	defer cancel()
	there, told := map[string]bool{}, map[*pod][]criContainer{}
	fresh, ask := 0, true
	for _, r := range running {
		there[r.id] = true
		if _, known := c.images[r.id]; known || !ask || fresh == criNew || now.Sub(c.untold[r.id]) < imageAgain {
			continue
		}
		fresh++
		answer, err := client.ContainerStatus(asked, &runtimeapi.ContainerStatusRequest{ContainerId: r.id})
		if err != nil {
			c.untold[r.id], ask = now, false
			continue
		}
		delete(c.untold, r.id)
		c.images[r.id] = clip(imageID(answer.GetStatus().GetImageRef()))
		told[r.pod] = append(told[r.pod], r)
	}
	maps.DeleteFunc(c.images, func(id string, _ string) bool { return !there[id] })
	maps.DeleteFunc(c.untold, func(id string, _ time.Time) bool { return !there[id] })
	for uid, p := range c.pods {
		if told[p] == nil {
			continue
		}
		c.state.mu.Lock() // others have it already
		again := *p
		c.state.mu.Unlock()
		again.Containers = slices.Clone(p.Containers)
		for _, r := range told[p] {
			again.Containers[r.at].ImageID = c.images[r.id]
		}
		c.pods[uid] = &again
		c.state.podSaid(workload.CRI, &again, now, time.Time{})
	}
}

// sandbox asks for the addresses of one.
func (c *cri) sandbox(ctx context.Context, client runtimeapi.RuntimeServiceClient, id string) (sandbox, error) {
	asked, cancel := context.WithTimeout(ctx, criTimeout)
	defer cancel()
	answer, err := client.PodSandboxStatus(asked, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		return sandbox{}, err
	}
	st := answer.GetStatus()
	box := sandbox{host: st.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE}
	if ip := st.GetNetwork().GetIp(); ip != "" {
		box.addrs = append(box.addrs, ip)
	}
	for _, a := range st.GetNetwork().GetAdditionalIps() {
		if len(box.addrs) < maxAddrs {
			box.addrs = append(box.addrs, a.GetIp())
		}
	}
	return box, nil
}

// errNoCRI is a containerd without its CRI plugin, as Docker's.
var errNoCRI = errors.New("speaks no CRI (runtime.v1)")

// told is an error of gRPC in one line.
func told(err error) error {
	st, _ := status.FromError(err)
	if st.Code() == codes.Unimplemented {
		return errNoCRI
	}
	return fmt.Errorf("%s: %s", st.Code(), printableLine(st.Message(), 160))
}

// source says whether it answers.
func (c *cri) source() observe.KubeSource {
	c.mu.Lock()
	defer c.mu.Unlock()
	return observe.KubeSource{Name: nameCRI, Where: c.asked[c.at].path, Error: line(c.err)}
}

// line is an error in one line; empty when there is none.
func line(err error) string {
	if err == nil {
		return ""
	}
	return printableLine(err.Error(), 240)
}
