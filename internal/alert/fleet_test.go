package alert

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/cause"
)

// harmOf is harm of a component on some hosts.
func harmOf(id, component string, at time.Time, hosts ...string) FleetHarm {
	h := FleetHarm{ID: id, Component: component, Title: component + " is slow", Since: at, Seen: at, Hosts: hosts, Services: []Service{{Name: "app:80", Share: 0.1, Text: "slow"}}}
	for _, host := range hosts {
		h.Endpoints = append(h.Endpoints, "app:80 on "+host)
	}
	return h
}

// fleetTold follows a fleet second by second: each has its harms, and a host that is heard
// of unless it is in silent.
func fleetTold(t *testing.T, rulesText string, seconds int, harms func(s int, at time.Time) []FleetHarm, silent func(s int, host string) bool, restart func(s int) bool) []told {
	t.Helper()
	c := rules(t, rulesText+oneHook)
	x, all := follow(c)
	heard := map[string]time.Time{}
	for s := range seconds {
		at := begin.Add(time.Duration(s) * time.Second)
		for _, host := range []string{"a", "b", "c", "d"} {
			if silent == nil || !silent(s, host) {
				heard[host] = at
			}
		}
		x.fleet(at, &fleetSecond{harms(s, at), heard})
		if restart != nil && restart(s) {
			text, err := json.Marshal(x)
			if err != nil {
				t.Fatal(err)
			}
			emit := x.emit
			x = &incidents{}
			if err := json.Unmarshal(text, x); err != nil {
				t.Fatal(err)
			}
			x.c, x.emit = c, emit
		}
	}
	return *all
}

func kindsOf(all []told) string {
	var b strings.Builder
	for _, m := range all {
		fmt.Fprintf(&b, "%s:%s ", m.kind, m.Component)
	}
	return strings.TrimSpace(b.String())
}

// TestFleetIncident: harm that begins on one host and turns out to be a database is one
// alert with its hosts, also where the watcher was started anew and calls it otherwise.
func TestFleetIncident(t *testing.T) {
	all := fleetTold(t, "for: 5s\nresolve_after: 30s\n", 300, func(s int, at time.Time) []FleetHarm {
		run := fmt.Sprint("run", s/40)
		switch {
		case s < 10 || s >= 150:
			return nil
		case s < 20:
			return []FleetHarm{harmOf(run, "endpoint app:80 on a", at, "a")}
		}
		h := harmOf(run, "dependency 10.0.0.7:3306", at, "a", "b", "c")
		if s >= 100 {
			h.Finding = &cause.Finding{Cause: "fsync-bound", Confidence: 0.9}
			h.Next = []string{"ssh db-7 sudo slowray why"}
		}
		return []FleetHarm{h}
	}, nil, func(s int) bool { return s%40 == 39 })
	want := "begin:endpoint app:80 on a update:dependency 10.0.0.7:3306 update:dependency 10.0.0.7:3306 end:dependency 10.0.0.7:3306"
	if got := kindsOf(all); got != want {
		t.Fatalf("told %s, want %s", got, want)
	}
	last := all[len(all)-1]
	if !slices.Equal(last.Hosts, []string{"a", "b", "c"}) || last.HostCount != 3 || last.Cause != "fsync-bound" || last.ID != all[0].ID || last.Labels["hosts"] != "a" || last.Labels["component"] != all[0].Component {
		t.Errorf("%+v", last.Incident)
	}
	m := Message{Kind: Update, Host: "fleet shop", Incident: last.Incident}
	if h := m.headline(); !strings.HasSuffix(h, "app:80 on 3 hosts of fleet shop") {
		t.Error(h)
	}
	// What Alertmanager knows it by stays what it was; what is known by now is an annotation.
	body, err := json.Marshal(alertmanagerBody(&m, begin))
	if err != nil || !strings.Contains(string(body), `"labels":{"alertname":"slowray","component":"endpoint app:80 on a","hosts":"a","incident":"`+last.ID+`","instance":"fleet shop"}`) ||
		!strings.Contains(string(body), `"hosts":"a, b, c"`) {
		t.Errorf("%s, %v", body, err)
	}
	if text := strings.Join(m.details(), "\n"); !strings.Contains(text, "next: ssh db-7 sudo slowray why\nhosts: a, b, c") {
		t.Error(text)
	}
}

// TestFleetFold: an alert of a host that turns out to suffer by another incident ends with
// it, and before it began it is none.
func TestFleetFold(t *testing.T) {
	for rule, want := range map[string]string{
		"for: 0s":  "begin:host a begin:host b end:host a end:host b",
		"for: 10s": "begin:host b end:host b",
	} {
		all := fleetTold(t, rule+"\nresolve_after: 30s\n", 200, func(s int, at time.Time) []FleetHarm {
			switch {
			case s < 10 || s >= 60:
				return nil
			case s < 15:
				return []FleetHarm{harmOf("1", "host a", at, "a"), harmOf("2", "host b", at, "b")}
			}
			return []FleetHarm{harmOf("2", "host b", at, "a", "b")}
		}, nil, nil)
		if got := kindsOf(all); got != want {
			t.Errorf("%s: told %s, want %s", rule, got, want)
		}
	}
}

// TestFleetSilent: what is wrong on a host is not over for that nothing is heard of it any
// more, and not wrong for ever.
func TestFleetSilent(t *testing.T) {
	for _, back := range []int{600, 1 << 30} {
		var ended time.Time
		all := fleetTold(t, "for: 0s\nresolve_after: 30s\n", 3000, func(s int, at time.Time) []FleetHarm {
			if s < 10 || s >= 60 {
				return nil
			}
			return []FleetHarm{harmOf("1", "host a", at, "a")}
		}, func(s int, host string) bool { return host == "a" && s >= 60 && s < back }, nil)
		if len(all) != 2 || all[1].kind != End {
			t.Fatalf("%v", kindsOf(all))
		}
		if ended = *all[1].Ended; ended.Sub(begin) != 59*time.Second {
			t.Errorf("ended at %s", ended.Sub(begin))
		}
	}
	// The hosts speak, the archive does not: an hour without a look, and it goes on.
	x, all := follow(rules(t, "for: 0s\nresolve_after: 30s\n"+oneHook))
	for s := range 20 {
		at := begin.Add(time.Duration(s) * time.Second)
		if s >= 10 {
			at = at.Add(time.Hour)
		}
		x.fleet(at, &fleetSecond{[]FleetHarm{harmOf("1", "host a", at, "a")}, map[string]time.Time{"a": at}})
	}
	if len(*all) != 1 {
		t.Errorf("told %s", kindsOf(*all))
	}
}

func TestFleetRoutes(t *testing.T) {
	c := rules(t, `
receivers:
- {name: web, slack: {url: 'https://chat.example/hook'}}
- {name: db, slack: {url: 'https://chat.example/hook'}}
routes:
- {component: 'dependency *:3306', to: [db]}
- {host: 'web-*', to: [web]}
`)
	for _, r := range []struct {
		i    Incident
		want []string
	}{
		{Incident{Component: "dependency 10.0.0.7:3306", Hosts: []string{"web-1"}}, []string{"db"}},
		{Incident{Component: "host web-1", Hosts: []string{"db-1", "web-1"}}, []string{"web"}},
		{Incident{Component: "host db-1", Hosts: []string{"db-1"}}, nil},
	} {
		if got := c.to(&r.i); !slices.Equal(got, r.want) {
			t.Errorf("%+v goes to %v, want %v", r.i, got, r.want)
		}
	}
}

// TestOneDirectory: of two that would keep their state in one place the second one is refused.
func TestOneDirectory(t *testing.T) {
	dir := ownDir(t)
	opt := Options{Config: rules(t, oneHook), Dir: dir, Say: func(string) {}}
	a, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(opt); err == nil || !strings.Contains(err.Error(), "another slowray sends alerts") {
		t.Errorf("the second one: %v", err)
	}
	a.box.close()
	b, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	b.box.close()
}
