package answer

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/anomaly"
)

// identity is what makes findings of several windows one.
type identity struct {
	host string
	of   diagnose.Identity
}

// same puts the windows of each finding together: the worst of them stands for all.
// It also says which of s.findings each one is made of.
func (s *seen) same(choose func(f *fleet.HostFinding) bool, began time.Time) (list []Finding, made [][]int) {
	index := map[identity]int{}
	for i := range s.findings {
		f := &s.findings[i]
		if !choose(f) {
			continue
		}
		in := f.End.After(s.q.From) && f.Start.Before(s.q.To)
		before := f.End.Before(began)
		id := identity{f.Host, diagnose.IdentityOf(&f.Finding.Finding)}
		k, known := index[id]
		if !known {
			if !in && !before {
				continue
			}
			k = len(list)
			index[id] = k
			list = append(list, Finding{Host: f.Host, Start: f.Start.UTC(), End: f.End.UTC(), Figures: f.Start.UTC(), Finding: f.Finding.Finding})
			made = append(made, nil)
		}
		l := &list[k]
		made[k] = append(made[k], i)
		l.Before = l.Before || before
		if !in {
			continue
		}
		if l.Windows++; l.Windows == 1 {
			l.Start = f.Start.UTC()
		}
		if f.Impact.Share >= l.Finding.Impact.Share {
			l.Finding, l.Figures = f.Finding.Finding, f.Start.UTC()
		}
		if f.End.After(l.End) {
			l.End = f.End.UTC()
		}
	}
	// What was found before only is not of the range.
	kept, keptMade := list[:0], made[:0]
	for i := range list {
		if list[i].Windows > 0 {
			kept, keptMade = append(kept, list[i]), append(keptMade, made[i])
		}
	}
	return kept, keptMade
}

// attach gives a cause the findings of the hosts that it is on, those that tell of it
// most likely first, and says which of s.findings they are made of.
func (s *seen) attach(c *Cause, shared *anomaly.Shared, origin *fleet.Key) (used []int) {
	if origin == nil {
		return s.attachShared(c, shared)
	}
	list, made := s.same(func(f *fleet.HostFinding) bool { return f.Host == origin.Host }, c.Since.Add(-10*time.Second))
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int {
		a, b := &list[x], &list[y]
		return cmp.Or(compareBool(near(&b.Finding, c.Origin), near(&a.Finding, c.Origin)), compareBool(!b.Before, !a.Before),
			compareBool(b.Finding.Role == cause.RoleCause, a.Finding.Role == cause.RoleCause),
			cmp.Compare(b.Finding.Impact.Share, a.Finding.Impact.Share), cmp.Compare(a.Finding.Cause, b.Finding.Cause))
	})
	for _, i := range order {
		// What is about another service of the host, and was there before, is none of this.
		if list[i].Before && !near(&list[i].Finding, c.Origin) {
			continue
		}
		c.Findings = append(c.Findings, list[i])
		used = append(used, made[i]...)
	}
	return used
}

// near says that a finding is about the origin's service, or about the whole host.
func near(f *cause.Finding, o *Origin) bool {
	switch {
	case f.Subject.Port != 0:
		return f.Subject.Port == o.Port
	case f.Subject.PID != 0 && f.Subject.PID == o.PID:
		return true
	case f.Subject.Comm != "":
		return f.Subject.Comm == o.Comm || f.Subject.Comm == program(o.Service)
	}
	return true
}

// attachShared gives a cause that is of many hosts the findings that are found on those
// that share it more often than on others.
func (s *seen) attachShared(c *Cause, shared *anomaly.Shared) (used []int) {
	inside := map[string]bool{}
	for _, k := range shared.Members {
		inside[k.Host] = true
	}
	list, made := s.same(func(*fleet.HostFinding) bool { return true }, c.Since.Add(-10*time.Second))
	type tally struct {
		in, out map[string]bool
		worst   int
		made    []int
	}
	byCause := map[string]*tally{}
	var order []string
	for i := range list {
		name := list[i].Finding.Cause
		t := byCause[string(name)]
		if t == nil {
			t = &tally{in: map[string]bool{}, out: map[string]bool{}, worst: -1}
			byCause[string(name)] = t
			order = append(order, string(name))
		}
		if !inside[list[i].Host] {
			t.out[list[i].Host] = true
			continue
		}
		t.in[list[i].Host] = true
		t.made = append(t.made, made[i]...)
		if t.worst < 0 || list[i].Finding.Impact.Share > list[t.worst].Finding.Impact.Share {
			t.worst = i
		}
	}
	others := max(len(s.hosts)-len(inside), 1)
	for _, name := range order {
		t := byCause[name]
		// On a third of them, and three times as often as elsewhere.
		if share := float64(len(t.in)) / float64(max(len(inside), 1)); t.worst < 0 || share < 1./3 || share < 3*float64(len(t.out))/float64(others) {
			continue
		}
		f := list[t.worst]
		f.Hosts, f.Elsewhere = len(t.in), len(t.out)
		c.Findings = append(c.Findings, f)
		used = append(used, t.made...)
	}
	slices.SortStableFunc(c.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(b.Hosts, a.Hosts), cmp.Compare(b.Finding.Impact.Share, a.Finding.Impact.Share))
	})
	return used
}

// otherFindings are those in the range that belong to no cause.
func (s *seen) otherFindings(told map[int]bool) []Finding {
	index := map[*fleet.HostFinding]bool{}
	for i := range s.findings {
		index[&s.findings[i]] = told[i]
	}
	list, _ := s.same(func(f *fleet.HostFinding) bool {
		return !index[f] && (s.q.Host == "" || s.q.Host == f.Host) && (s.q.Service == "" || s.runs(f.Host))
	}, s.q.From)
	slices.SortStableFunc(list, func(a, b Finding) int {
		return cmp.Or(compareBool(b.Finding.Role == cause.RoleCause, a.Finding.Role == cause.RoleCause),
			cmp.Compare(b.Finding.Impact.Share, a.Finding.Impact.Share), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Finding.Cause, b.Finding.Cause))
	})
	return list
}

// runs says that the service that was asked for is seen on a host.
func (s *seen) runs(host string) bool {
	for k := range s.m.Served {
		if k.Host == host && s.asked(&k) {
			return true
		}
	}
	return false
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// subjectText names what a finding is about, as far as the origin does not say it.
func subjectText(x *cause.Subject, o *Origin) string {
	var parts []string
	switch {
	case x.Comm != "":
		text, pid := x.Comm, x.PID
		if pid == 0 && x.Comm == o.Comm {
			pid = o.PID
		}
		if pid != 0 {
			text += fmt.Sprintf(" (pid %d)", pid)
		}
		parts = append(parts, text)
	case x.Addr != "" && x.Port != 0:
		parts = append(parts, net.JoinHostPort(x.Addr, strconv.Itoa(x.Port)))
	case x.Interface != "":
		parts = append(parts, x.Interface)
	}
	if in := x.Workload.ContainerText(); in != "" {
		parts = append(parts, in)
	} else if x.Container != "" {
		parts = append(parts, "container "+x.Container)
	}
	if x.Path != "" {
		parts = append(parts, x.Kind+" "+x.Path)
	}
	return strings.Join(parts, ", ")
}

func addrPort(k *fleet.Key) string { return net.JoinHostPort(k.Addr, strconv.Itoa(k.Port)) }
