package lab

import (
	"os"
	"strings"
	"testing"

	"github.com/slowray/slowray/lab/incident"
)

func cause(id string) Finding       { return Finding{Cause: id, Role: "cause"} }
func consequence(id string) Finding { return Finding{Cause: id, Role: "consequence"} }

func TestJudge(t *testing.T) {
	stacked := incident.Incident{Name: "stacked", Stepped: true}
	control := incident.Incident{Name: "control", Control: true}
	plain := incident.Incident{Name: "plain"}
	a, b := incident.Fault{Name: "a", Cause: "cause-a"}, incident.Fault{Name: "b", Cause: "cause-b"}
	decoy := incident.Fault{Name: "d", Decoy: true, RuledOut: "fin_timeout"}
	bothHurt := Truth{Removals: []Removal{
		{Fault: "a", Cause: "cause-a", Hurts: true, Best: true}, {Fault: "b", Cause: "cause-b", Hurts: true}}}
	noneHurts := Truth{Removals: []Removal{{Fault: "a", Cause: "cause-a"}, {Fault: "b", Cause: "cause-b"}}}
	two := []incident.Fault{a, b}
	tests := []struct {
		name     string
		incident incident.Incident
		injected []incident.Fault
		truth    Truth
		found    []Finding
		ruledOut string
		reason   string // empty = no mismatch
	}{
		{"all right", stacked, two, bothHurt, []Finding{cause("cause-a"), cause("cause-b")}, "", ""},
		{"wrong order", stacked, two, bothHurt, []Finding{cause("cause-b"), cause("cause-a")}, "", "removing cause-a helps most"},
		{"one missing", stacked, two, bothHurt, []Finding{cause("cause-a")}, "", "cause-b hurts"},
		{"known consequence", stacked, two, bothHurt, []Finding{consequence("client-aborts"), cause("cause-a"), cause("cause-b")}, "", ""},
		{"injected as consequence", stacked, two, bothHurt, []Finding{cause("cause-a"), consequence("cause-b")}, "", ""},
		{"known consequence as cause", stacked, two, bothHurt, []Finding{cause("cause-a"), cause("cause-b"), cause("client-aborts")}, "", "not injected"},
		{"not injected", stacked, two, bothHurt, []Finding{cause("cause-a"), cause("cause-b"), cause("cause-c")}, "", "cause-c is found"},
		{"harmless left out", stacked, two, noneHurts, nil, "", ""},
		{"harmless named", stacked, two, noneHurts, []Finding{cause("cause-b")}, "", ""},
		{"tests nothing", plain, two, noneHurts, nil, "", "tests nothing"},
		{"found without harm", plain, two, noneHurts, []Finding{cause("cause-b")}, "", ""},
		{"healthy", stacked, []incident.Fault{decoy}, Truth{}, nil, "tcp-fin-timeout", ""},
		{"decoy not ruled out", stacked, []incident.Fault{decoy}, Truth{}, nil, "other", "not among what is ruled out"},
		{"consequence of nothing", stacked, []incident.Fault{decoy}, Truth{}, []Finding{consequence("client-aborts")}, "tcp-fin-timeout", "nothing harmful"},
		{"control", control, two, bothHurt, nil, "", ""},
		{"control with its look-alike", control, two, noneHurts, []Finding{cause("cause-a")}, "", "nothing harmful"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := StepResult{Truth: tt.truth, Found: &Report{Findings: tt.found, RuledOut: []Ruling{{Cause: tt.ruledOut}}}}
			judge(&s, tt.incident, tt.injected)
			got := strings.Join(s.Reasons, "; ")
			if s.OK != (tt.reason == "") || !strings.Contains(got, tt.reason) {
				t.Errorf("ok %v, reasons %q, want %q", s.OK, got, tt.reason)
			}
		})
	}
}

func TestJudgeNamespace(t *testing.T) {
	for _, tt := range []struct {
		netns     uint64
		atClients bool
		ok        bool
	}{{7, false, false}, {8, false, true}, {9, false, false}, {9, true, true}, {10, false, true}, {11, true, false}} {
		f := cause("cause-a")
		f.Subject = Subject{Kind: "listener", NetNS: tt.netns}
		injected := []incident.Fault{{Name: "a", Cause: "cause-a", AtClients: tt.atClients}}
		s := StepResult{Found: &Report{Findings: []Finding{f}, netns: 8, clients: 9, backend: 10}}
		judge(&s, incident.Incident{}, injected)
		if s.OK != tt.ok {
			t.Errorf("%+v: ok %v, %q", tt, s.OK, s.Reasons)
		}
	}
}

// A cause may have two names.
func TestJudgeOr(t *testing.T) {
	injected := []incident.Fault{{Name: "a", Cause: "cause-a", Or: []string{"cause-b"}}}
	truth := Truth{Removals: []Removal{{Fault: "a", Cause: "cause-a", or: []string{"cause-b"}, Hurts: true, Best: true}}}
	for _, tt := range []struct {
		found []Finding
		ok    bool
	}{
		{[]Finding{cause("cause-a")}, true},
		{[]Finding{cause("cause-b"), consequence("cause-a")}, true},
		{[]Finding{cause("cause-b")}, false}, // its own name has to be said
		{[]Finding{cause("cause-c"), cause("cause-a")}, false},
	} {
		s := StepResult{Truth: truth, Found: &Report{Findings: tt.found}}
		judge(&s, incident.Incident{}, injected)
		if s.OK != tt.ok {
			t.Errorf("%v: ok %v, %q", tt.found, s.OK, s.Reasons)
		}
	}
}

func TestReportParse(t *testing.T) {
	var r Report
	err := r.parse([]byte(`{"schema":"slowray.report/1","findings":[{"cause":"accept-queue-overflow","role":"cause","title":"t",
		"subject":{"kind":"listener","netns":4026532177,"port":80},"impact":{"share":null,"text":"x"},"fix":{"text":"raise somaxconn"}}],
		"ruled_out":[{"cause":"tcp-fin-timeout","because":"tcp_fin_timeout 3600 …"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if !r.names("accept-queue-overflow") || r.names("conntrack-full") || !r.rulesOut("fin_timeout") || r.rulesOut("syn") {
		t.Errorf("%+v", r)
	}
	if !strings.Contains(r.Findings[0].text, "somaxconn") || r.Findings[0].Subject.NetNS != 4026532177 {
		t.Errorf("%+v", r.Findings[0])
	}
	for _, bad := range []string{"", "null", "{}", `{"schema":"slowray.report/2"}`, "no findings\n"} {
		if err := new(Report).parse([]byte(bad)); err == nil {
			t.Errorf("%q passes for a report", bad)
		}
	}
}

// What slowray says of a machine that others keep busy is true, if they do.
func TestJudgeForgivesOthers(t *testing.T) {
	for others, ok := range map[float64]bool{0.02: false, 0.4: true} {
		s := StepResult{Found: &Report{Findings: []Finding{cause("cpu-saturated")}}, Looked: &Sample{Others: others}}
		judge(&s, incident.Incident{Control: true}, nil)
		if s.OK != ok {
			t.Errorf("others used %v: ok %v, %q", others, s.OK, s.Reasons)
		}
	}
	self := cause("cpu-saturated")
	self.Subject.PID = os.Getpid()
	s := StepResult{Found: &Report{Findings: []Finding{self}}}
	if judge(&s, incident.Incident{Control: true}, nil); !s.OK || len(s.Notes) == 0 {
		t.Errorf("the lab itself is named: ok %v, %q, %q", s.OK, s.Reasons, s.Notes)
	}
}
