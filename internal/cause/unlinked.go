package cause

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// SightKind is what kind of trouble was seen.
type SightKind string

// The kinds of trouble that may stand next to harm without being linked to it.
const (
	SightDrop      SightKind = "drop"       // packets dropped at one place
	SightStopped   SightKind = "stopped"    // a process that is stopped, or traced and halted
	SightQueue     SightKind = "full_queue" // a listening socket whose queue was full, or that dropped
	SightThrottled SightKind = "throttled"  // a control group that its CPU quota held back
	SightError     SightKind = "call_error" // system calls that failed for lack of something
)

// Sight is trouble that was seen in the window of harm, and that no finding is about.
type Sight struct {
	Kind  SightKind `json:"kind"`
	NetNS uint64    `json:"netns,omitempty"`
	PID   int       `json:"pid,omitempty"`
	Comm  string    `json:"comm,omitempty"`
	Count uint64    `json:"count,omitempty"` // packets, attempts, periods or calls
	Text  string    `json:"text"`
}

// Unlinked lists the trouble that was seen while somebody was harmed and that no
// finding is about, most of each kind first: nobody is to find it elsewhere and wonder.
// Where nobody was harmed it is empty.
func (v *View) Unlinked(a *Account, findings []Finding) []Sight {
	if len(a.Victims) == 0 {
		return nil
	}
	about := func(is func(*Finding) bool) bool {
		for i := range findings {
			if is(&findings[i]) {
				return true
			}
		}
		return false
	}
	var out []Sight
	for _, s := range v.sites {
		v.Step()
		if s.Packets >= fewPackets && !about(func(f *Finding) bool { return f.site == s || f.site == nil && f.dropsAt(s) }) {
			out = append(out, Sight{Kind: SightDrop, NetNS: s.NetNS, Count: s.Packets, Text: fmt.Sprintf("%s packets were dropped %s", count(s.Packets), v.PlaceOf(s))})
		}
	}
	for i := range v.Processes {
		p := &v.Processes[i]
		if p.State != "T" && p.State != "t" || v.own(p.PID, p.Comm) || about(func(f *Finding) bool { return f.involves(v, p.PID) }) {
			continue
		}
		how := "stopped by a signal"
		if p.State == "t" {
			how = "halted by its tracer"
		}
		out = append(out, Sight{Kind: SightStopped, NetNS: p.NetNS, PID: p.PID, Comm: p.Comm, Text: fmt.Sprintf("%s (pid %d) is %s", p.Comm, p.PID, how)})
	}
	for _, service := range v.Services {
		for _, l := range service.Listeners {
			if l.Drops < fewAffected || v.own(l.PID, l.Comm) || about(func(f *Finding) bool {
				return f.Subject.Port == l.Port && f.Subject.NetNS == service.NS.Inode || f.involves(v, l.PID)
			}) {
				continue
			}
			if service.NS.Counters["TcpExt.ListenOverflows"] == 0 { // sk_drops counts more: see overflowOf
				out = append(out, Sight{Kind: SightDrop, NetNS: service.NS.Inode, PID: l.PID, Comm: l.Comm, Count: l.Drops,
					Text: fmt.Sprintf("%s packets to the listening socket at port %d of %s (pid %d) were dropped, none of them for a full accept queue", count(l.Drops), l.Port, l.Comm, l.PID)})
				continue
			}
			out = append(out, Sight{Kind: SightQueue, NetNS: service.NS.Inode, PID: l.PID, Comm: l.Comm, Count: l.Drops,
				Text: fmt.Sprintf("%s connection attempts were dropped at port %d of %s (pid %d); its accept queue held up to %s", count(l.Drops), l.Port, l.Comm, l.PID, ofLimit(l.QueuePeak, l.Limit, "connections"))})
		}
	}
	for i := range v.Cgroups {
		c := &v.Cgroups[i]
		if c.ThrottledSeconds < throttledSeconds*v.Window.Seconds || about(func(f *Finding) bool {
			return f.Subject.Path == c.Path || slices.ContainsFunc(c.PIDs, func(pid int) bool { return f.Cause == CPUQuotaThrottled && f.involves(v, pid) })
		}) {
			continue
		}
		out = append(out, Sight{Kind: SightThrottled, Count: c.ThrottledPeriods,
			Text: fmt.Sprintf("the CPU quota of control group %s held its threads back in %s periods, for %s in all", c.Path, count(c.ThrottledPeriods), seconds(c.ThrottledSeconds))})
	}
	for i := range v.CallErrors {
		e := &v.CallErrors[i]
		if e.Calls < fewAffected || !v.OnPath(e.PID) || v.own(e.PID, e.Comm) || about(func(f *Finding) bool { return f.involves(v, e.PID) }) {
			continue
		}
		text := fmt.Sprintf("%s calls of %s by %s (pid %d) failed with %s", count(e.Calls), e.Call, e.Comm, e.PID, e.Error)
		if e.Path != "" {
			text += " on " + e.Path
		}
		out = append(out, Sight{Kind: SightError, NetNS: e.NetNS, PID: e.PID, Comm: e.Comm, Count: e.Calls, Text: text})
	}
	slices.SortStableFunc(out, func(x, y Sight) int {
		return cmp.Or(cmp.Compare(slices.Index(sightOrder, x.Kind), slices.Index(sightOrder, y.Kind)), cmp.Compare(y.Count, x.Count))
	})
	return out[:min(len(out), sightsAtMost)]
}

// sightOrder puts first what most often turns out to be the cause after all.
var sightOrder = []SightKind{SightStopped, SightQueue, SightDrop, SightThrottled, SightError}

// own says that a process is slowray's: this one, or one that records.
func (v *View) own(pid int, comm string) bool { return pid != 0 && pid == v.Self || comm == "slowray" }

// dropsAt says that a finding which was not made from one site is about packets that
// died at this one.
func (f *Finding) dropsAt(s *DropSite) bool {
	if s.Listener != nil && f.Subject.Port == s.Listener.Port && f.Subject.NetNS == s.NetNS {
		return true
	}
	if f.Cause == UpstreamRefused && s.Layer == DropNoSocket {
		return s.mostlyTo(f.Subject.Port) // they are the SYNs that a reset answers
	}
	return f.is(ClassDrop) && f.Subject.NetNS == s.NetNS && (f.Subject.Interface == "" || f.Subject.Interface == s.Interface)
}

// mostlyTo says that half of the packets that died there, or more, went to a port, as far as
// that is known.
func (s *DropSite) mostlyTo(port int) bool {
	var to, all uint64
	for _, f := range s.Flows() {
		if all += f.Segments; f.DstPort == port {
			to += f.Segments
		}
	}
	return 2*to >= all
}

// involves says that a finding is about a process, its master, or one on the chain to it.
func (f *Finding) involves(v *View, pid int) bool {
	if pid == 0 {
		return false
	}
	master := v.Master(pid)
	if f.Subject.PID == pid || f.Subject.PID == master || slices.Contains(f.Holds, pid) {
		return true
	}
	return slices.ContainsFunc(f.Chain, func(h observe.WaitHop) bool { return h.Process.PID == pid })
}
