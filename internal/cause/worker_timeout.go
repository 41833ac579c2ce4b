package cause

import (
	"fmt"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// UWSGIHarakiri: uWSGI kills a worker whose request takes longer than harakiri
// allows. The request gets no answer, and the worker has to start anew.
const UWSGIHarakiri ID = "uwsgi-harakiri"

var uwsgiHarakiri = cutOffCause(UWSGIHarakiri, "uWSGI kills workers that answer too slowly (harakiri)", observe.KindUWSGI, "harakiri", "harakiri")

// GunicornWorkerTimeout: a sync worker of gunicorn that is silent for longer
// than timeout is killed, with the request it works on.
const GunicornWorkerTimeout ID = "gunicorn-worker-timeout"

var gunicornWorkerTimeout = cutOffCause(GunicornWorkerTimeout, "gunicorn kills workers after its timeout", observe.KindGunicorn, "worker-timeout", "timeout")

// cutOffCause declares that a server kills workers for their time: line is the
// kind of its log lines that say so, knob the setting.
func cutOffCause(id ID, title string, kind observe.Kind, line, knob string) Cause {
	return Cause{ID: id, Title: title, Layer: LayerApplication, Class: ClassPool,
		Needs:         []observe.Kind{kind, observe.KindProcess, observe.KindRequests},
		ConsequenceOf: []Parent{SlowDependency, ConnectionPoolExhausted, ClassMachine, ClassWait}, Folds: true,
		Check: func(v *View) Result { return checkCutOff(v, kind, line, knob) },
	}
}

func checkCutOff(v *View, kind observe.Kind, line, knob string) Result {
	r := ruledOut("no " + string(kind) + " with traffic")
	for _, u := range v.poolsOf(kind) {
		killed, example := logCount(u.app.Log, line)
		var requests, lost uint64
		for _, l := range u.ledgers {
			requests += l.Requests
			lost += l.Unanswered
		}
		share := ratio(lost, max(requests, lost))
		if killed == 0 || lost == 0 || share < noiseShare {
			r.RuledOut = fmt.Sprintf("%s (pid %d) killed %s workers for the time of their request; %s of %s requests got no answer", kind, u.app.PID, count(killed), count(lost), count(max(requests, lost)))
			continue
		}
		f := supported(Subject{Kind: "pool", NetNS: u.app.NetNS, PID: u.app.PID, Comm: v.Comm(u.app.PID), Port: u.services[0].Port(), Path: u.app.Root + u.app.Config})
		limit := fromHost(u.app.Root, u.pool.Timeout)
		if limit.Line > 0 {
			f.Subject.Path = fmt.Sprintf("%s:%d", limit.File, limit.Line)
		}
		f.Weight = share
		f.Impact = Impact{Share: round(share), Of: "requests", Text: fmt.Sprintf("%s of %s requests got no answer; %s workers were killed after %s s", count(lost), count(max(requests, lost)), count(killed), limit.Value)}
		f.Evidence = []Evidence{
			{Fact: "log: workers killed for the time of their request", Value: killed, Unit: "lines", Source: string(kind) + " log"}, firstLine(example),
			{Fact: "requests without an answer", Value: lost, Limit: max(requests, lost), Unit: "requests", Source: recorded},
			{Fact: knob, Value: limit.Value, Unit: "s", Source: settingSource(limit)},
		}
		f.Fix.Text = fmt.Sprintf("Find what requests that take over %s s wait for; raise %s (%s) only if they are meant to take so long.", limit.Value, knob, settingSource(limit))
		f.Fix.Commands = []shell.Command{lookAtWaits(u.app.PID)}
		pids := append([]int{u.app.PID, v.Master(u.app.PID)}, u.app.Workers...)
		f.MayFollow = mayFollow(anyFinding, holdsUp(pids), aboutAny(pids))
		r.Findings = append(r.Findings, f)
	}
	return r
}
