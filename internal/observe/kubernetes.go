package observe

import "cmp"

// Workload is who answers or asks in Kubernetes, at one time: the pod and what it
// belongs to. It can be compared; the zero Workload is nobody's. Every name is what
// Kubernetes calls it, clipped and printable.
type Workload struct {
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Container string `json:"container,omitempty"` // as the pod's manifest names it; empty for a peer, whose address is the pod's
	// Kind and Name are of the controller that a user edits: "Deployment" and not its
	// ReplicaSet, "CronJob" and not its Job. "Pod" for a pod that nothing controls,
	// "Service" where an address is that of a service.
	Kind string `json:"kind,omitempty"`
	Name string `json:"name,omitempty"`
	Node string `json:"node,omitempty"`
	Zone string `json:"zone,omitempty"` // topology.kubernetes.io/zone of the node
	// Service is the one whose address was called, where Pod is behind it.
	Service string `json:"service,omitempty"`
}

// String is what kubectl calls it: the namespace and the pod, or what it is instead of
// one; empty for nobody.
func (w *Workload) String() string {
	if *w == (Workload{}) {
		return ""
	}
	return w.Namespace + "/" + cmp.Or(w.Pod, w.Name)
}

// Controller is what a user edits: its namespace and name; empty for nobody.
func (w *Workload) Controller() string {
	if *w == (Workload{}) {
		return ""
	}
	return w.Namespace + "/" + cmp.Or(w.Name, w.Pod)
}

// Kubernetes is what this node's runtime, kubelet and API server said of the pods that
// matter in the window: pods of this node with a process of interest, and those that
// ended in the last quarter of an hour. Times are seconds from the beginning of the
// window, negative before it.
type Kubernetes struct {
	Node        KubeNode         `json:"node,omitzero"`
	Pods        []Pod            `json:"pods,omitempty"`
	Services    []KubeService    `json:"services,omitempty"`    // that pods of this node serve, or call
	Autoscalers []KubeAutoscaler `json:"autoscalers,omitempty"` // of workloads of these pods
	Events      []KubeEvent      `json:"events,omitempty"`      // about these pods and this node, oldest first
	// Sources are who was asked, in the order "cri", "kubelet", "api".
	Sources []KubeSource `json:"sources,omitempty"`
}

// WorkloadOf is whose container that is, of a process in a control group; nil where that is
// not known.
func (k *Kubernetes) WorkloadOf(container, cgroup string) *Workload {
	p, c := k.ContainerOf(container, cgroup)
	if p == nil {
		return nil
	}
	w := p.Workload(c.Name, &k.Node)
	return &w
}

// ContainerOf is that container of which pod, nil where that is not known.
func (k *Kubernetes) ContainerOf(container, cgroup string) (*Pod, *PodContainer) {
	if k == nil || container == "" || UsersOwn(cgroup) {
		return nil, nil
	}
	for i := range k.Pods {
		p := &k.Pods[i]
		for j := range p.Containers {
			if c := &p.Containers[j]; c.ID == container {
				return p, c
			}
		}
	}
	return nil, nil
}

// KubeSource is one that was asked, and why it did not answer.
type KubeSource struct {
	Name  string `json:"name"` // "cri", "kubelet", "api"
	Where string `json:"where,omitempty"`
	Error string `json:"error,omitempty"` // one line; empty when it answered
}

// KubeNode is the node that slowray runs on (core/v1 Node).
type KubeNode struct {
	Name string `json:"name,omitempty"`
	Zone string `json:"zone,omitempty"`
	// Pressure are the conditions that hold: "MemoryPressure", "DiskPressure",
	// "PIDPressure", "NotReady".
	Pressure       []string `json:"pressure,omitempty"`
	AllocatableCPU float64  `json:"allocatable_cpus,omitempty"`
	AllocatableMem uint64   `json:"allocatable_memory_bytes,omitempty"`
}

// Pod is one pod of this node (core/v1 Pod).
type Pod struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Kind and Owner are as Kind and Name of Workload.
	Kind        string   `json:"kind,omitempty"`
	Owner       string   `json:"owner,omitempty"`
	IPs         []string `json:"ips,omitempty"`
	HostNetwork bool     `json:"host_network,omitempty"`
	Phase       string   `json:"phase,omitempty"` // "Pending", "Running", "Succeeded", "Failed"
	QoS         string   `json:"qos,omitempty"`   // "Guaranteed", "Burstable", "BestEffort"
	Ready       bool     `json:"ready,omitempty"`
	ReadySince  float64  `json:"ready_since,omitempty"` // when Ready last changed
	CreatedAt   float64  `json:"created_at,omitempty"`
	// DeletedAt is when it was asked to end; 0 when nobody asked. It may serve until
	// GraceSeconds later.
	DeletedAt    float64        `json:"deleted_at,omitempty"`
	GraceSeconds int64          `json:"grace_seconds,omitempty"`
	Containers   []PodContainer `json:"containers,omitempty"`
	Volumes      []PodVolume    `json:"volumes,omitempty"`
	// DNSOptions and DNSPolicy are of its spec; of the options at most 16.
	DNSOptions []DNSOption `json:"dns_options,omitempty"`
	DNSPolicy  string      `json:"dns_policy,omitempty"`
}

// DNSOption is an option of a pod's resolver (core/v1 PodDNSConfigOption).
type DNSOption struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
}

// PodContainer is one container of a pod, by its spec and its status.
type PodContainer struct {
	Name     string  `json:"name"`
	ID       string  `json:"id,omitempty"` // shortened to 12, as in Process.Container
	Image    string  `json:"image,omitempty"`
	ImageID  string  `json:"image_id,omitempty"`
	Init     bool    `json:"init,omitempty"`
	Ready    bool    `json:"ready,omitempty"`
	State    string  `json:"state,omitempty"`  // "waiting", "running", "terminated"
	Reason   string  `json:"reason,omitempty"` // of the state: "CrashLoopBackOff", "ImagePullBackOff"
	Started  float64 `json:"started_at,omitempty"`
	Restarts int     `json:"restarts,omitempty"`
	// Last is how it ended the last time; the zero value when it never did.
	Last PodExit `json:"last_exit,omitzero"`

	// 0 = not set in the manifest.
	CPURequest    float64 `json:"cpu_request,omitempty"`
	CPULimit      float64 `json:"cpu_limit,omitempty"`
	MemoryRequest uint64  `json:"memory_request_bytes,omitempty"`
	MemoryLimit   uint64  `json:"memory_limit_bytes,omitempty"`

	Liveness  *Probe `json:"liveness,omitempty"`
	Readiness *Probe `json:"readiness,omitempty"`
	Startup   *Probe `json:"startup,omitempty"`
	PreStop   bool   `json:"pre_stop,omitempty"` // it has a preStop hook
}

// PodExit is how a container ended.
type PodExit struct {
	Reason   string  `json:"reason,omitempty"` // "OOMKilled", "Error", "Completed"
	ExitCode int     `json:"exit_code,omitempty"`
	Signal   int     `json:"signal,omitempty"`
	At       float64 `json:"at,omitempty"`
}

// Probe is how the kubelet asks a container, with the defaults filled in.
type Probe struct {
	Kind             string `json:"kind"` // "http", "tcp", "exec", "grpc"
	Path             string `json:"path,omitempty"`
	Port             int    `json:"port,omitempty"` // 0 for exec, or where a name could not be resolved
	DelaySeconds     int    `json:"delay_seconds,omitempty"`
	TimeoutSeconds   int    `json:"timeout_seconds"`
	PeriodSeconds    int    `json:"period_seconds"`
	FailureThreshold int    `json:"failure_threshold"`
}

// PodVolume is a volume of a pod that lies on a disk or a server, and where it is mounted.
type PodVolume struct {
	Name string `json:"name"`
	Kind string `json:"kind,omitempty"` // as the manifest names it: "persistentVolumeClaim", "ephemeral", "emptyDir", "hostPath", "nfs", "csi"
	// Claim is the PersistentVolumeClaim, of the first two; Volume and Class are its PersistentVolume
	// and StorageClass, where the API server says so.
	Claim     string `json:"claim,omitempty"`
	Volume    string `json:"volume,omitempty"`
	Class     string `json:"class,omitempty"`
	Container string `json:"container,omitempty"`
	Path      string `json:"path,omitempty"`  // in the container
	Block     bool   `json:"block,omitempty"` // a block device without a file system (volumeDevices)
	// Of what is mounted there, where it could be seen:
	Device string `json:"device,omitempty"` // major:minor
	Store  string `json:"store,omitempty"`  // as WaitMount
}

// KubeService is a service and what stands behind it (core/v1 Service,
// discovery.k8s.io/v1 EndpointSlice).
type KubeService struct {
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	IPs       []string          `json:"ips,omitempty"`
	Ports     []KubeServicePort `json:"ports,omitempty"`
	// Selects is whether it has a selector: without one somebody else writes its endpoints.
	Selects   bool           `json:"selects,omitempty"`
	Endpoints []KubeEndpoint `json:"endpoints,omitempty"`
	// Left are the names of the pods of this node that were behind it and are no more, since
	// the window began.
	Left []string `json:"left,omitempty"`
	// EndpointsKnown says that Endpoints was read, so that none means none.
	EndpointsKnown bool `json:"endpoints_known,omitempty"`
}

// KubeServicePort is one port of a service.
type KubeServicePort struct {
	Name     string `json:"name,omitempty"`
	Protocol string `json:"protocol,omitempty"`
	Port     int    `json:"port"`
	Target   string `json:"target,omitempty"` // number or name
	NodePort int    `json:"node_port,omitempty"`
}

// KubeEndpoint is one address behind a service.
type KubeEndpoint struct {
	Address     string `json:"address"`
	Port        int    `json:"port,omitempty"`
	Pod         string `json:"pod,omitempty"`
	Node        string `json:"node,omitempty"`
	Ready       bool   `json:"ready,omitempty"`
	Serving     bool   `json:"serving,omitempty"`
	Terminating bool   `json:"terminating,omitempty"`
}

// KubeAutoscaler is a HorizontalPodAutoscaler (autoscaling/v2).
type KubeAutoscaler struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Kind      string `json:"kind"` // of what it scales
	Target    string `json:"target"`
	Min       int    `json:"min"`
	Max       int    `json:"max"`
	Current   int    `json:"current"`
	Desired   int    `json:"desired"`
	// StabilizeDownSeconds is behavior.scaleDown.stabilizationWindowSeconds; -1 where it
	// is not set, which means 300.
	StabilizeDownSeconds int `json:"stabilize_down_seconds"`
}

// KubeEvent is one event (core/v1 or events.k8s.io/v1), counted.
type KubeEvent struct {
	At        float64 `json:"at"`              // the last time
	First     float64 `json:"first,omitempty"` // the first time, where it was counted
	Count     int     `json:"count,omitempty"`
	Warning   bool    `json:"warning,omitempty"`
	Reason    string  `json:"reason"` // "Unhealthy", "Killing", "BackOff", "Pulled", "SuccessfulRescale"
	Kind      string  `json:"kind"`   // of the object: "Pod", "Node", "HorizontalPodAutoscaler"
	Namespace string  `json:"namespace,omitempty"`
	Name      string  `json:"name"`
	Container string  `json:"container,omitempty"` // of the object's fieldPath
	Message   string  `json:"message,omitempty"`   // one line, at most 512 bytes
}
