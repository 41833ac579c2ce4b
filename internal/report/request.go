package report

import (
	"encoding/hex"
	"math/bits"
	"net/netip"
	"strconv"

	"github.com/slowray/slowray/internal/observe"
)

// SchemaRequest identifies the JSON form of a request.
const SchemaRequest = "slowray.request/1"

// requestFlags are the names of observe.RequestFlags by bit. Bits without a
// name stay empty.
var requestFlags = func() (names [32]string) {
	for bit := range names {
		if name := observe.RequestFlags(1 << bit).Names(); len(name) == 1 {
			names[bit] = name[0]
		}
	}
	return names
}()

// AppendRequestJSON appends r as one line in the form of
// schema/request.schema.json, with its newline. Times are microseconds with
// three decimals, so no nanosecond is lost. The parts of the ledger that are
// zero are left out, but server and network stand there always, unless the
// request overlapped others: then nothing is said about the parts but what is
// known. What server is made of follows it, where the request was followed. processOf may be nil. peer is who
// was at the other end. Nothing is allocated when dst has room.
func AppendRequestJSON(dst []byte, r *observe.Request, processOf observe.IdentityOf, peer *observe.Workload) []byte {
	dst = append(dst, `{"schema":"`+SchemaRequest+`","side":"`...)
	dst = append(dst, r.Side.String()...)
	dst = append(dst, `","start":"`...)
	dst = appendStamp(dst, r.StartNS)
	dst = append(dst, `","netns":`...)
	dst = strconv.AppendUint(dst, r.NetNS, 10)
	dst = appendJSONAddr(dst, `,"addr":"`, `","port":`, r.Local)
	dst = appendJSONAddr(dst, `,"peer_addr":"`, `","peer_port":`, r.Peer)
	if r.PID != 0 {
		dst = appendJSONProcess(dst, r, processOf)
	}
	dst = appendJSONWorkload(dst, `,"peer_workload":{`, peer)
	dst = append(dst, `,"seq":`...)
	dst = strconv.AppendUint(dst, uint64(r.Seq), 10)
	if r.Requests > 1 {
		dst = append(dst, `,"requests":`...)
		dst = strconv.AppendUint(dst, uint64(r.Requests), 10)
	}
	if r.Weight > 1 {
		dst = append(dst, `,"weight":`...)
		dst = strconv.AppendUint(dst, uint64(r.Weight), 10)
	}
	dst = append(dst, `,"bytes_in":`...)
	dst = strconv.AppendUint(dst, r.BytesIn, 10)
	dst = append(dst, `,"bytes_out":`...)
	dst = strconv.AppendUint(dst, r.BytesOut, 10)
	dst = append(dst, `,"retrans":`...)
	dst = strconv.AppendUint(dst, uint64(r.Retrans), 10)
	dst = appendJSONMicros(dst, `,"rtt_us":`, r.RTTNS)
	dst = appendJSONMicros(dst, `,"min_rtt_us":`, r.MinRTTNS)
	dst = append(dst, `,"total_us":`...)
	dst = appendMicros(dst, r.TotalNS())
	dst = appendJSONLedger(dst, r)
	dst = appendJSONOpening(dst, &r.Opening)
	dst = append(dst, `,"status":"`...)
	dst = append(dst, r.Status.String()...)
	dst = append(dst, `","http_status":`...)
	if r.HTTP == 0 {
		dst = append(dst, "null"...)
	} else {
		dst = strconv.AppendInt(dst, int64(r.HTTP), 10)
	}
	dst = append(dst, `,"flags":[`...)
	for i, f := 0, uint32(r.Flags); f != 0; f &= f - 1 {
		name := requestFlags[bits.TrailingZeros32(f)]
		if name == "" {
			continue
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		i++
		dst = append(append(append(dst, '"'), name...), '"')
	}
	dst = append(dst, ']')
	if r.Label != "" {
		dst = append(dst, `,"label":`...)
		dst = AppendJSONString(dst, r.Label)
	}
	if r.Trace.Known() {
		dst = hex.AppendEncode(append(dst, `,"trace_id":"`...), r.Trace.ID[:])
		dst = hex.AppendEncode(append(dst, `","parent_span_id":"`...), r.Trace.Parent[:])
		dst = append(dst, '"')
	}
	return append(dst, "}\n"...)
}

func appendJSONAddr(dst []byte, addr, port string, a netip.AddrPort) []byte {
	dst = append(dst, addr...)
	if a.IsValid() {
		dst = a.Addr().Unmap().WithZone("").AppendTo(dst)
	}
	dst = append(dst, port...)
	return strconv.AppendUint(dst, uint64(a.Port()), 10)
}

// appendJSONMicros appends a measured time, null when there is none.
func appendJSONMicros(dst []byte, key string, ns int64) []byte {
	dst = append(dst, key...)
	if ns <= 0 {
		return append(dst, "null"...)
	}
	return appendMicros(dst, ns)
}

func appendJSONLedger(dst []byte, r *observe.Request) []byte {
	dst = append(dst, `,"ledger_us":{`...)
	always := r.Flags&observe.FlagOverlapped == 0
	first := true
	for p, ns := range r.Ledger {
		part := observe.Part(p)
		if ns == 0 && (!always || part != observe.Server && part != observe.Network) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(append(append(dst, '"'), part.String()...), `":`...)
		dst = appendMicros(dst, ns)
		if part != observe.Server || !r.Followed {
			continue
		}
		for q, ns := range r.Split {
			if ns != 0 {
				dst = append(append(append(dst, `,"`...), observe.ServerPart(q).String()...), `":`...)
				dst = appendMicros(dst, ns)
			}
		}
	}
	return append(dst, '}')
}

// appendJSONOpening appends how the connection was opened, nothing where that is not known.
func appendJSONOpening(dst []byte, o *observe.Opening) []byte {
	if o.Connect == 0 {
		return dst
	}
	dst = append(dst, `,"connection_us":{`...)
	if o.DNS != 0 {
		dst = append(appendMicros(append(dst, `"dns":`...), o.DNS), ',')
	}
	dst = appendMicros(append(dst, `"connect":`...), o.Connect)
	return append(appendMicros(append(dst, `,"idle":`...), o.Idle), '}')
}

func appendJSONProcess(dst []byte, r *observe.Request, processOf observe.IdentityOf) []byte {
	dst = append(dst, `,"process":{"pid":`...)
	dst = strconv.AppendInt(dst, int64(r.PID), 10)
	var p observe.Identity
	if processOf != nil {
		p, _ = processOf(r.PID, endOf(r))
	}
	dst = append(dst, `,"comm":`...)
	dst = AppendJSONString(dst, p.Comm)
	dst = append(dst, `,"cgroup":`...)
	dst = AppendJSONString(dst, p.Cgroup)
	dst = appendJSONName(dst, `,"container":`, p.Container)
	if p.ContainerName != "" {
		dst = append(dst, `,"container_name":`...)
		dst = AppendJSONString(dst, p.ContainerName)
	}
	dst = appendJSONName(dst, `,"unit":`, p.Unit)
	dst = appendJSONWorkload(dst, `,"workload":{`, &p.Workload)
	return append(dst, '}')
}

// appendJSONWorkload appends who it is in Kubernetes, nothing where that is not known.
func appendJSONWorkload(dst []byte, key string, w *observe.Workload) []byte {
	if w == nil || *w == (observe.Workload{}) {
		return dst
	}
	dst = append(dst, key...)
	first := true
	for _, f := range [...]struct{ key, value string }{
		{`"namespace":`, w.Namespace}, {`"pod":`, w.Pod}, {`"container":`, w.Container}, {`"kind":`, w.Kind}, {`"name":`, w.Name}, {`"node":`, w.Node}, {`"zone":`, w.Zone}, {`"service":`, w.Service},
	} {
		if f.value == "" {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = AppendJSONString(append(dst, f.key...), f.value)
	}
	return append(dst, '}')
}

// appendJSONName appends a name, null when there is none.
func appendJSONName(dst []byte, key, name string) []byte {
	dst = append(dst, key...)
	if name == "" {
		return append(dst, "null"...)
	}
	return AppendJSONString(dst, name)
}

// endOf is when a request ended, wall clock: by then its process was there.
func endOf(r *observe.Request) int64 { return r.StartNS + r.TotalNS() }
