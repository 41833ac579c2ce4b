package answer

import (
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/anomaly"
)

// TestEventLines: every line says with a word what kind it is.
func TestEventLines(t *testing.T) {
	for kind, word := range map[string]string{Onset: "BEGINS", Update: "CLEARER", Over: "OVER"} {
		e := Event{Kind: kind, Incident: Incident{Text: "app is slow."}}
		if f := strings.Fields(e.Line()); f[1] != word {
			t.Errorf("%s: %s", kind, e.Line())
		}
	}
}

// TestMerged: what goes on under another name is not over.
func TestMerged(t *testing.T) {
	key := func(service string) fleet.Key { return fleet.Key{Host: "web1", Service: service, Port: 80} }
	slow := func(services ...string) (all []anomaly.Anomaly) {
		for _, s := range services {
			all = append(all, anomaly.Anomaly{Key: key(s), Since: 100})
		}
		return all
	}
	shared := func(value string, services ...string) anomaly.Shared {
		s := anomaly.Shared{Component: anomaly.Component{Kind: anomaly.Dependency, Value: value}, Text: "all call " + value + "."}
		for _, x := range services {
			s.Explains = append(s.Explains, key(x))
		}
		return s
	}
	x := incidents{open: map[string]*Incident{}}
	x.follow(101, slow("app", "cart", "pay"), &anomaly.Explanation{Shared: []anomaly.Shared{shared("db:3306", "app", "cart"), shared("kv:6379", "pay")}})
	events := x.follow(110, slow("app", "cart", "pay"), &anomaly.Explanation{Shared: []anomaly.Shared{shared("db:3306", "app", "cart", "pay")}})
	var merged *Event
	for i := range events {
		if events[i].Kind == Over {
			merged = &events[i]
		}
	}
	if merged == nil || merged.PartOf != "100-dependency-db:3306" || !strings.HasSuffix(merged.Line(), " MERGED  all call kv:6379; now a part of: all call db:3306.") {
		t.Fatalf("%+v", events)
	}
	line, err := merged.JSON()
	if err != nil {
		t.Fatal(err)
	}
	byschema(t, "fleetevent.schema.json", line)
	for _, e := range x.follow(120, nil, &anomaly.Explanation{}) {
		if e.PartOf != "" || !strings.Contains(e.Line(), " OVER ") {
			t.Errorf("%+v", e)
		}
	}
}
