package store

import (
	"net/netip"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// requestRow is a row of requests/…: the columns of a stored request. Times are
// microseconds. docs/history.md tells what each column holds.
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
	BytesIn       int64  `parquet:"bytes_in,delta"`
	BytesOut      int64  `parquet:"bytes_out,delta"`
	UnackedBytes  int64  `parquet:"unacked_bytes,delta"`
	Retrans       int64  `parquet:"retrans,delta"`
	RTTUS         int64  `parquet:"rtt_us,delta"`
	MinRTTUS      int64  `parquet:"min_rtt_us,delta"`
	MSS           int64  `parquet:"mss_bytes,delta"`
	FirstByteUS   int64  `parquet:"first_byte_us,delta"`
	ledgerColumns
	Followed bool `parquet:"followed"`
	splitColumns
}

// ledgerColumns are the parts of a ledger, µs.
type ledgerColumns struct {
	AcceptWait  int64 `parquet:"ledger_accept_wait_us,delta"`
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
	*c = ledgerColumns{l[observe.AcceptWait], l[observe.Upload], l[observe.RecvWait], l[observe.Server], l[observe.Stall],
		l[observe.SendWait], l[observe.Network], l[observe.Retrans], l[observe.Unaccounted], l[observe.AckDelay]}
}

func (c *ledgerColumns) ledger() observe.Ledger {
	return observe.Ledger{
		observe.AcceptWait: c.AcceptWait, observe.Upload: c.Upload, observe.RecvWait: c.RecvWait, observe.Server: c.Server,
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

var whyNames = [...]string{Sampled: "sampled", Slow: "slow", Failed: "failed"}

// String is the reason as in the column "why".
func (w Why) String() string { return whyNames[min(int(w), len(whyNames)-1)] }

// set makes the row of a request whose times are whole microseconds, as those
// in a log are.
func (row *requestRow) set(r *Request, w *Words) {
	p := &r.Process
	*row = requestRow{
		Start: r.StartNS / 1000, TotalUS: r.TotalNS() / 1000, Side: r.Side.String(), NetNS: int64(r.NetNS),
		Addr: w.Addr(r.Local.Addr()), Port: int32(r.Local.Port()), PeerAddr: w.Addr(r.Peer.Addr()), PeerPort: int32(r.Peer.Port()),
		PID: int32(r.PID), TID: int32(r.TID),
		Comm: p.Comm, Cgroup: p.Cgroup, Container: p.Container, ContainerName: p.ContainerName, Unit: p.Unit,
		Why: r.Why.String(), Weight: int64(r.Weight), Requests: int64(r.Requests), Seq: int64(r.Seq),
		Status: r.Status.String(), HTTPStatus: int32(r.HTTP), Flags: w.FlagNames(r.Flags), Label: r.Label,
		BytesIn: int64(r.BytesIn), BytesOut: int64(r.BytesOut), UnackedBytes: int64(r.Unacked), Retrans: int64(r.Retrans),
		RTTUS: r.RTTNS / 1000, MinRTTUS: r.MinRTTNS / 1000, MSS: int64(r.MSS), FirstByteUS: r.FirstByte / 1000,
		Followed: r.Followed,
	}
	ledger, split := r.Ledger, r.Split
	for i := range ledger {
		ledger[i] /= 1000
	}
	for i := range split {
		split[i] /= 1000
	}
	row.ledgerColumns.set(&ledger)
	row.splitColumns.set(&split)
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
		for name := range strings.SplitSeq(s, ",") {
			f |= flagByName[name]
		}
		w.flags[strings.Clone(s)] = f
	}
	return f
}

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

// request makes r the request of the row.
func (row *requestRow) request(r *Request, w *phrases) {
	*r = Request{
		Request: observe.Request{
			Side: observe.Served, StartNS: row.Start * 1000, NetNS: uint64(row.NetNS),
			Local: netip.AddrPortFrom(w.addr(row.Addr), uint16(row.Port)), Peer: netip.AddrPortFrom(w.addr(row.PeerAddr), uint16(row.PeerPort)),
			PID: int(row.PID), TID: int(row.TID), Seq: uint32(row.Seq), Requests: uint32(row.Requests), Weight: uint32(row.Weight),
			Ledger: row.ledger(), BytesIn: uint64(row.BytesIn), BytesOut: uint64(row.BytesOut), Unacked: uint32(row.UnackedBytes),
			Retrans: uint32(row.Retrans), RTTNS: row.RTTUS * 1000, MinRTTNS: row.MinRTTUS * 1000, MSS: uint32(row.MSS),
			HTTP: int(row.HTTPStatus), Flags: w.flagsOf(row.Flags), Label: row.Label, FirstByte: row.FirstByteUS * 1000,
			Followed: row.Followed, Split: row.split(),
		},
		Process: observe.Identity{Comm: row.Comm, Cgroup: row.Cgroup, Container: row.Container, ContainerName: row.ContainerName, Unit: row.Unit},
	}
	for i := range r.Ledger {
		r.Ledger[i] *= 1000
	}
	for i := range r.Split {
		r.Split[i] *= 1000
	}
	if row.Side == observe.Called.String() {
		r.Side = observe.Called
	}
	switch row.Status {
	case observe.StatusOK.String():
		r.Status = observe.StatusOK
	case observe.StatusError.String():
		r.Status = observe.StatusError
	}
	for why, name := range whyNames {
		if row.Why == name {
			r.Why = Why(why)
		}
	}
}
