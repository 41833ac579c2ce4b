package clickhouse

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// Requests implements fleet.Archive. At the calling end the question's port is the
// one that is called.
func (db *DB) Requests(ctx context.Context, q fleet.Question, f func(host string, r *store.Request) bool) error {
	histories, err := db.histories(ctx, &q)
	if err != nil {
		return fmt.Errorf("clickhouse: requests: %w", err)
	}
	conditions := db.conditions(&q, "if(side = 'called', peer_port, port)", histories)
	if !q.From.IsZero() {
		conditions += fmt.Sprintf(" AND start_us >= %d", q.From.UnixMicro())
	}
	if !q.To.IsZero() {
		conditions += fmt.Sprintf(" AND start_us < %d", q.To.UnixMicro())
	}
	all, _, err := db.edges(ctx, "requests", spanOf(&q), conditions)
	if err != nil {
		return fmt.Errorf("clickhouse: requests: %w", err)
	}
	left := q.Most // of those that are asked for
	// The server puts a minute at a time in order: what it needs for that is bounded.
	for from := all.from; from < all.to; {
		to := min((from/60+1)*60, all.to)
		more, err := db.someRequests(ctx, span{from, to}, conditions, left, func(host string, r *store.Request) bool {
			left--
			return f(host, r) && (q.Most == 0 || left > 0)
		})
		if err != nil {
			return fmt.Errorf("clickhouse: requests: %w", err)
		}
		if !more {
			return nil
		}
		if from = to; from < all.to {
			// Minutes without any are passed over at once.
			next, _, err := db.edges(ctx, "requests", span{from, all.to}, conditions)
			if err != nil {
				return fmt.Errorf("clickhouse: requests: %w", err)
			}
			if next.to == 0 {
				return nil
			}
			from = next.from
		}
	}
	return nil
}

// requestReader takes requests out of an answer.
type requestReader struct {
	host, addr, peerAddr, comm, cgroup, container, containerName, unit, flags, label proto.ColStr
	numbers                                                                          map[string]*proto.ColInt64
	results                                                                          proto.Results
	list                                                                             []string
	addrs                                                                            map[string]netip.Addr
}

func newRequestReader() *requestReader {
	r := &requestReader{numbers: map[string]*proto.ColInt64{}, addrs: map[string]netip.Addr{}}
	texts := map[string]*proto.ColStr{
		"host": &r.host, "addr": &r.addr, "peer_addr": &r.peerAddr, "comm": &r.comm, "cgroup": &r.cgroup, "container": &r.container,
		"container_name": &r.containerName, "unit": &r.unit, "flags": &r.flags, "label": &r.label,
	}
	for _, c := range requestDefs {
		if text := texts[c.name]; text != nil {
			r.results = append(r.results, proto.ResultColumn{Data: text})
			r.list = append(r.list, "CAST("+name(c.name)+" AS String) AS "+name(c.name+"_"))
			continue
		}
		switch c.name {
		case "history", "position", "batch", "day", "time", "service":
			continue
		}
		v := new(proto.ColInt64)
		r.numbers[c.name] = v
		r.results = append(r.results, proto.ResultColumn{Data: v})
		r.list = append(r.list, "toInt64("+name(c.name)+") AS "+name(c.name+"_"))
	}
	return r
}

func (db *DB) someRequests(ctx context.Context, s span, conditions string, most int, f func(host string, r *store.Request) bool) (more bool, err error) {
	more = true
	in := newRequestReader()
	statement := "SELECT " + strings.Join(in.list, ", ") + " FROM requests WHERE " + s.where() + conditions + " ORDER BY start_us_, host_, position"
	if most > 0 {
		statement += fmt.Sprintf(" LIMIT %d", most)
	}
	given := false
	err = db.anyServer(ctx, func(server string, d Dialect) error {
		return db.c.query(ctx, server, d, maxPassed, statement, in.results, func(n int) bool {
			given = true
			var r store.Request
			for i := range n {
				in.read(i, &r)
				if more = f(in.host.Row(i), &r); !more {
					return false
				}
			}
			return true
		})
	})
	if err != nil && given {
		return false, fmt.Errorf("in the midst of the answer: %w", err)
	}
	return more, err
}

func (in *requestReader) address(c *proto.ColStr, i int) netip.Addr {
	text := c.RowBytes(i)
	a, ok := in.addrs[string(text)]
	if !ok && len(text) > 0 {
		if len(in.addrs) >= maxWords {
			clear(in.addrs)
		}
		a, _ = netip.ParseAddr(string(text))
		in.addrs[string(text)] = a
	}
	return a
}

// read makes the request of a row.
func (in *requestReader) read(i int, r *store.Request) {
	n := func(column string) int64 { return (*in.numbers[column])[i] }
	*r = store.Request{
		Request: observe.Request{
			Side: observe.Side(n("side")), StartNS: n("start_us") * 1000, NetNS: uint64(n("netns")),
			Local: netip.AddrPortFrom(in.address(&in.addr, i), uint16(n("port"))), Peer: netip.AddrPortFrom(in.address(&in.peerAddr, i), uint16(n("peer_port"))),
			PID: int(n("pid")), TID: int(n("tid")), Seq: uint32(n("seq")), Requests: uint32(n("requests")), Weight: uint32(n("weight")),
			BytesIn: uint64(n("bytes_in")), BytesOut: uint64(n("bytes_out")), Unacked: uint32(n("unacked_bytes")), Retrans: uint32(n("retrans")),
			RTTNS: n("rtt_us") * 1000, MinRTTNS: n("min_rtt_us") * 1000, MSS: uint32(n("mss_bytes")), Status: observe.Status(n("status")),
			HTTP: int(n("http_status")), Label: in.label.Row(i), FirstByte: n("first_byte_us") * 1000, Followed: n("followed") != 0,
		},
		Process: observe.Identity{Comm: in.comm.Row(i), Cgroup: in.cgroup.Row(i), Container: in.container.Row(i), ContainerName: in.containerName.Row(i), Unit: in.unit.Row(i)},
		Why:     store.Why(n("why")),
	}
	for name := range strings.SplitSeq(in.flags.Row(i), ",") {
		if bit, ok := flagByName[name]; ok {
			r.Flags |= 1 << bit
		}
	}
	for p := range observe.NumParts {
		r.Ledger[p] = n(partColumn(p)) * 1000
	}
	for p := range observe.NumServerParts {
		r.Split[p] = n(splitColumn(p)) * 1000
	}
}
