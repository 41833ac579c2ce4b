package store

import (
	"net/netip"
	"reflect"
	"strings"
	"unsafe"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/schema"
)

// requestRow is a row of requests/…: the columns of a stored request. Times are
// microseconds. docs/history-columns.md tells what each column holds.
type requestRow struct {
	Start         int64  `parquet:"start,timestamp(microsecond),delta"`
	TotalUS       int64  `parquet:"total_us,delta"`
	Side          string `parquet:"side,dict"`
	NetNS         int64  `parquet:"netns,dict"`
	Addr          string `parquet:"addr,dict"`
	Port          int32  `parquet:"port,delta"`
	PeerAddr      string `parquet:"peer_addr,dict"`
	PeerPort      int32  `parquet:"peer_port,delta"`
	PID           int32  `parquet:"pid,delta"`
	TID           int32  `parquet:"tid,delta"`
	Comm          string `parquet:"comm,dict"`
	Cgroup        string `parquet:"cgroup,dict"`
	Container     string `parquet:"container,dict"`
	ContainerName string `parquet:"container_name,dict"`
	Unit          string `parquet:"unit,dict"`
	Why           string `parquet:"why,dict"`
	Weight        int64  `parquet:"weight,delta"`
	Requests      int64  `parquet:"requests,delta"`
	Seq           int64  `parquet:"seq,delta"`
	Status        string `parquet:"status,dict"`
	HTTPStatus    int32  `parquet:"http_status,delta"`
	Flags         string `parquet:"flags,dict"`
	Label         string `parquet:"label,dict"`
	TraceID       string `parquet:"trace_id,dict"`
	ParentSpanID  string `parquet:"parent_span_id,dict"`
	TraceFlags    int32  `parquet:"trace_flags,delta"`
	BytesIn       int64  `parquet:"bytes_in,delta"`
	BytesOut      int64  `parquet:"bytes_out,delta"`
	UnackedBytes  int64  `parquet:"unacked_bytes,delta"`
	Retrans       int64  `parquet:"retrans,delta"`
	RTTUS         int64  `parquet:"rtt_us,delta"`
	MinRTTUS      int64  `parquet:"min_rtt_us,delta"`
	MSS           int64  `parquet:"mss_bytes,delta"`
	FirstByteUS   int64  `parquet:"first_byte_us,delta"`
	DNSUS         int64  `parquet:"connection_dns_us,delta"`
	ConnectUS     int64  `parquet:"connection_connect_us,delta"`
	IdleUS        int64  `parquet:"connection_idle_us,delta"`
	workloadColumns
	peerColumns
	PeerService string `parquet:"peer_k8s_service,dict"`
	ledgerColumns
	Followed bool `parquet:"followed"`
	splitColumns
}

// workloadColumns are who a process is in Kubernetes.
type workloadColumns struct {
	Namespace    string `parquet:"k8s_namespace,dict"`
	Pod          string `parquet:"k8s_pod,dict"`
	PodContainer string `parquet:"k8s_container,dict"`
	WorkloadKind string `parquet:"k8s_workload_kind,dict"`
	Workload     string `parquet:"k8s_workload,dict"`
	Node         string `parquet:"k8s_node,dict"`
	Zone         string `parquet:"k8s_zone,dict"`
}

func (c *workloadColumns) set(w *observe.Workload) {
	*c = workloadColumns{w.Namespace, w.Pod, w.Container, w.Kind, w.Name, w.Node, w.Zone}
}

func (c *workloadColumns) workload() observe.Workload {
	return observe.Workload{Namespace: c.Namespace, Pod: c.Pod, Container: c.PodContainer, Kind: c.WorkloadKind, Name: c.Workload, Node: c.Node, Zone: c.Zone}
}

// peerColumns are the same of the other end.
type peerColumns struct {
	PeerNamespace    string `parquet:"peer_k8s_namespace,dict"`
	PeerPod          string `parquet:"peer_k8s_pod,dict"`
	PeerWorkloadKind string `parquet:"peer_k8s_workload_kind,dict"`
	PeerWorkload     string `parquet:"peer_k8s_workload,dict"`
	PeerNode         string `parquet:"peer_k8s_node,dict"`
	PeerZone         string `parquet:"peer_k8s_zone,dict"`
}

func (c *peerColumns) set(w *observe.Workload) {
	*c = peerColumns{}
	if w != nil {
		*c = peerColumns{w.Namespace, w.Pod, w.Kind, w.Name, w.Node, w.Zone}
	}
}

// peer is nil where nobody is known.
func (c *peerColumns) peer() *observe.Workload {
	if *c == (peerColumns{}) {
		return nil
	}
	return &observe.Workload{Namespace: c.PeerNamespace, Pod: c.PeerPod, Kind: c.PeerWorkloadKind, Name: c.PeerWorkload, Node: c.PeerNode, Zone: c.PeerZone}
}

// ledgerColumns are the parts of a ledger, µs.
type ledgerColumns struct {
	AcceptWait  int64 `parquet:"ledger_accept_wait_us,delta"`
	TLS         int64 `parquet:"ledger_tls_us,delta"`
	Upload      int64 `parquet:"ledger_upload_us,delta"`
	RecvWait    int64 `parquet:"ledger_recv_wait_us,delta"`
	Server      int64 `parquet:"ledger_server_us,delta"`
	Stall       int64 `parquet:"ledger_stall_us,delta"`
	SendWait    int64 `parquet:"ledger_send_wait_us,delta"`
	Network     int64 `parquet:"ledger_network_us,delta"`
	Retrans     int64 `parquet:"ledger_retrans_us,delta"`
	Unaccounted int64 `parquet:"ledger_unaccounted_us,delta"`
	AckDelay    int64 `parquet:"ledger_ack_delay_us,delta"`
}

func (c *ledgerColumns) set(l *observe.Ledger) {
	*c = ledgerColumns{l[observe.AcceptWait], l[observe.TLS], l[observe.Upload], l[observe.RecvWait], l[observe.Server], l[observe.Stall],
		l[observe.SendWait], l[observe.Network], l[observe.Retrans], l[observe.Unaccounted], l[observe.AckDelay]}
}

func (c *ledgerColumns) ledger() observe.Ledger {
	return observe.Ledger{
		observe.AcceptWait: c.AcceptWait, observe.TLS: c.TLS, observe.Upload: c.Upload, observe.RecvWait: c.RecvWait, observe.Server: c.Server,
		observe.Stall: c.Stall, observe.SendWait: c.SendWait, observe.Network: c.Network, observe.Retrans: c.Retrans,
		observe.Unaccounted: c.Unaccounted, observe.AckDelay: c.AckDelay,
	}
}

// splitColumns are the parts of the server's time, µs.
type splitColumns struct {
	CPU       int64 `parquet:"ledger_server_cpu_us,delta"`
	Runq      int64 `parquet:"ledger_server_runq_us,delta"`
	Throttled int64 `parquet:"ledger_server_throttled_us,delta"`
	Lock      int64 `parquet:"ledger_server_blocked_lock_us,delta"`
	Disk      int64 `parquet:"ledger_server_blocked_disk_us,delta"`
	Pipe      int64 `parquet:"ledger_server_blocked_pipe_us,delta"`
	Net       int64 `parquet:"ledger_server_blocked_net_us,delta"`
	Sleep     int64 `parquet:"ledger_server_blocked_sleep_us,delta"`
	Other     int64 `parquet:"ledger_server_blocked_other_us,delta"`
	Call      int64 `parquet:"ledger_server_call_us,delta"`
	Handoff   int64 `parquet:"ledger_server_handoff_us,delta"`
}

func (c *splitColumns) set(s *observe.ServerSplit) {
	*c = splitColumns{s[observe.ServerCPU], s[observe.ServerRunq], s[observe.ServerThrottled], s[observe.ServerLock], s[observe.ServerDisk],
		s[observe.ServerPipe], s[observe.ServerNet], s[observe.ServerSleep], s[observe.ServerOther], s[observe.ServerCall], s[observe.ServerHandoff]}
}

func (c *splitColumns) split() observe.ServerSplit {
	return observe.ServerSplit{
		observe.ServerCPU: c.CPU, observe.ServerRunq: c.Runq, observe.ServerThrottled: c.Throttled, observe.ServerLock: c.Lock,
		observe.ServerDisk: c.Disk, observe.ServerPipe: c.Pipe, observe.ServerNet: c.Net, observe.ServerSleep: c.Sleep,
		observe.ServerOther: c.Other, observe.ServerCall: c.Call, observe.ServerHandoff: c.Handoff,
	}
}

// requestField is a field of a stored request, and where its column is in a row.
type requestField struct {
	schema.Field
	column field
}

// requestFields are all that a row has. A column that the schema does not have, or
// one that the row lacks, is a mistake of the program.
var requestFields = func() (list []requestField) {
	columns := columnsOf[requestRow]()
	for _, f := range schema.Requests {
		c, ok := columns[f.Name]
		if !ok {
			panic("store: requests have no column " + f.Name)
		}
		list = append(list, requestField{f, c})
	}
	return list
}()

// set makes the row of a request whose times are whole microseconds, as those
// in a log are.
func (row *requestRow) set(r *Request, w *Words) {
	*row = requestRow{}
	for i := range requestFields {
		f := &requestFields[i]
		to := unsafe.Add(unsafe.Pointer(row), f.column.offset)
		switch f.Kind {
		case schema.Text:
			*(*string)(to) = f.Text(r)
		case schema.Addr:
			*(*string)(to) = w.Addr(f.Addr(r))
		case schema.Enum:
			*(*string)(to) = f.EnumName(r)
		case schema.Flags:
			*(*string)(to) = w.FlagNames(observe.RequestFlags(f.Int(r)))
		case schema.Bool:
			*(*bool)(to) = f.Int(r) != 0
		default:
			if f.column.kind == reflect.Int32 {
				*(*int32)(to) = int32(f.Value(r))
			} else {
				*(*int64)(to) = f.Value(r)
			}
		}
	}
}

// phrases reads the same back.
type phrases struct {
	addrs map[string]netip.Addr
	flags map[string]observe.RequestFlags
}

func (w *phrases) addr(s string) netip.Addr {
	a, ok := w.addrs[s]
	if !ok && s != "" {
		if w.addrs == nil || len(w.addrs) >= maxWords {
			w.addrs = map[string]netip.Addr{}
		}
		a, _ = netip.ParseAddr(s)
		a = a.WithZone("")
		w.addrs[strings.Clone(s)] = a
	}
	return a
}

func (w *phrases) flagsOf(s string) observe.RequestFlags {
	f, ok := w.flags[s]
	if !ok && s != "" {
		if w.flags == nil || len(w.flags) >= maxWords {
			w.flags = map[string]observe.RequestFlags{}
		}
		f = schema.FlagsOf(s)
		w.flags[strings.Clone(s)] = f
	}
	return f
}

// plainColumn is a number that goes from a row into a request as it is, or times
// scale; most columns are. They are read apart from the others, by as little as tells
// them: there are forty in each of millions of rows.
type plainColumn struct {
	from, to uint16
	small    bool // 32 bits in the row
	wide     bool // 64 bits in the request
	scale    int64
}

// plainColumns and otherFields are all columns together.
var plainColumns, otherFields = func() (plain []plainColumn, others []requestField) {
	for i := range requestFields {
		f := &requestFields[i]
		to, wide, scale, ok := f.Plain()
		if !ok {
			others = append(others, *f)
			continue
		}
		plain = append(plain, plainColumn{uint16(f.column.offset), uint16(to), f.column.kind == reflect.Int32, wide, scale})
	}
	return plain, others
}()

// request makes r the request of the row.
func (row *requestRow) request(r *Request, w *phrases) {
	*r = Request{}
	for _, c := range plainColumns {
		from, to := unsafe.Add(unsafe.Pointer(row), c.from), unsafe.Add(unsafe.Pointer(r), c.to)
		var n int64
		if c.small {
			n = int64(*(*int32)(from))
		} else {
			n = *(*int64)(from)
		}
		if c.wide {
			*(*int64)(to) = n * c.scale
		} else {
			*(*uint32)(to) = uint32(n)
		}
	}
	for i := range otherFields {
		f := &otherFields[i]
		from := unsafe.Add(unsafe.Pointer(row), f.column.offset)
		switch f.Kind {
		case schema.Text:
			f.SetText(r, *(*string)(from))
		case schema.Addr:
			f.SetAddr(r, w.addr(*(*string)(from)))
		case schema.Enum:
			f.SetEnumName(r, *(*string)(from))
		case schema.Flags:
			f.SetInt(r, int64(w.flagsOf(*(*string)(from))))
		case schema.Bool:
			f.SetInt(r, int64(*(*uint8)(from))) // 1 for true
		case schema.Port:
			f.SetInt(r, int64(*(*int32)(from)))
		}
	}
}
