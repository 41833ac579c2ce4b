package alert

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/diagnose"
)

var begin = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// told is a message that was emitted.
type told struct {
	kind Kind
	Incident
	to []string
}

// follow is incidents that note what they emit.
func follow(c *Config) (*incidents, *[]told) {
	var all []told
	x := &incidents{c: c}
	x.emit = func(k Kind, o *open, to []string) { all = append(all, told{k, o.Incident, to}) }
	return x, &all
}

func rules(t testing.TB, text string) *Config {
	t.Helper()
	c, err := parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const oneHook = "receivers: [{name: hook, webhook: {url: 'http://127.0.0.1:1/'}}]\n"

// found is a report with these findings, as cause:role:port.
func found(list ...string) *diagnose.Report {
	r := &diagnose.Report{}
	for _, l := range list {
		var port int
		var id, role string
		if _, err := fmt.Sscanf(l, "%s %s %d", &id, &role, &port); err != nil {
			panic(err)
		}
		f := cause.Finding{Cause: cause.ID(id), Title: "The fault " + id, Role: cause.Role(role), Subject: cause.Subject{Kind: "listener", Comm: "nginx", Port: port}}
		r.Findings = append(r.Findings, f)
	}
	return r
}

func kinds(all []told) (list []Kind) {
	for _, t := range all {
		list = append(list, t.kind)
	}
	return list
}

// TestHarmThenCause: harm is sent before its cause is known, which then is an update of the same
// incident; what follows from it is no incident; it is over once.
func TestHarmThenCause(t *testing.T) {
	x, all := follow(rules(t, "for: 0s\n"+oneHook))
	at := begin
	x.harm(at, []Harm{{"nginx:80", 0.3, "30 % of its requests fail"}})
	at = at.Add(time.Second)
	x.harm(at, []Harm{{"nginx:80", 0.3, ""}, {"php-fpm:9000", 0.5, "p50 2.1 s instead of 12 ms"}})
	x.window(begin.Add(-time.Minute), at, found("conntrack-full cause 80", "nginx-upstream-errors consequence 80"))
	for range 200 {
		at = at.Add(time.Second)
		x.harm(at, nil)
	}
	if want := []Kind{Begin, Update, Update, End}; !slices.Equal(kinds(*all)[:1], want[:1]) || (*all)[len(*all)-1].kind != End {
		t.Fatalf("%v", kinds(*all))
	}
	ends := 0
	for _, m := range *all {
		if m.ID != (*all)[0].ID {
			t.Errorf("another incident: %s %s", m.kind, m.Title)
		}
		if m.kind == End {
			ends++
		}
	}
	first, last := (*all)[0], (*all)[len(*all)-1]
	if ends != 1 || first.Title != "nginx:80: 30 % of its requests fail" || first.Severity != Critical || last.Cause != "conntrack-full" || len(last.Services) != 2 {
		t.Errorf("%+v\n%+v", first, last)
	}
	if got := last.Ended.Sub(begin); got != time.Second {
		t.Errorf("it ended after %v, and not when it was seen last", got)
	}
}

// TestFlapping: harm that comes and goes for an hour is at most two incidents.
func TestFlapping(t *testing.T) {
	x, all := follow(rules(t, "for: 0s\nresolve_after: 1m\n"+oneHook))
	for minute := range 60 {
		at := begin.Add(time.Duration(minute) * time.Minute)
		r := found()
		if minute%4 == 0 {
			r = found("conntrack-full cause 80")
		}
		x.window(at, at.Add(time.Minute), r)
	}
	begun := 0
	for _, m := range *all {
		if m.kind == Begin {
			begun++
		}
	}
	if begun < 1 || begun > 4 {
		t.Errorf("%d incidents of one fault that came 15 times in an hour", begun)
	}
}

func TestFor(t *testing.T) {
	x, all := follow(rules(t, "for: 30s\n"+oneHook))
	for s := range 20 {
		x.harm(begin.Add(time.Duration(s)*time.Second), []Harm{{"nginx:80", 1, "all fail"}})
	}
	for s := range 600 {
		x.harm(begin.Add(time.Duration(20+s)*time.Second), nil)
	}
	if len(*all) != 0 {
		t.Errorf("harm of 20 s was sent: %v", kinds(*all))
	}
}

func TestSilentHours(t *testing.T) {
	c := rules(t, "for: 0s\nsilent: [{days: [thu], from: '22:00', to: '06:00'}]\ncritical: {share: 0.9}\n"+oneHook)
	night := time.Date(2026, 11, 26, 23, 0, 0, 0, time.Local) // a Thursday
	for _, s := range []struct {
		at   time.Time
		want bool
	}{
		{night, true}, {night.Add(6 * time.Hour), true}, {night.Add(7 * time.Hour), false}, {night.Add(-2 * time.Hour), false}, {night.Add(-24 * time.Hour), false},
	} {
		if got := c.silent(s.at, Warning); got != s.want {
			t.Errorf("%s: silent is %v", s.at, got)
		}
	}
	day := rules(t, "silent: [{days: [sat, sun], from: '00:00', to: '24:00'}, {days: [mon], from: '08:00', to: '08:00'}]\n"+oneHook)
	saturday := time.Date(2026, 11, 28, 0, 0, 0, 0, time.Local)
	for minute := range 5 * 24 * 60 {
		at := saturday.Add(time.Duration(minute) * time.Minute)
		want := minute < 2*24*60 || minute >= (2*24+8)*60 && minute < (3*24+8)*60
		if got := day.silent(at, Warning); got != want {
			t.Fatalf("%s: silent is %v", at, got)
		}
	}
	if c.silent(night, Critical) {
		t.Error("what is critical is silent, too")
	}
	x, all := follow(c)
	at := night
	for range 7*3600 + 60 {
		at = at.Add(time.Second)
		x.harm(at, []Harm{{"nginx:80", 0.1, "10 % fail"}})
	}
	if len(*all) != 1 || (*all)[0].kind != Begin || !(*all)[0].Began.Before(night.Add(time.Minute)) {
		t.Errorf("what lasts is to be told when the silence is over: %v", *all)
	}
}

func TestRoutes(t *testing.T) {
	c := rules(t, `
receivers:
- {name: oncall, pagerduty: {routing_key_file: /k}}
- {name: chat, slack: {url: 'https://chat.example/hook'}}
routes:
- {severity: critical, to: [oncall, chat]}
- {cause: 'conntrack-*', service: 'nginx:*', to: [chat]}
- {service: 'batch:*', to: []}
`)
	for _, r := range []struct {
		i    Incident
		want []string
	}{
		{Incident{Severity: Critical, Cause: "x"}, []string{"oncall", "chat"}},
		{Incident{Severity: Warning, Cause: "conntrack-full", Services: []Service{{Name: "nginx:80"}}}, []string{"chat"}},
		{Incident{Severity: Warning, Cause: "conntrack-full", Services: []Service{{Name: "node:80"}}}, nil},
		{Incident{Severity: Warning, Services: []Service{{Name: "batch:1"}}}, nil},
	} {
		if got := c.to(&r.i); !slices.Equal(got, r.want) {
			t.Errorf("%+v goes to %v, want %v", r.i, got, r.want)
		}
	}
}

// TestRoutesOfWorse: who is to hear of what is critical hears of an incident that becomes so,
// and who heard of it before goes on to.
func TestRoutesOfWorse(t *testing.T) {
	x, all := follow(rules(t, `
for: 0s
receivers:
- {name: oncall, pagerduty: {routing_key_file: /k}}
- {name: db, command: [/page]}
- {name: chat, slack: {url: 'https://chat.example/hook'}}
routes:
- {severity: critical, to: [oncall, chat]}
- {cause: 'mariadb-*', to: [db]}
- {to: [chat]}
`))
	x.harm(begin, []Harm{{"nginx:80", 0.1, "10 % of its requests fail"}})
	x.window(begin, begin.Add(time.Minute), found("mariadb-slow-query cause 80"))
	x.harm(begin.Add(time.Minute), []Harm{{"nginx:80", 1, "all fail"}})
	for s := range 600 {
		x.harm(begin.Add(time.Minute+time.Duration(s)*time.Second), nil)
	}
	got := ""
	for _, m := range *all {
		got += fmt.Sprintln(m.kind, m.to)
	}
	const want = "begin [chat]\nupdate [chat]\nbegin [db]\nupdate [chat db]\nbegin [oncall]\nend [chat db oncall]\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestClockSetBack: the clock is two hours ahead at boot, and set right in the middle of harm.
func TestClockSetBack(t *testing.T) {
	x, all := follow(rules(t, "for: 10s\n"+oneHook))
	ahead := begin.Add(2 * time.Hour)
	for s := range 20 {
		x.harm(ahead.Add(time.Duration(s)*time.Second), []Harm{{"nginx:80", 1, "all fail"}})
	}
	for s := range 5 {
		x.harm(ahead.Add(time.Duration(30+s)*time.Second), []Harm{{"php:9000", 1, "all fail"}}) // no incident yet
	}
	for s := range 300 {
		x.harm(begin.Add(time.Duration(s)*time.Second), []Harm{{"php:9000", 1, "all fail"}})
	}
	var ended []string
	for _, m := range *all {
		if m.kind == End {
			ended = append(ended, m.Services[0].Name)
		}
	}
	if want := []Kind{Begin, Begin, End}; !slices.Equal(kinds(*all), want) || !slices.Equal(ended, []string{"nginx:80"}) {
		t.Errorf("%v, ended %v", kinds(*all), ended)
	}
}

func TestBadRules(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "receivers: there are 0: give 1 to 32",
		"reciever: []":           `unknown field "reciever"`,
		"for: soon\n" + oneHook:  "for: give a duration as 30s or 5m",
		"for: [\n":               "yaml: line 1: did not find expected node content",
		"receivers: [{name: a}]": "receiver a: give one of alertmanager, webhook, slack, pagerduty, command",
		"receivers: [{name: a, webhook: {url: 'ftp://x'}}]":                     "receiver a: url: must be http://… or https://…",
		"receivers: [{name: a, command: [page-me]}]":                            "receiver a: command: give the full path of a program, and its arguments",
		"receivers: [{name: a, command: [/x]}, {name: a, command: [/x]}]":       "receiver 2: needs a name of its own",
		oneHook + "routes: [{to: [pager]}]":                                     `route 1: there is no receiver "pager"`,
		oneHook + "routes: [{cause: '[', to: [hook]}]":                          `route 1: "[" is no pattern`,
		oneHook + "routes: [{severity: bad, to: [hook]}]":                       `route 1: severity "bad": must be warning or critical`,
		oneHook + "silent: [{from: '25:00', to: '06:00'}]":                      `silent 1: "25:00" is no time: give 22:00`,
		oneHook + "silent: [{days: [Monday], from: '22:00', to: '06:00'}]":      `silent 1: "Monday" is no day: mon, tue, wed, thu, fri, sat or sun`,
		oneHook + "critical: {share: 20}":                                       "critical: share is 0 to 1, lost_seconds_per_minute is not negative",
		"receivers: [{name: a, webhook: {url: 'http://x', url_file: /secret}}]": "receiver a: give url or url_file",
		"receivers: [{name: a, pagerduty: {}}]":                                 "receiver a: give routing_key_file",
	} {
		if _, err := parse([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestOnceEach: whatever comes, and however often the process is killed and reads its state
// again, each incident begins once and ends once, and nothing is said of it before or after.
func TestOnceEach(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &Config{For: Duration(rapid.SampledFrom([]time.Duration{0, 5 * time.Second, time.Minute}).Draw(t, "for")), ResolveAfter: Duration(time.Minute), Critical: Level{Share: 0.2},
			Receivers: []Receiver{{Name: "hook"}}}
		x, all := follow(c)
		emit := x.emit
		now := begin
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(1, 90).Draw(t, "later")) * time.Second)
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0:
				x.harm(now, nil)
			case 1:
				x.harm(now, []Harm{{fmt.Sprintf("s:%d", rapid.IntRange(1, 3).Draw(t, "service")), rapid.Float64Range(0.01, 1).Draw(t, "share"), "slow"}})
			case 2:
				var list []string
				for _, id := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3, rapid.ID[string]).Draw(t, "causes") {
					list = append(list, id+" cause 80")
				}
				x.window(now.Add(-time.Second), now, found(list...))
			case 3:
				var harms []FleetHarm
				for range rapid.IntRange(0, 2).Draw(t, "harms") {
					harms = append(harms, harmOf(fmt.Sprint(rapid.IntRange(1, 3).Draw(t, "id")), rapid.SampledFrom([]string{"host a", "host b"}).Draw(t, "component"), now, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "host")))
				}
				x.fleet(now, &fleetSecond{harms, map[string]time.Time{"a": now}})
			case 4: // killed
				text, err := json.Marshal(x)
				if err != nil {
					t.Fatal(err)
				}
				x = &incidents{c: c, emit: emit}
				if err := json.Unmarshal(text, x); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 3600 {
			now = now.Add(time.Second)
			x.harm(now, nil)
		}
		phase := map[string]Kind{}
		for _, m := range *all {
			was := phase[m.ID]
			if m.kind == Begin && was != "" || m.kind != Begin && was == "" || was == End {
				t.Fatalf("%s: %s after %q", m.ID, m.kind, was)
			}
			phase[m.ID] = m.kind
		}
		for id, last := range phase {
			if last != End {
				t.Fatalf("%s: is never over", id)
			}
		}
		if len(x.Open) != 0 {
			t.Fatalf("%d are still open", len(x.Open))
		}
	})
}
