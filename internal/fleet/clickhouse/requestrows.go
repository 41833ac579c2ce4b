package clickhouse

import (
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// hostPart are the columns before the others.
type hostPart struct {
	host, history, position, batch, day, time, service, start *column
}

func newHostPart(c map[string]*column) hostPart {
	return hostPart{c["host"], c["history"], c["position"], c["batch"], c["day"], c["time"], c["service"], c["start_us"]}
}

func (h *hostPart) put(row int, b *fleet.Batch, p fleet.Position, startUS int64, service string) {
	h.host.putText(row, b.Host.Name)
	h.history.putText(row, b.Host.ID)
	h.position.put64(row, uint64(p))
	h.batch.put64(row, uint64(b.First))
	h.day.put16(row, uint16(min(max(b.Day, 0), 1<<16-1)))
	h.time.put32(row, uint32(min(max(startUS/1e6, 0), 1<<32-1)))
	h.service.putText(row, service)
	h.start.put64(row, uint64(startUS))
}

// requestRows collects requests.
type requestRows struct {
	*block
	hostPart
	words words

	total, netns, port, peerPort, pid, tid, weight, requests, seq, http         *column
	side, addr, peerAddr, comm, cgroup, container, containerName, unit          *column
	why, status, flags, label, bytesIn, bytesOut, unacked, retrans, rtt, minRTT *column
	mss, firstByte, followed                                                    *column
	ledger                                                                      [observe.NumParts]*column
	split                                                                       [observe.NumServerParts]*column
}

// partColumn is the column of a part of the ledger.
func partColumn(p observe.Part) string { return "ledger_" + p.String() + "_us" }

func newRequestRows(table string) *requestRows {
	b, c, _ := newBlock(table, requestDefs)
	r := &requestRows{
		block: b, hostPart: newHostPart(c),
		total: c["total_us"], side: c["side"], netns: c["netns"], addr: c["addr"], port: c["port"], peerAddr: c["peer_addr"], peerPort: c["peer_port"],
		pid: c["pid"], tid: c["tid"], comm: c["comm"], cgroup: c["cgroup"], container: c["container"], containerName: c["container_name"], unit: c["unit"],
		why: c["why"], weight: c["weight"], requests: c["requests"], seq: c["seq"], status: c["status"], http: c["http_status"], flags: c["flags"], label: c["label"],
		bytesIn: c["bytes_in"], bytesOut: c["bytes_out"], unacked: c["unacked_bytes"], retrans: c["retrans"], rtt: c["rtt_us"], minRTT: c["min_rtt_us"],
		mss: c["mss_bytes"], firstByte: c["first_byte_us"], followed: c["followed"],
	}
	for p := range observe.NumParts {
		r.ledger[p] = c[partColumn(p)]
	}
	for p := range observe.NumServerParts {
		r.split[p] = c[splitColumn(p)]
	}
	return r
}

// add appends a request. It allocates nothing but when its columns grow, and when an
// address or a service is seen for the first time.
func (w *requestRows) add(b *fleet.Batch, p fleet.Position, r *store.Request) {
	row := w.rows
	w.hostPart.put(row, b, p, r.StartNS/1000, w.words.service(r.Side, &r.Process, int(r.Local.Port())))
	w.total.put64(row, uint64(r.TotalNS()/1000))
	w.side.put8(row, uint8(r.Side))
	w.netns.put64(row, r.NetNS)
	w.addr.putText(row, w.words.Addr(r.Local.Addr()))
	w.port.put16(row, r.Local.Port())
	w.peerAddr.putText(row, w.words.Addr(r.Peer.Addr()))
	w.peerPort.put16(row, r.Peer.Port())
	w.pid.put32(row, uint32(r.PID))
	w.tid.put32(row, uint32(r.TID))
	w.comm.putText(row, r.Process.Comm)
	w.cgroup.putText(row, r.Process.Cgroup)
	w.container.putText(row, r.Process.Container)
	w.containerName.putText(row, r.Process.ContainerName)
	w.unit.putText(row, r.Process.Unit)
	w.why.put8(row, uint8(r.Why))
	w.weight.put32(row, r.Weight)
	w.requests.put32(row, r.Requests)
	w.seq.put32(row, r.Seq)
	w.status.put8(row, uint8(r.Status))
	w.http.put32(row, uint32(r.HTTP))
	w.flags.putText(row, w.words.FlagNames(r.Flags))
	w.label.putText(row, r.Label)
	w.bytesIn.put64(row, r.BytesIn)
	w.bytesOut.put64(row, r.BytesOut)
	w.unacked.put32(row, r.Unacked)
	w.retrans.put32(row, r.Retrans)
	w.rtt.put64(row, uint64(r.RTTNS/1000))
	w.minRTT.put64(row, uint64(r.MinRTTNS/1000))
	w.mss.put32(row, r.MSS)
	w.firstByte.put64(row, uint64(r.FirstByte/1000))
	for i, c := range w.ledger {
		if v := r.Ledger[i]; v != 0 || c.used {
			c.put64(row, uint64(v/1000))
		}
	}
	if r.Followed {
		w.followed.put8(row, 1)
	} else {
		w.followed.put8(row, 0)
	}
	for i, c := range w.split {
		if v := r.Split[i]; v != 0 || c.used {
			c.put64(row, uint64(v/1000))
		}
	}
	w.rows++
}
