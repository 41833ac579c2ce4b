package kube

import (
	"cmp"
	"context"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/sense/nat"
	"github.com/slowray/slowray/internal/sense/workload"
)

// Options say whom to ask. Zero values are the defaults.
type Options struct {
	Node       string // name of this node; empty: NODE_NAME, else the host's name
	Kubeconfig string // of the API server, outside a pod
	Version    string // of slowray, for the API server's log
	// Where sockets and directories of the host are, for tests.
	Root        string
	KubeletPort int // of the read-only port
	KubeletTLS  int // of the port that wants to know who asks
}

const (
	readOnlyPort = 10255
	kubeletPort  = 10250
)

// Names of the sources, as in observe.KubeSource.
const (
	nameCRI     = "cri"
	nameKubelet = "kubelet"
	nameAPI     = "api"
)

// Kube asks the sources from Start on, until Close. A nil Kube is a host that is no node:
// it knows nothing.
type Kube struct {
	Index *workload.Index
	state *state
	// node says that this host is one, for sure: Docker has a containerd of its own, and
	// anybody may listen where a kubelet does.
	node atomic.Bool

	cri     *cri
	kubelet *kubelet
	api     *api

	cancel  context.CancelFunc
	running sync.WaitGroup
	looked  chan struct{} // closed after the first look
	again   chan struct{} // a container was met that nobody knows
}

// Start begins to ask, next to the caller; nil where this host shows no sign of a node: no
// socket of a runtime that speaks CRI and has pods, no kubelet, no API server named.
// Looking for them is a stat of each socket and one connect on loopback.
func Start(ctx context.Context, opt Options) *Kube {
	ctx, cancel := context.WithCancel(ctx)
	k := &Kube{Index: workload.New(workload.DefaultLimits), cancel: cancel, looked: make(chan struct{}), again: make(chan struct{}, 1)}
	name := nodeName(opt.Node)
	k.state = newState(k.Index, name)
	k.cri, k.kubelet, k.api = findCRI(opt.Root, k.state), findKubelet(ctx, opt, name, k.state), findAPI(opt, name, k.state)
	if k.cri == nil && k.kubelet == nil && k.api == nil {
		cancel()
		return nil
	}
	k.node.Store(k.api != nil || isNode(opt.Root))
	if k.api != nil {
		k.api.start(ctx, &k.running)
	}
	k.running.Go(func() { k.poll(ctx) })
	return k
}

// Close ends the asking.
func (k *Kube) Close() {
	if k == nil {
		return
	}
	k.cancel()
	k.running.Wait()
	k.cri.close()
}

// isNode says that a kubelet was set up here.
func isNode(root string) bool {
	_, err := os.Stat(root + "/var/lib/kubelet/pods")
	return err == nil
}

func nodeName(given string) string {
	host, _ := os.Hostname() // empty: only what needs no name is asked
	return clip(cmp.Or(given, os.Getenv("NODE_NAME"), host))
}

const (
	pollEvery  = 20 * time.Second
	pollAtMost = 5 * time.Second
	// lease is how long what was polled is believed to go on.
	lease = 2 * pollEvery
	// sweepEvery is how often what is over is forgotten.
	sweepEvery = time.Minute
)

// poll asks those that do not tell by themselves: all the time where nobody else tells of
// this node's pods, else when a container is met that nobody knows.
func (k *Kube) poll(ctx context.Context) {
	k.look(ctx)
	close(k.looked)
	swept := time.Now()
	for k.node.Load() {
		looked := time.Now()
		wait := pollEvery
		if k.told() {
			wait = sweepEvery
		}
		next := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			next.Stop()
			return
		case <-next.C:
		case <-k.again:
			next.Stop()
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Until(looked.Add(pollAtMost))):
			}
		}
		k.look(ctx)
		if now := time.Now(); now.Sub(swept) > sweepEvery {
			swept = now
			k.Index.Sweep(now.UnixNano())
			k.state.sweep(now)
		}
	}
}

// told says that the API server tells of this node's pods as they change.
func (k *Kube) told() bool { return k.api != nil && k.api.pods.synced() }

func (k *Kube) look(ctx context.Context) {
	if k.cri != nil {
		if pods, err := k.cri.look(ctx); err == nil && pods > 0 {
			k.node.Store(true)
		}
	}
	if k.kubelet != nil && !k.told() && k.kubelet.look(ctx) == nil {
		k.node.Store(true)
	}
}

// Container is whose container an id was at a time (wall clock, ns since 1970). It is
// cheap: it may be called for each request.
func (k *Kube) Container(id string, at int64) observe.Workload {
	if k == nil || id == "" {
		return observe.Workload{}
	}
	w, ok := k.Index.Of(id, at)
	if !ok {
		select {
		case k.again <- struct{}{}:
		default:
		}
	}
	return w
}

// Peer is who had an address at a time; as cheap as Container.
func (k *Kube) Peer(addr netip.Addr, at int64) observe.Workload {
	if k == nil {
		return observe.Workload{}
	}
	w, _ := k.Index.At(addr, at)
	if k.api != nil {
		k.api.wonder(addr, w)
	}
	if w.Kind == "" {
		// A service lists it, and nobody has said yet what controls it, nor that its
		// address is not the node's.
		return observe.Workload{}
	}
	return w
}

// Zone is the zone of this node; empty where that is not known yet.
func (k *Kube) Zone() string {
	if k == nil {
		return ""
	}
	k.state.mu.Lock()
	defer k.state.mu.Unlock()
	return cmp.Or(k.state.node.Zone, k.state.zones[k.state.name])
}

// PeerOf is Peer, of what a process has a connection with. A container that is no pod's
// may be in another network, where the same addresses are somebody else's.
func (k *Kube) PeerOf(p *observe.Identity, addr netip.Addr, at int64) observe.Workload {
	if k == nil || p.Container != "" && p.Workload.Pod == "" {
		return observe.Workload{}
	}
	return k.Peer(addr, at)
}

// PeerOfRequest is PeerOf, of a request that has just ended. Where it went to the address
// of a service, the peer is who has the address that the node led it to.
func (k *Kube) PeerOfRequest(p *observe.Identity, r *observe.Request, t *nat.Table) observe.Workload {
	at := r.StartNS + r.TotalNS()
	w := k.PeerOf(p, r.Peer.Addr(), at)
	if w.Kind != kindService {
		return w
	}
	if to := t.Destination(r); to.IsValid() {
		if pod := k.Peer(to.Addr(), at); pod.Pod != "" {
			pod.Service = w.Name
			return pod
		}
	}
	return w
}

// findPatience is how long is waited for the sources to have answered once.
const findPatience = 3 * time.Second

// Find gives the containers of the pods of this node that are named, as in
// observe.Filter; empty when there are none.
func (k *Kube) Find(ctx context.Context, r observe.WorkloadRef) string {
	if k == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, findPatience)
	defer cancel()
	select {
	case <-k.looked:
	case <-ctx.Done():
	}
	for {
		known := k.state.window(Query{Start: time.Now()})
		if ids := known.ContainersOf(r); ids != "" || k.api == nil || k.api.pods.listed.Load() {
			return ids
		}
		select {
		case <-ctx.Done():
			return ""
		case <-time.After(20 * time.Millisecond):
		}
	}
}

const maxName = 253 // RFC 1123 subdomain: no name of an object is longer

// clip makes a name of others fit to show.
func clip(s string) string { return printable.Name(s, maxName) }

const shownID = 12 // of a container's id, as in observe.Process

// containerID is the id in "containerd://…", shortened.
func containerID(s string) string {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == '/' {
			s = s[i+1:]
			break
		}
	}
	return clip(s[:min(len(s), shownID)])
}
