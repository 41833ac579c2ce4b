package diagnose

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
)

// SchemaDrops identifies the JSON of slowray drops; the number grows when it
// changes.
const SchemaDrops = "slowray.drops/1"

// DropReport is where packets died, layer by layer. Its JSON is the contract of
// schema/drops.schema.json.
type DropReport struct {
	Schema     string         `json:"schema"`
	Host       ReportHost     `json:"host"`
	Window     ReportWindow   `json:"window"`
	Port       int            `json:"port,omitempty"` // that was asked for
	Packets    uint64         `json:"packets"`
	Layers     []DroppedAt    `json:"layers"`
	Clean      []string       `json:"clean"` // layers at which nothing died
	NotChecked []Excluded     `json:"not_checked"`
	Losses     []observe.Loss `json:"losses"`
}

// DroppedAt is one layer at which packets died.
type DroppedAt struct {
	Layer   string       `json:"layer"`
	Title   string       `json:"title"`
	Packets uint64       `json:"packets"`
	Share   float64      `json:"share"` // of all, 0 to 1
	Sites   []DroppedFor `json:"sites"`
}

// DroppedFor is one place there: a rule, a queue, a device, a socket.
type DroppedFor struct {
	Place     string            `json:"place"` // in words
	NetNS     uint64            `json:"netns,omitempty"`
	PID       int               `json:"pid,omitempty"` // a process of that namespace, to enter it by
	Interface string            `json:"interface,omitempty"`
	Way       string            `json:"way"` // "in", "out"
	Packets   uint64            `json:"packets"`
	Segments  uint64            `json:"segments"`
	Share     float64           `json:"share"` // of all, 0 to 1
	Reason    string            `json:"reason,omitempty"`
	Location  string            `json:"location,omitempty"`
	Counter   string            `json:"counter,omitempty"`
	Source    string            `json:"source"`
	Rule      *DropRule         `json:"rule,omitempty"`
	Qdisc     *observe.Qdisc    `json:"qdisc,omitempty"`
	Filters   []DropFilter      `json:"filters,omitempty"`
	Link      *DropLink         `json:"link,omitempty"`
	Socket    *DropEnd          `json:"socket,omitempty"`
	Kinds     map[string]uint64 `json:"kinds,omitempty"` // segments
	Flows     []DroppedFlow     `json:"flows,omitempty"`
}

// DropRule is a firewall rule.
type DropRule struct {
	Backend string `json:"backend"`
	Family  string `json:"family"`
	Table   string `json:"table"`
	Chain   string `json:"chain"`
	Handle  uint64 `json:"handle,omitempty"`
	Number  int    `json:"number,omitempty"`
	Text    string `json:"text"`
	Verdict string `json:"verdict"`
	Counted bool   `json:"counted"`
	Among   int    `json:"among,omitempty"` // so many other rules without a counter may have been it
}

// DropFilter is a filter of traffic control.
type DropFilter struct {
	Kind       string `json:"kind"`
	Name       string `json:"name,omitempty"`
	Program    uint32 `json:"program,omitempty"`
	Preference int    `json:"preference,omitempty"`
	Action     string `json:"action,omitempty"`
}

// DropLink is a device, and the other end of its pair.
type DropLink struct {
	MTU       int    `json:"mtu"`
	Peer      string `json:"peer,omitempty"`
	PeerNetNS uint64 `json:"peer_netns,omitempty"`
	PeerMTU   int    `json:"peer_mtu,omitempty"`
	XDP       string `json:"xdp,omitempty"`
	Program   uint32 `json:"program,omitempty"`
}

// DroppedFlow is between whom, with the processes at the ends that are on this
// host.
type DroppedFlow struct {
	From     DropEnd `json:"from"`
	To       DropEnd `json:"to"`
	Segments uint64  `json:"segments"`
}

// DropEnd is one end of a flow.
type DropEnd struct {
	Addr string `json:"addr,omitempty"`
	Port int    `json:"port,omitempty"`
	PID  int    `json:"pid,omitempty"`
	Comm string `json:"comm,omitempty"`
}

const maxDropFlows = 8 // of one place

// Drops puts what was dropped in order, until ctx is done or the bound is reached;
// the report says then under NotChecked that it is not whole.
func Drops(ctx context.Context, o *observe.Observation, b Bound) DropReport {
	j := begin(ctx, b)
	defer j.done()
	r := DropReport{
		Schema: SchemaDrops,
		Host:   ReportHost{Name: o.Host.Name, Kernel: o.Host.Kernel, CPUs: o.Host.CPUs, BootID: o.Host.BootID},
		Window: ReportWindow{Start: o.Window.Start, Seconds: o.Window.Seconds},
		Port:   o.Filter.Port, Layers: []DroppedAt{}, Clean: []string{}, NotChecked: []Excluded{}, Losses: append([]observe.Loss{}, o.Losses...),
	}
	if !j.do(func() { r.addLayers(cause.NewViewUntil(o, j.stop), o.Filter.Port) }) {
		r.NotChecked = append(r.NotChecked, Excluded{string(observe.KindDrops), "not all that was dropped is listed: " + j.ended})
	}
	for i := range r.Layers {
		l := &r.Layers[i]
		l.Share = portion(l.Packets, r.Packets)
		for j := range l.Sites {
			l.Sites[j].Share = portion(l.Sites[j].Packets, r.Packets)
		}
	}
	for _, g := range o.Gaps {
		r.NotChecked = append(r.NotChecked, Excluded{string(g.Kind), gapText(g)})
	}
	if o.Drops != nil && !o.Drops.Reasons {
		r.NotChecked = append(r.NotChecked, Excluded{string(observe.KindDrops), "this kernel gives no reasons for drops (needs Linux 5.17): they are sorted by the kernel's functions"})
	}
	return r
}

// addLayers adds the layers at which packets died, and those at which none did.
func (r *DropReport) addLayers(v *cause.View, port int) {
	for _, layer := range cause.DropLayers() {
		at := DroppedAt{Layer: string(layer), Title: layer.Title()}
		for _, s := range v.Sites() {
			if s.Layer != layer || !concerns(s, port) {
				continue
			}
			at.Packets += s.Packets
			at.Sites = append(at.Sites, droppedFor(v, s))
		}
		if len(at.Sites) == 0 {
			r.Clean = append(r.Clean, at.Layer)
			continue
		}
		slices.SortStableFunc(at.Sites, func(a, b DroppedFor) int { return cmp.Compare(b.Packets, a.Packets) })
		r.Packets += at.Packets
		r.Layers = append(r.Layers, at)
	}
}

func portion(a, b uint64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a*10000/b) / 10000
}

// concerns says whether packets from or to a port died at a site; without
// ports that are known, they may have.
func concerns(s *cause.DropSite, port int) bool {
	if port == 0 || s.Listener != nil && s.Listener.Port == port {
		return true
	}
	if s.Listener != nil {
		return false
	}
	flows := s.Flows()
	return len(flows) == 0 && s.Counter != "" || slices.ContainsFunc(flows, func(f observe.DropFlow) bool { return f.SrcPort == port || f.DstPort == port })
}

func droppedFor(v *cause.View, s *cause.DropSite) DroppedFor {
	d := DroppedFor{
		Place: v.PlaceOf(s), NetNS: s.NetNS, Interface: s.Interface, Way: map[bool]string{true: "in", false: "out"}[s.In],
		Packets: s.Packets, Segments: s.Segments, Reason: s.Reason, Location: s.Location, Counter: s.Counter, Source: s.Source, Qdisc: s.Qdisc, Kinds: s.Kinds(),
	}
	if ns := v.Namespace(s.NetNS); ns != nil {
		d.PID = ns.PID
	}
	if r := s.Rule; r != nil {
		d.Rule = &DropRule{r.Backend, r.Family, r.Table, r.Chain, r.Handle, r.Number, r.Text, r.Verdict, r.Counted, s.Among}
	}
	for _, f := range s.Filters {
		d.Filters = append(d.Filters, DropFilter{f.Kind, f.Name, f.Program, f.Preference, f.Action})
	}
	if l := s.Link; l != nil {
		d.Link = &DropLink{l.MTU, l.PeerName, l.PeerNetNS, l.PeerMTU, l.XDP, l.XDPProgram}
	}
	if l := s.Listener; l != nil {
		d.Socket = &DropEnd{l.Addr, l.Port, v.Master(l.PID), v.Comm(v.Master(l.PID))}
	}
	for _, f := range s.Flows() {
		if len(d.Flows) == maxDropFlows {
			break
		}
		d.Flows = append(d.Flows, DroppedFlow{
			From: dropEnd(v, f.Src, f.SrcPort, f.Dst, f.DstPort), To: dropEnd(v, f.Dst, f.DstPort, f.Src, f.SrcPort), Segments: f.Segments})
	}
	return d
}

// dropEnd finds the process at an end of a flow, where it is on this host: it
// listens at the port, or has connections to the other end's.
func dropEnd(v *cause.View, addr string, port int, other string, otherPort int) DropEnd {
	e := DropEnd{Addr: addr, Port: port}
	for i := range v.Namespaces {
		v.Step()
		ns := &v.Namespaces[i]
		if !slices.Contains(ns.Addrs, addr) && !loopback(addr) {
			continue
		}
		for j := range ns.Listeners {
			if l := &ns.Listeners[j]; port != 0 && l.Port == port && strings.HasPrefix(l.Proto, "tcp") {
				e.PID = v.Master(l.PID)
			}
		}
		for j := range ns.Sockets {
			if g := &ns.Sockets[j]; e.PID == 0 && g.Side == "called" && g.Port == otherPort && g.Remote == other && len(g.PIDs) > 0 {
				e.PID = v.Master(g.PIDs[0])
			}
		}
	}
	if e.PID != 0 {
		e.Comm = v.Comm(e.PID)
	}
	return e
}

func loopback(addr string) bool {
	a, err := netip.ParseAddr(addr)
	return err == nil && a.IsLoopback()
}
