package simulate_test

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/anomaly"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/lab/simulate"
)

// trial is a scenario in a fleet, judged.
type trial struct {
	scenario  string
	seed      uint64 // of the fleet
	injecting uint64 // seed of what is injected
	hosts     int
	size      float64

	alarms  int // before the onset
	found   int // s from the onset to the first anomaly, -1 when there was none
	named   int // s from the onset until what is shared was named right, -1 for never
	right   bool
	text    string
	truth   string
	members int

	onset, last int64
}

// learned is a fleet that was watched for some time, and what was learned of it.
type learned struct {
	options simulate.Options
	seed    uint64
	until   int64
	state   []byte
	fleet   *simulate.Fleet
	alarms  []string

	most, seconds int
	balanced      *learned // the same with a balancer
}

// learn draws the size of the fleet and the time of the day from the seed, and watches
// it for so many seconds.
func learn(t testing.TB, seed uint64, most, seconds int, balanced bool) *learned {
	r := rand.New(rand.NewPCG(seed, 77))
	l := &learned{seed: seed, most: most, seconds: seconds, options: simulate.Options{Balanced: balanced, Hosts: 20 + r.IntN(most-20), Endpoints: 6 + r.IntN(8), Seed: seed}}
	begin := int64(1_790_000_000)/86400*86400 + int64(r.IntN(86400))
	l.until = begin + int64(seconds)
	f := simulate.New(l.options)
	m := anomaly.New(anomaly.Options{})
	facts := hostsOf(f)
	for at := begin; at < l.until; at++ {
		f.Second(at, m.Add)
		if j := m.Judge(at); len(j.Anomalies) > 0 {
			l.alarms = append(l.alarms, fmt.Sprintf("second %d: %s %+v", at-begin, m.Explain(&j, facts).Text, j.Anomalies[0]))
		}
	}
	var b bytes.Buffer
	if err := m.Save(&b); err != nil {
		t.Fatal(err)
	}
	l.state, l.fleet = b.Bytes(), f
	return l
}

func hostsOf(f *simulate.Fleet) (facts anomaly.Facts) {
	for _, h := range f.Hosts {
		facts.Hosts = append(facts.Hosts, h.Host)
	}
	facts.Behind = f.Behind()
	return facts
}

// try injects a scenario in a fleet that was learned; the time of the day goes on.
func (l *learned) try(tb testing.TB, name string, seed uint64, size float64) trial {
	s, ok := simulate.Find(name)
	if !ok {
		tb.Fatal(name)
	}
	t := trial{scenario: name, seed: l.seed, injecting: seed, hosts: l.options.Hosts, size: size, found: -1, named: -1}
	if s.Balanced && !l.options.Balanced {
		if l.balanced == nil {
			l.balanced = learn(tb, l.seed, l.most, l.seconds, true)
		}
		l = l.balanced
	}
	f := simulate.New(l.options)
	f.Resume(l.fleet)
	begin := l.until
	onset := begin + 60 + int64(seed%7)
	last := onset + cmp.Or(s.Lasts, 60)
	if s.Control {
		last = onset + 90
	}
	injected := f.Inject(s, onset, last, seed, size)
	t.onset, t.last = onset, last
	facts := hostsOf(f)
	m, err := anomaly.Load(bytes.NewReader(l.state), anomaly.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	if s.Days > 0 {
		m = anomaly.New(anomaly.Options{})
		begin = onset - 600
		f.History(begin-int64(s.Days)*86400, begin, 300, m.Warm)
	}
	for at := begin; at < last; at++ {
		f.Second(at, m.Add)
		j := m.Judge(at)
		if len(j.Anomalies) == 0 {
			continue
		}
		if at < onset {
			t.alarms++
			x := m.Explain(&j, facts)
			t.text = "before: " + x.Text
			continue
		}
		if t.found < 0 {
			t.found = int(at - onset + 1)
		}
		if s.Control {
			x := m.Explain(&j, facts)
			t.text = x.Text
			continue
		}
		facts.Clients = facts.Clients[:0]
		f.ClientRequests(func(k fleet.Key, c simulate.ClientRequest) {
			facts.Clients = append(facts.Clients, anomaly.ClientRequest{Key: k, Client: c.Client, Bad: c.Bad, Weight: c.Weight})
		})
		if s.Slow && t.found >= 0 && (last-at)%30 != 1 {
			continue
		}
		x := m.Explain(&j, facts)
		t.text, t.members = x.Text, len(j.Anomalies)
		t.right = agrees(x, injected.Causes)
		if t.right && t.named < 0 {
			t.named = int(at - onset + 1)
		}
	}
	var truth []string
	for _, c := range injected.Causes {
		truth = append(truth, c.Kind+":"+c.Value)
	}
	t.truth = strings.Join(truth, ", ")
	t.size = injected.Size
	return t
}

// agrees says whether the injected causes, and nothing else, are named.
func agrees(x anomaly.Explanation, causes []simulate.Cause) bool {
	if len(x.Shared) != len(causes) {
		return false
	}
	for _, c := range causes {
		names := append([]string{c.Kind + ":" + c.Value}, c.Same...)
		if !slices.ContainsFunc(x.Shared, func(s anomaly.Shared) bool {
			list := []anomaly.Component{s.Component}
			list = append(list, s.Also...)
			if s.And != nil {
				list = append(list, *s.And)
			}
			if c.Both && !slices.Contains(append(s.Besides, s.Signal), anomaly.Errors) || c.Both && len(s.Besides) == 0 {
				return false
			}
			return slices.ContainsFunc(list, func(o anomaly.Component) bool { return slices.Contains(names, string(o.Kind)+":"+o.Value) })
		}) {
			return false
		}
	}
	return true
}

// effect is how much longer the requests of an endpoint take for what is injected, where
// that is most, relative to the same fleet without it: of the last minute of a trial, as
// far as that can be recognized by endpoints of many requests. 0.1 is a tenth.
func (l *learned) effect(t *trial, size float64) (most float64) {
	s, _ := simulate.Find(t.scenario)
	type sum struct{ n, us uint64 }
	run := func(inject bool) map[fleet.Key]sum {
		f := simulate.New(l.options)
		f.Resume(l.fleet)
		if inject {
			f.Inject(s, t.onset, t.last, t.injecting, size)
		}
		sums := map[fleet.Key]sum{}
		for at := t.last - 60; at < t.last; at++ {
			f.Second(at, func(p *fleet.Point) {
				if p.Side == observe.Served {
					o := sums[p.Key]
					sums[p.Key] = sum{o.n + p.Requests, o.us + uint64(p.TotalUS)}
				}
			})
		}
		return sums
	}
	with, without := run(true), run(false)
	for k, a := range with {
		if b := without[k]; a.n >= 1000 && b.n >= 1000 {
			most = max(most, float64(a.us)/float64(a.n)/(float64(b.us)/float64(b.n))-1)
		}
	}
	return most
}
