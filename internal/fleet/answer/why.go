package answer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/anomaly"
	"github.com/slowray/slowray/internal/fleet/servicemap"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// Why says why services of the fleet are slow.
func Why(ctx context.Context, a fleet.Archive, q Question) (*Report, error) {
	q.From, q.To = q.From.Truncate(time.Second).UTC(), q.To.Truncate(time.Second).UTC()
	if err := q.check(); err != nil {
		return nil, err
	}
	var s *seen
	if err := inPart(ctx, a, func(absent []string) error {
		s = newSeen(a, q)
		s.absent = absent
		return s.collect(ctx, a, nil)
	}); err != nil {
		return nil, err
	}
	return s.report(ctx, a)
}

// report makes a Report of what was collected.
func (s *seen) report(ctx context.Context, a fleet.Archive) (*Report, error) {
	q := &s.q
	r := &Report{
		Schema: Schema, From: q.From, To: q.To, Question: Asked{q.Service, q.Host},
		Causes: []Cause{}, Alone: []Endpoint{}, Abnormal: []Endpoint{}, Findings: []Finding{}, Clocks: []Clock{}, NotTested: []Unchecked{},
	}
	r.Fleet, r.inPart = s.extent(), len(s.absent) > 0
	told := map[int]bool{} // findings that belong to a cause
	named := map[string]bool{}
	explained := map[fleet.Key]bool{}
	for i := range s.explanation.Shared {
		shared := &s.explanation.Shared[i]
		for _, k := range shared.Explains {
			explained[k] = true
		}
		if !s.concerns(shared) {
			continue
		}
		c, used, err := s.cause(ctx, a, shared)
		if err != nil {
			return nil, err
		}
		for _, f := range used {
			told[f] = true
		}
		named[c.host()] = true
		for _, e := range c.Chain {
			named[e.Host] = true
		}
		r.Causes = append(r.Causes, *c)
	}
	for i := range s.anomalies {
		x := &s.anomalies[i]
		if !s.asked(&x.Key) {
			continue
		}
		r.Abnormal = append(r.Abnormal, endpointOf(x))
		if !explained[x.Key] {
			r.Alone = append(r.Alone, endpointOf(x))
		}
	}
	worstFirst(r.Abnormal)
	worstFirst(r.Alone)
	r.Findings = append(r.Findings, s.otherFindings(told)...)
	r.Clocks = append(r.Clocks, s.clocksOf(named)...)
	r.NotTested = append(r.NotTested, s.notChecked(r)...)
	return r, nil
}

func worstFirst(list []Endpoint) {
	slices.SortStableFunc(list, func(x, y Endpoint) int { return cmp.Compare(y.AddedUS, x.AddedUS) })
}

// extent is how much was looked at.
func (s *seen) extent() Extent {
	x := Extent{Hosts: len(s.hosts), Judged: len(s.population), Endpoints: len(s.m.Served) + len(s.m.Called), Joined: len(s.m.Joins.All)}
	for i := range s.hosts {
		if s.silent(&s.hosts[i]) {
			x.Silent++
		}
	}
	for _, v := range s.m.Served {
		x.Requests += v.Requests
		x.Errors += v.Errors
	}
	if s.first > 0 {
		x.History = max(s.q.From.Sub(time.Unix(s.first, 0)).Seconds(), 0)
	}
	return x
}

// seconds is how much of the range there can be figures of: a fleet may have begun in it.
func (s *seen) seconds() float64 {
	return max(float64(s.q.To.Unix()-max(s.q.From.Unix(), s.first)), 1)
}

// asked says that the question is about an endpoint, or about all.
func (s *seen) asked(k *fleet.Key) bool {
	return (s.q.Host == "" || s.q.Host == k.Host) &&
		(s.q.Service == "" || s.q.Service == k.Service || s.q.Service == program(k.Service))
}

// concerns says that a cause has to do with what was asked: what is asked follows from
// it, or is it.
func (s *seen) concerns(shared *anomaly.Shared) bool {
	if s.q.Host == "" && s.q.Service == "" {
		return true
	}
	return slices.ContainsFunc(shared.Explains, func(k fleet.Key) bool { return s.asked(&k) }) ||
		shared.Origin != nil && s.asked(shared.Origin)
}

// program is a service without its port.
func program(service string) string {
	if i := strings.LastIndexByte(service, ':'); i > 0 {
		return service[:i]
	}
	return service
}

// cause makes a Cause of a component that abnormal endpoints share. It also says which
// of the hosts' findings belong to it.
func (s *seen) cause(ctx context.Context, a fleet.Archive, shared *anomaly.Shared) (*Cause, []int, error) {
	c := &Cause{
		Component: shared.Component, And: shared.And, Also: shared.Also, Inside: shared.Inside, InsideOf: shared.InsideOf,
		Outside: shared.Outside, OutsideOf: shared.OutsideOf, P: shared.P, Network: shared.Network,
		Evidence: []Fact{}, Findings: []Finding{}, Chain: []Endpoint{}, Affected: []Endpoint{}, RuledOut: []Unchecked{},
	}
	if c.Also == nil {
		c.Also = []anomaly.Component{}
	}
	var last int64
	ongoing := false
	since := int64(0)
	for _, k := range shared.Explains {
		x := s.byKey[k]
		if x == nil {
			continue
		}
		c.Affected = append(c.Affected, endpointOf(x))
		if since == 0 || x.Since < since {
			since = x.Since
		}
		ongoing = ongoing || x.Until == 0
		last = max(last, x.Until)
	}
	worstFirst(c.Affected)
	c.Since = time.Unix(since, 0).UTC()
	if !ongoing && last > 0 {
		until := time.Unix(last, 0).UTC()
		c.Until = &until
	}
	key, why := s.origin(shared)
	if key != nil {
		c.Origin = s.originOf(key)
		s.process(c.Origin)
	}
	c.Chain = s.chain(shared, key)
	used := s.attach(c, shared, key)
	c.nameByFindings()
	if err := s.evidence(ctx, a, c, shared, key, since); err != nil {
		return nil, nil, err
	}
	if why != "" {
		s.unknown = append(s.unknown, Unchecked{"what answers at " + shared.Value, why})
	}
	c.Text = s.sentence(c, shared, key)
	c.Next = next(c)
	return c, used, nil
}

// origin is the endpoint that the cause comes from: nil where it is none, or it is not
// known, with the reason.
func (s *seen) origin(shared *anomaly.Shared) (*fleet.Key, string) {
	if shared.Origin != nil {
		return shared.Origin, ""
	}
	switch shared.Kind {
	case anomaly.Dependency:
		return s.answers(shared)
	case anomaly.Cgroup, anomaly.Host, anomaly.Endpoint:
		host := shared.Value
		if shared.Kind == anomaly.Cgroup {
			if host, _ = anomaly.GroupOf(shared.Value); host == "" {
				return nil, ""
			}
		}
		if len(shared.Members) > 0 && shared.Kind == anomaly.Endpoint {
			host = shared.Members[0].Host
		}
		var best *anomaly.Anomaly
		for _, k := range shared.Members {
			if x := s.byKey[k]; x != nil && k.Host == host && (best == nil || x.OwnUS > best.OwnUS) {
				best = x
			}
		}
		if best != nil {
			return &best.Key, ""
		}
		return &fleet.Key{Host: host}, ""
	}
	return nil, ""
}

// answers is what answers at a dependency's address, by the map.
func (s *seen) answers(shared *anomaly.Shared) (*fleet.Key, string) {
	var best *servicemap.Edge
	for i := range s.m.Edges {
		e := &s.m.Edges[i]
		if addrPort(&e.From) != shared.Value {
			continue
		}
		if best == nil || e.To.Service != "" && best.To.Service == "" || e.To.Service != "" && s.byKey[e.To] != nil && s.byKey[best.To] == nil {
			best = e
		}
	}
	switch {
	case best == nil:
		return nil, "no call to it is in the range"
	case best.To.Host == "":
		return nil, best.Why
	}
	if best.To.Service != "" && s.byKey[best.To] == nil {
		// What answers is as usual by its own account. Where only one host is slow to
		// call it, while others call it too, it is that host or the way to it.
		if call := s.onlyCaller(shared); call != nil && shared.Outside > 0 {
			return call, best.Why
		}
	}
	return &best.To, best.Why
}

// onlyCaller is the abnormal call to a dependency, where one host makes all of them.
func (s *seen) onlyCaller(shared *anomaly.Shared) *fleet.Key {
	var call *anomaly.Anomaly
	for _, k := range shared.Explains {
		x := s.byKey[k]
		if x == nil || k.Side != observe.Called || addrPort(&k) != shared.Value {
			continue
		}
		if call != nil && call.Host != k.Host {
			return nil
		}
		if call == nil || x.AddedUS > call.AddedUS {
			call = x
		}
	}
	if call == nil {
		return nil
	}
	return &call.Key
}

// originOf names an endpoint.
func (s *seen) originOf(k *fleet.Key) *Origin {
	o := &Origin{Host: k.Host, Service: k.Service, Addr: k.Addr, Port: k.Port}
	if x := s.byKey[*k]; x != nil && x.Part != anomaly.Total {
		o.Part = x.Part.String()
	}
	return o
}

// process names the origin's process: the one that served most of the requests that
// were kept.
func (s *seen) process(o *Origin) {
	if o.Service == "" {
		return
	}
	type process struct {
		pid  int
		comm string
	}
	count := map[process]int{}
	var best process
	for i := range s.ends {
		e := &s.ends[i]
		if e.Host != o.Host || e.Service != o.Service || e.PID == 0 {
			continue
		}
		p := process{e.PID, e.Comm}
		count[p]++
		if n := count[p]; n > count[best] || n == count[best] && p.pid < best.pid {
			best = p
		}
	}
	o.PID, o.Comm = best.pid, best.comm
}

// nameByFindings names the process by a finding about it, where no request was kept.
func (c *Cause) nameByFindings() {
	o := c.Origin
	if o == nil || o.Service == "" || o.PID != 0 {
		return
	}
	for i := range c.Findings {
		if subject := &c.Findings[i].Finding.Subject; subject.PID != 0 && near(&c.Findings[i].Finding, o) {
			o.PID, o.Comm = subject.PID, subject.Comm
			return
		}
	}
}

// chain is how the users' requests come to the origin: from the endpoint that follows
// from most others, hop by hop, by what is added most.
func (s *seen) chain(shared *anomaly.Shared, origin *fleet.Key) []Endpoint {
	followed := map[fleet.Key]bool{}
	for _, k := range shared.Explains {
		if x := s.byKey[k]; x != nil {
			for _, f := range x.Follows {
				followed[f] = true
			}
		}
	}
	var at *anomaly.Anomaly
	longest := -1
	for _, k := range shared.Explains {
		x := s.byKey[k]
		if x == nil || followed[k] || !s.asked(&k) && (s.q.Host != "" || s.q.Service != "") {
			continue
		}
		if n := s.depth(x, 0); n > longest || n == longest && x.AddedUS > at.AddedUS {
			at, longest = x, n
		}
	}
	chain := []Endpoint{}
	visited := map[fleet.Key]bool{}
	for at != nil && !visited[at.Key] {
		visited[at.Key] = true
		chain = append(chain, endpointOf(at))
		at = s.next(at)
	}
	if origin != nil && origin.Service != "" && !visited[*origin] && len(chain) > 0 {
		e := named(origin)
		if x := s.byKey[*origin]; x != nil {
			e = endpointOf(x)
		}
		chain = append(chain, e)
	}
	return chain
}

// next is the endpoint that makes another one slow: of several the one that adds most.
func (s *seen) next(x *anomaly.Anomaly) *anomaly.Anomaly {
	var best *anomaly.Anomaly
	for _, f := range x.Follows {
		if y := s.byKey[f]; y != nil && (best == nil || y.AddedUS > best.AddedUS) {
			best = y
		}
	}
	return best
}

func (s *seen) depth(x *anomaly.Anomaly, n int) int {
	if next := s.next(x); next != nil && n < 32 {
		return s.depth(next, n+1)
	}
	return n
}

// host is the origin's.
func (c *Cause) host() string {
	if c.Origin == nil {
		return ""
	}
	return c.Origin.Host
}

// headline names what is at fault and what is wrong with it, as far as its host knows;
// empty where it is better named by what the abnormal have in common.
func (c *Cause) headline() string {
	o := c.Origin
	if o == nil {
		if len(c.Findings) > 0 && c.Findings[0].Hosts > 0 {
			f := &c.Findings[0]
			return fmt.Sprintf("%s on %d of these hosts and %d others", title(f), f.Hosts, f.Elsewhere)
		}
		return ""
	}
	who := o.Host
	if o.Service != "" {
		who = o.Service + " on " + o.Host
	}
	for i := range c.Findings {
		f := &c.Findings[i]
		switch {
		case f.Host != o.Host || f.Before:
			continue
		case !near(&f.Finding, o): // what else runs on the host, and may be in the way
			return fmt.Sprintf("%s: %s (%s)", o.Host, title(f), subjectText(&f.Finding.Subject, o))
		}
		return who + ": " + title(f)
	}
	if c.Component.Kind == anomaly.Dependency && o.Part != "" && !c.Network {
		text := who + ": slow in " + partText(o.Part)
		if o.PID != 0 {
			text += fmt.Sprintf(" (pid %d)", o.PID)
		}
		return text
	}
	return ""
}

func title(f *Finding) string { return strings.TrimSuffix(f.Finding.Title, ".") }

// sentence says what it is: the cause first, where it is known.
func (s *seen) sentence(c *Cause, shared *anomaly.Shared, origin *fleet.Key) string {
	if head := c.headline(); head != "" {
		return head + ". " + s.reasons(c, shared, origin) + "."
	}
	return s.reasons(c, shared, origin) + "."
}

// reasons says what the abnormal have in common, and what its host says of it.
func (s *seen) reasons(c *Cause, shared *anomaly.Shared, origin *fleet.Key) string {
	text := strings.TrimSuffix(shared.Text, ".")
	o := c.Origin
	if o == nil {
		return text
	}
	if origin.Side == observe.Called {
		text = fmt.Sprintf("%s is slow to call %s, which is as usual for others", o.Service+" on "+o.Host, shared.Value)
		if shared.Name != "" {
			text = fmt.Sprintf("%s is slow to call %s (%s), which itself is as usual", o.Service+" on "+o.Host, shared.Value, shared.Name)
		}
	}
	if c.where != "" {
		text += "; " + c.where
	}
	process := program(o.Service)
	if o.Comm != "" {
		process = o.Comm
	}
	if o.PID != 0 {
		process += fmt.Sprintf(" (pid %d)", o.PID)
	}
	var of []string
	for i := range c.Findings {
		f := &c.Findings[i]
		if f.Host != o.Host || len(of) == 2 {
			continue
		}
		about := string(f.Finding.Cause)
		if on := subjectText(&f.Finding.Subject, o); on != "" {
			about += ", " + on
		}
		of = append(of, about)
	}
	switch {
	case len(of) > 0:
		text += "; on " + o.Host + ": " + strings.Join(of, "; ")
		if o.Service != "" && !strings.Contains(text, process) {
			text += ", " + process
		}
	case o.Service == "":
		text += "; what answers on " + o.Host + " is not recorded"
	case origin.Side == observe.Called:
	case s.byKey[*origin] == nil:
		text += "; on " + o.Host + ": " + process + ", which is as usual by its own account"
	case o.Part != "" && c.Component.Kind == anomaly.Dependency && !c.Network: // in the headline
	case o.Part != "":
		text += "; on " + o.Host + ": " + process + " spends it in " + partText(o.Part)
	default:
		text += "; on " + o.Host + ": " + process
	}
	return text
}

// next are the commands by which to go on: on the host that it comes from.
func next(c *Cause) []shell.Command {
	var on Origin
	switch {
	case c.Origin != nil:
		on = *c.Origin
	case len(c.Findings) > 0:
		on = Origin{Host: c.Findings[0].Host, Port: c.Findings[0].Finding.Subject.Port}
	default:
		return []shell.Command{}
	}
	var narrow shell.Command
	if on.Port > 0 {
		narrow = shell.Line("--port %s", on.Port)
	}
	when := narrow
	if c.Until != nil {
		when = shell.Line("--at %s", c.Since.Format(time.RFC3339)).Then(narrow)
	}
	ssh := shell.Line("ssh %s sudo slowray", on.Host)
	list := []shell.Command{ssh.Then(shell.Line("why")).Then(when)}
	for i := range c.Findings {
		f := &c.Findings[i]
		if f.Host != on.Host || f.Before {
			continue
		}
		// Only a cause that slowray knows: the shell of the other host reads its name again.
		if f.Finding.Prove != nil && diagnose.Provable(f.Finding.Cause) == nil {
			list = append(list, ssh.Then(shell.Line("prove %s", string(f.Finding.Cause))).Then(narrow))
		}
		break // of the headline's, and no other
	}
	return list
}

// partText is a part by its name, with what is waited for where the name does not say it.
func partText(part string) string {
	name := observe.PartName(part)
	switch part {
	case anomaly.SplitSignal(observe.ServerCall).String():
		return name + ": it waits for what it calls"
	case anomaly.SplitSignal(observe.ServerThrottled).String():
		return name + ": it waits for its CPU quota"
	case anomaly.SplitSignal(observe.ServerRunq).String():
		return name + ": it waits for a CPU"
	}
	return name
}
