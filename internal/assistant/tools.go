package assistant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/slowray/slowray/internal/catalogue"
	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/commandline"
	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/report"
)

// target narrows a question to a service.
type target struct {
	Port      int    `json:"port,omitempty" jsonschema:"only the service on this TCP port, and what it calls"`
	PID       int    `json:"pid,omitempty" jsonschema:"only the services of this process"`
	Unit      string `json:"unit,omitempty" jsonschema:"only the services of this systemd unit"`
	Container string `json:"container,omitempty" jsonschema:"only the services of this container, by name or id"`
}

// flags are those of the command line. A value is never an argument of its own, so that
// none can be taken for a flag.
func (t target) flags() []string {
	var args []string
	if t.Port != 0 {
		args = append(args, fmt.Sprintf("--port=%d", t.Port))
	}
	if t.PID != 0 {
		args = append(args, fmt.Sprintf("--pid=%d", t.PID))
	}
	if t.Unit != "" {
		args = append(args, "--unit="+t.Unit)
	}
	if t.Container != "" {
		args = append(args, "--container="+t.Container)
	}
	return args
}

// past chooses a time of the history.
type past struct {
	At      string `json:"at,omitempty" jsonschema:"a recorded time: -10m, 12:03, 2026-11-22T12:03:00Z; left out: now"`
	Seconds int    `json:"seconds,omitempty" jsonschema:"how long from then on"`
}

// span is the time of the history that is asked for: the last so many seconds where no
// time was given.
func (s *server) span(p past, usual time.Duration) (from, to time.Time, err error) {
	long := usual
	if p.Seconds < 0 || p.Seconds > 7*24*3600 {
		return from, to, fmt.Errorf("seconds %d: must be 1 to 604800", p.Seconds)
	} else if p.Seconds > 0 {
		long = time.Duration(p.Seconds) * time.Second
	}
	if p.At == "" {
		to = time.Now()
		return to.Add(-long), to, nil
	}
	if from, err = s.opt.Moment(p.At); err != nil {
		return from, to, err
	}
	now := time.Now()
	if from.After(now) {
		return from, to, fmt.Errorf("at %s: that is still to come", p.At)
	}
	if to = from.Add(long); to.After(now) {
		to = now
	}
	return from, to, nil
}

type whyQuestion struct {
	target
	Pod string `json:"pod,omitempty" jsonschema:"only these pods: NAMESPACE/POD, or NAMESPACE/deploy/NAME"`
	past
	sized
}

// verdict is the answer to why.
type verdict struct {
	Verdict    string                `json:"verdict"`
	Host       diagnose.ReportHost   `json:"host"`
	Window     diagnose.ReportWindow `json:"window"`
	Findings   []cause.Finding       `json:"findings"`               // root causes
	Follows    []consequence         `json:"consequences,omitempty"` // that go away with them
	Account    cause.Account         `json:"account"`
	Suspicious []cause.Sight         `json:"suspicious_but_not_the_cause,omitempty"`
	Services   []service             `json:"services"`
	// RuledOut has the reason where there was a sign; of others there is the count.
	RuledOut   []diagnose.Excluded `json:"ruled_out_in_spite_of_signs"`
	NoSign     []string            `json:"ruled_out_without_a_sign"`
	NotChecked []diagnose.Excluded `json:"not_checked"`
	Counts     counts              `json:"counts"`
	Changes    []diagnose.Change   `json:"recent_changes,omitempty"`
	Losses     any                 `json:"losses,omitempty"`
	CutShort   string              `json:"cut_short,omitempty"`
}

// consequence is a finding that follows from another.
type consequence struct {
	Cause  cause.ID  `json:"cause"`
	Of     *cause.ID `json:"consequence_of"`
	Impact string    `json:"impact"`
}

type counts struct {
	RuledOut   int `json:"causes_ruled_out"`
	NotChecked int `json:"causes_not_checked"`
}

func (s *server) why(ctx context.Context, q whyQuestion) (*answer, error) {
	const usual, most = 10, 60
	args := append([]string{"why", "--json"}, q.flags()...)
	if q.Pod != "" {
		args = append(args, "--pod="+q.Pod)
	}
	switch {
	case q.At != "":
		args = append(args, "--at="+q.At)
		if q.Seconds != 0 {
			args = append(args, fmt.Sprintf("--for=%ds", q.Seconds))
		}
	case q.Seconds == 0:
		args = append(args, fmt.Sprintf("--for=%ds", usual))
	case q.Seconds < 0 || q.Seconds > most:
		return nil, fmt.Errorf("seconds %d: must be 1 to %d", q.Seconds, most)
	default:
		args = append(args, fmt.Sprintf("--for=%ds", q.Seconds))
	}
	var r diagnose.Report
	if err := s.ask(ctx, &r, args...); err != nil {
		return nil, err
	}
	var services []service
	if err := convert(r.Endpoints, &services); err != nil {
		return nil, err
	}
	v := verdict{Verdict: report.Verdict(&r), Host: r.Host, Window: r.Window, Findings: []cause.Finding{}, Account: r.Account, Suspicious: r.Unlinked,
		Services: services, RuledOut: []diagnose.Excluded{}, NoSign: []string{}, NotChecked: r.NotChecked,
		Counts: counts{len(r.RuledOut), r.Unchecked()}, Changes: r.Changes, CutShort: r.CutShort}
	if len(r.Losses) > 0 {
		v.Losses = r.Losses
	}
	for _, f := range r.Findings {
		if f.Role != cause.RoleCause {
			v.Follows = append(v.Follows, consequence{f.Cause, f.ConsequenceOf, f.Impact.Text})
			continue
		}
		f.Fix.Changes = nil // the commands say it
		v.Findings = append(v.Findings, f)
	}
	for _, e := range r.RuledOut {
		if e.Nothing() {
			v.NoSign = append(v.NoSign, e.Cause)
		} else {
			v.RuledOut = append(v.RuledOut, e)
		}
	}
	return &answer{value: v, keep: map[string]int{"findings": 3, "findings.evidence": 3, "findings.fix.commands": 4, "findings.fix.persist": 4, "consequences": 4, "services": 3, "not_checked": 3, "ruled_out_in_spite_of_signs": 3}}, nil
}

// convert makes one form of another by their JSON.
func convert(from, to any) error {
	b, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, to)
}

type causeQuestion struct {
	Cause string `json:"cause,omitempty" jsonschema:"id of a cause, as conntrack-full"`
	sized
}

func (s *server) causePage(_ context.Context, q causeQuestion) (*answer, error) {
	all := catalogue.New(cause.Catalogue(), catalogue.Incidents())
	if q.Cause == "" {
		type row struct {
			ID    cause.ID `json:"id"`
			Title string   `json:"title"`
		}
		var rows []row
		for _, e := range all.Causes {
			rows = append(rows, row{e.ID, e.Title})
		}
		return &answer{value: map[string]any{"causes": rows}}, nil
	}
	e, err := find(&all, q.Cause)
	if err != nil {
		return nil, err
	}
	return &answer{value: e}, nil
}

func find(all *catalogue.Catalogue, id string) (*catalogue.Entry, error) {
	if e := all.Find(cause.ID(id)); e != nil {
		return e, nil
	}
	var ids []string
	for _, e := range all.Causes {
		ids = append(ids, string(e.ID))
	}
	return nil, fmt.Errorf("%q: no such cause%s", id, commandline.DidYouMean(id, ids))
}

type proofQuestion struct {
	Cause string `json:"cause" jsonschema:"id of a cause that why found"`
	target
	sized
}

// proofPlan asks prove without --apply, which changes nothing.
func (s *server) proofPlan(ctx context.Context, q proofQuestion) (*answer, error) {
	all := catalogue.New(cause.Catalogue(), catalogue.Incidents())
	e, err := find(&all, q.Cause)
	if err != nil {
		return nil, err
	}
	if !e.Provable {
		return nil, fmt.Errorf("%s: there is no change that could be made and undone while it runs", e.ID)
	}
	var plan map[string]json.RawMessage
	if err := s.ask(ctx, &plan, append([]string{"prove", string(e.ID), "--json"}, q.flags()...)...); err != nil {
		return nil, err
	}
	return &answer{value: map[string]any{"plan": plan, "note": "nothing was changed: a person runs it with slowray prove " + string(e.ID) + " --apply"}}, nil
}

type fleetQuestion struct {
	Service string `json:"service,omitempty" jsonschema:"only what is wrong with this service: nginx:80, or nginx"`
	Host    string `json:"host,omitempty" jsonschema:"only what is wrong on this host"`
	past
	sized
}

var named = regexp.MustCompile(`^[^\x00-\x1f]{1,255}$`)

// fleetWhy asks the database that $SLOWRAY_FLEET names: no question chooses whom this
// host connects to.
func (s *server) fleetWhy(ctx context.Context, q fleetQuestion) (*answer, error) {
	args := []string{"fleet", "why", "--json"}
	for flag, v := range map[string]string{"--service=": q.Service, "--host=": q.Host, "--at=": q.At} {
		if v == "" {
			continue
		} else if !named.MatchString(v) {
			return nil, fmt.Errorf("%s%q: must be one line", flag, v)
		}
		args = append(args, flag+v)
	}
	if q.Seconds < 0 {
		return nil, errors.New("seconds: must be positive")
	} else if q.Seconds > 0 {
		args = append(args, fmt.Sprintf("--for=%ds", q.Seconds))
	}
	var r map[string]json.RawMessage
	if err := s.ask(ctx, &r, args...); err != nil {
		return nil, err
	}
	// What is abnormal is already under its cause, or alone.
	delete(r, "abnormal")
	return &answer{value: r, keep: map[string]int{"causes": 3, "alone": 3}}, nil
}
