package export

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// other is the address of the endpoints of a side that have no series of their
// own; internal/sense/request names those that had no place in its table so, too.
const other = "other"

// identity is what makes an endpoint's series. A process that is started anew
// goes on with the same one: it has no process ID.
type identity struct {
	side, addr, comm, container, unit string
	namespace, pod, workload          string // in Kubernetes
	netns                             uint64
	port                              int
}

// identityOf is the identity of an endpoint as it was reported, each text cut to
// what a label may take at most.
func identityOf(s *store.Second) identity {
	e, p := &s.Endpoint, &s.Process
	container := p.ContainerName
	if container == "" {
		container = cut(p.Container, 12) // as engines print an id
	}
	w := &p.Workload
	container = cmp.Or(w.Container, container)
	comm := e.Comm
	if comm == "" {
		comm = p.Comm
	}
	const most = 2 * maxLabel
	return identity{
		side: e.Side, addr: cut(e.Addr, most), comm: cut(comm, most), container: cut(container, most), unit: cut(p.Unit, most),
		namespace: cut(w.Namespace, most), pod: cut(w.Pod, most), workload: cut(w.Name, most),
		netns: e.NetNS, port: e.Port,
	}
}

// shown is the identity as labels show it.
func (id identity) shown() identity {
	side := observe.Served
	if id.side == observe.Called.String() {
		side = observe.Called
	}
	id.side = side.String()
	id.addr, id.comm, id.container, id.unit = label(id.addr), label(id.comm), label(id.container), label(id.unit)
	id.namespace, id.pod, id.workload = label(id.namespace), label(id.pod), label(id.workload)
	if id.addr == other {
		return otherOf(id.side)
	}
	return id
}

// otherOf is the identity of all endpoints of a side without a series.
func otherOf(side string) identity { return identity{side: side, addr: other, comm: other} }

// clone does not share memory with what id was read from.
func (id identity) clone() identity {
	id.side, id.addr, id.comm = strings.Clone(id.side), strings.Clone(id.addr), strings.Clone(id.comm)
	id.container, id.unit = strings.Clone(id.container), strings.Clone(id.unit)
	id.namespace, id.pod, id.workload = strings.Clone(id.namespace), strings.Clone(id.pod), strings.Clone(id.workload)
	return id
}

// labels are the names and values of the identity, in the order of the names.
func (id identity) labels() []labelPair {
	text := func(n uint64) string {
		if n == 0 {
			return ""
		}
		return strconv.FormatUint(n, 10)
	}
	return []labelPair{
		{"address", id.addr}, {"container", id.container}, {"k8s_namespace", id.namespace}, {"k8s_pod", id.pod}, {"k8s_workload", id.workload}, {"netns", text(id.netns)}, {"port", text(uint64(max(id.port, 0)))},
		{"process", id.comm}, {"side", id.side}, {"unit", id.unit},
	}
}

// labelPair is the name and the value of a label.
type labelPair struct{ name, value string }

// series is what one endpoint did since it has a series. Nothing in it ever
// decreases but what says so, or with since.
type series struct {
	id identity

	last time.Time // something was added; guarded by the Exporter's lock

	mu      sync.Mutex // of what follows
	since   time.Time
	exposed exposed // its labels as an exposition wants them, which are immutable
	sums    sums
	program observe.Identity // who has it, as far as OpenTelemetry wants to know; zero for others
}

// seen takes down whose endpoint it is: what Kubernetes says of a pod may come later than
// its first requests, and no label of Prometheus has the kind of a workload. The container's
// id is kept only where there is no name: a series outlives a container that is started anew.
// Where that changes what the attributes say, all sums begin anew: who gets them takes points
// with other attributes for other ones, which did not do since then what the first ones did.
func (s *series) seen(p *observe.Identity, at time.Time) {
	if s.id.addr == other {
		return
	}
	now := observe.Identity{Comm: s.id.comm, ContainerName: p.ContainerName, Unit: p.Unit, Workload: p.Workload}
	if cmp.Or(p.Workload.Container, p.ContainerName) == "" {
		now.Container = p.Container
	}
	texts := [...]*string{&now.ContainerName, &now.Container, &now.Unit, &now.Workload.Namespace, &now.Workload.Pod, &now.Workload.Container,
		&now.Workload.Kind, &now.Workload.Name, &now.Workload.Node, &now.Workload.Zone}
	for _, text := range texts {
		*text = cut(*text, maxK8s)
	}
	if now == s.program {
		return
	}
	for _, text := range texts {
		*text = strings.Clone(*text)
	}
	first, before := s.program == (observe.Identity{}), s.attributes()
	s.program = now
	same := func(a, b *commonpb.KeyValue) bool { return proto.Equal(a, b) }
	if !first && !slices.EqualFunc(before, s.attributes(), same) { // names may become one as they are shown
		s.sums, s.since, s.exposed.since = sums{}, at, timestamppb.New(at)
	}
}

// attributes are the labels of a point as OpenTelemetry calls them, where it has a name.
func (s *series) attributes() []*commonpb.KeyValue {
	var list []*commonpb.KeyValue
	for _, l := range s.id.labels() {
		if l.name != "container" && !strings.HasPrefix(l.name, "k8s_") {
			list = append(list, attributes(l.name, l.value)...)
		}
	}
	if s.id.addr == other {
		return list
	}
	return append(list, serviceAttributes(&s.program)...)
}

// sums are the figures of a series.
type sums struct {
	requests, errors, unanswered, overlapped uint64
	bytesIn, bytesOut                        uint64
	segments, retrans                        uint64
	connections, synRetrans                  uint64
	handshakeNS                              float64

	// Sums of many requests at once outgrow 64 bits of nanoseconds.
	partNS   [observe.NumParts]float64
	serverNS [observe.NumServerParts]float64
	unsplit  float64 // server time of seconds in which no request was followed, ns
	classes  [6]uint64

	total, rtt observe.Histogram

	// Only with Options.Conventions.
	http   observe.Histogram // of total, requests of HTTP
	isHTTP bool              // some were
	tls    uint64            // handshakes of TLS

	// Of the last second with traffic: these go up and down.
	minRTT     int64
	unfinished uint64
}

// classNames are the classes of HTTP responses, by sums.classes.
var classNames = [6]string{"", "1xx", "2xx", "3xx", "4xx", "5xx"}

// add adds what the endpoint did in a second.
func (s *sums) add(e *observe.Endpoint) {
	s.requests += e.Requests
	s.errors += e.Errors
	s.unanswered += e.Unanswered
	s.overlapped += e.Overlapped
	s.bytesIn += e.BytesIn
	s.bytesOut += e.BytesOut
	s.segments += e.Segments
	s.retrans += e.Retrans
	s.connections += e.Connections
	s.synRetrans += e.SynRetrans
	s.handshakeNS += float64(max(e.Handshake, 0))
	for p := range observe.NumParts {
		s.partNS[p] += e.SumNS(p)
	}
	if server := e.SumNS(observe.Server); e.Split == nil || e.Split.ServerNS <= 0 {
		s.unsplit += server
	} else {
		for p := range observe.NumServerParts {
			s.serverNS[p] += max(e.Split.ShareNS(p, server), 0)
		}
	}
	for class, n := range e.Statuses {
		if i := int(first(class)) - '0'; i > 0 && i < len(s.classes) {
			s.classes[i] += n
		}
	}
	s.total.Merge(&e.Total)
	s.rtt.Merge(&e.RTT)
	if e.MinRTT > 0 {
		s.minRTT = e.MinRTT
	}
	s.unfinished = e.Unfinished
}

// first is the first byte of s, 0 when there is none.
func first(s string) byte {
	if s == "" {
		return 0
	}
	return s[0]
}
