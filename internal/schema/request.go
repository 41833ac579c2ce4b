package schema

import (
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// Why says why a request is stored.
type Why uint8

// Reasons to store a request.
const (
	Sampled Why = iota // one of many; Weight says of how many
	Slow               // it took long for its endpoint
	Failed             // an error, no answer, or a reset
)

var whyNames = [...]string{Sampled: "sampled", Slow: "slow", Failed: "failed"}

// String is the reason as in the column "why".
func (w Why) String() string { return whyNames[min(int(w), len(whyNames)-1)] }

// Request is a stored request. Its Weight counts how many requests it stands for,
// the recorder's sampling and the store's together; slow and failed ones stand
// for themselves.
type Request struct {
	observe.Request
	Process observe.Identity
	// PeerWorkload is who was at the other end.
	PeerWorkload observe.Workload
	Why          Why
}

// origin is where a request begins: the distance of a value from it is its offset in
// every other request.
var origin Request

// Requests are the fields of a stored request, in the order of their columns.
// docs/history-columns.md tells what each holds.
var Requests = func() []Field {
	o := &origin
	list := []Field{
		moment("start", &o.StartNS),
		derived("total_us", Micros),
		enum("side", &o.Side, observe.Served.String(), observe.Called.String()),
		number("netns", &o.NetNS).asKey(),
		addr("addr", &o.Local), port("port", &o.Local), addr("peer_addr", &o.Peer), port("peer_port", &o.Peer),
		number("pid", &o.PID).asKey(), number("tid", &o.TID).asKey(),
		text("comm", &o.Process.Comm), text("cgroup", &o.Process.Cgroup), text("container", &o.Process.Container),
		text("container_name", &o.Process.ContainerName), text("unit", &o.Process.Unit),
		enum("why", &o.Why, whyNames[:]...),
		number("weight", &o.Weight), number("requests", &o.Requests), number("seq", &o.Seq),
		enum("status", &o.Status, observe.StatusUnknown.String(), observe.StatusOK.String(), observe.StatusError.String()),
		number("http_status", &o.HTTP),
		flags("flags", &o.Flags),
		label("label", &o.Label),
		digits("trace_id", o.Trace.ID[:]), digits("parent_span_id", o.Trace.Parent[:]), number("trace_flags", &o.Trace.Flags),
		number("bytes_in", &o.BytesIn), number("bytes_out", &o.BytesOut), number("unacked_bytes", &o.Unacked), number("retrans", &o.Retrans),
		micros("rtt_us", &o.RTTNS), micros("min_rtt_us", &o.MinRTTNS), number("mss_bytes", &o.MSS), micros("first_byte_us", &o.FirstByte),
	}
	list = append(list, micros("connection_dns_us", &o.Opening.DNS), micros("connection_connect_us", &o.Opening.Connect), micros("connection_idle_us", &o.Opening.Idle))
	list = append(list, workload("", &o.Process.Workload)...)
	list = append(append(list, workload("peer_", &o.PeerWorkload)...), text("peer_k8s_service", &o.PeerWorkload.Service))
	for p := range observe.NumParts {
		list = append(list, micros(LedgerColumn(p), &o.Ledger[p]))
	}
	list = append(list, boolean("followed", &o.Followed))
	for p := range observe.NumServerParts {
		list = append(list, micros(SplitColumn(p), &o.Split[p]))
	}
	return list
}()

// workload is the fields of who somebody is in Kubernetes.
func workload(prefix string, w *observe.Workload) []Field {
	var list []Field
	for _, f := range WorkloadFields(w) {
		if f.Name != "k8s_container" || prefix == "" { // an address is the whole pod's
			list = append(list, text(prefix+f.Name, f.Value))
		}
	}
	return list
}

// WorkloadField is a column of a workload and its value.
type WorkloadField struct {
	Name  string
	Value *string
}

// WorkloadFields are the columns of a workload.
func WorkloadFields(w *observe.Workload) [7]WorkloadField {
	return [...]WorkloadField{
		{"k8s_namespace", &w.Namespace}, {"k8s_pod", &w.Pod}, {"k8s_container", &w.Container}, {"k8s_workload_kind", &w.Kind},
		{"k8s_workload", &w.Name}, {"k8s_node", &w.Node}, {"k8s_zone", &w.Zone},
	}
}

// LedgerColumn is the column of a part of the ledger.
func LedgerColumn(p observe.Part) string { return "ledger_" + p.String() + "_us" }

// SplitColumn is the column of a part of the server's time, whose name has dots:
// blocked.lock.
func SplitColumn(p observe.ServerPart) string {
	return "ledger_" + strings.ReplaceAll(p.String(), ".", "_") + "_us"
}

// FlagsOf is the inverse of joining observe.RequestFlags.Names with commas. Names
// that are not known are left out.
func FlagsOf(names string) (f observe.RequestFlags) {
	for name := range strings.SplitSeq(names, ",") {
		f |= flagByName[name]
	}
	return f
}

// Flag is the flag of a name; 0 when it is none.
func Flag(name string) observe.RequestFlags { return flagByName[name] }

var flagByName = func() map[string]observe.RequestFlags {
	m := map[string]observe.RequestFlags{}
	for bit := range 32 {
		f := observe.RequestFlags(1) << bit
		if name := f.Names(); len(name) == 1 {
			m[name[0]] = f
		}
	}
	return m
}()
