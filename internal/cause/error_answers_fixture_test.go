package cause

import (
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// answered gives n of the requests a status, and keeps the last of them.
func answered(n uint64, class string, code int) func(*observe.Endpoint) {
	return func(e *observe.Endpoint) {
		e.Errors, e.OK = n, e.Requests-n
		e.Statuses = map[string]uint64{class: n, "2xx": e.OK}
		for range min(n, 20) {
			e.Failed = append(e.Failed, observe.RequestSample{HTTP: code, Status: "error", Label: "GET /stock"})
		}
	}
}

// errors is a web server that calls another one, which both answer with errors.
func errors(served, called, behind int) func(*observe.Observation) {
	class := func(code int) string { return itoa(code/100) + "xx" }
	web, call, fpm := nginxServed().add(500, ms, ms/20, 0, quick), fpmCalled().add(500, ms, ms/20, 0, quick), fpmServed().add(500, ms, ms/20, 0, quick)
	return func(o *observe.Observation) {
		quiet(web, call, fpm)(o)
		for i, code := range [...]int{served, called, behind} {
			if code > 0 {
				answered(400, class(code), code)(&o.Endpoints[i])
			}
		}
	}
}

var _ = fixturePair(
	fires{
		name: "a limit of the upstream that is passed on", cause: &errorAnswers,
		inject: errors(503, 429, 429), subject: Subject{Kind: "listener", PID: fpmMaster, Port: fpmPort}, minShare: 0.79,
		fix: "refuses by a limit of its own (429 Too Many Requests)", evidence: "the last of them asked for=GET /stock (20)",
	},
	miss{"an upstream that says no to what is not there", &errorAnswers, errors(0, 404, 404), "no request is answered with an error"},
	miss{"clients that ask for what is not there", &errorAnswers, errors(404, 0, 0), "no request is answered with an error"},
)

var _ = fixturePair(
	fires{
		name: "an upstream that fails, and a service that tries again", cause: &errorAnswers,
		inject: func(o *observe.Observation) {
			stuck(stuckWeb(40), waitShare(nginxMaster, 160_000*ms, 36, goSleepChain))(o)
			errors(0, 500, 500)(o)
		},
		subject: Subject{Kind: "listener", PID: fpmMaster, Port: fpmPort}, minShare: 0.79,
		fix: "bound its retries", evidence: "nginx sleeps between its tries in=orders.retry orders.go:90",
	},
	miss{"a service that sleeps while few of its calls fail", &errorAnswers, func(o *observe.Observation) {
		stuck(stuckWeb(40), waitShare(nginxMaster, 160_000*ms, 36, goSleepChain))(o)
		errors(0, 0, 0)(o)
		for i := range o.Endpoints[1:] {
			answered(4, "5xx", 500)(&o.Endpoints[1+i])
		}
	}, "4 of 500 requests on :9123 were answered with 500"},
)

// answersUnread is a service that answers with errors, and of whose calls no status is known, as
// under TLS that is not read; read says how many of them are known to be well.
func answersUnread(read uint64) func(*observe.Observation) {
	return func(o *observe.Observation) {
		errors(500, 0, 0)(o)
		for i := range o.Endpoints[1:] {
			o.Endpoints[1+i].OK = read
		}
	}
}

var _ = fixturePair(
	fires{
		name: "calls whose answers cannot be read", cause: &errorAnswers, inject: answersUnread(0),
		subject: Subject{Kind: "listener", PID: nginxMaster, Port: webPort}, minShare: 0.79,
		fix: "It is not known whether calls of nginx (pid 100) failed so: the answers to its calls to 127.0.0.1:9123 cannot be read.",
	},
)

var _ = fixturePair(
	fires{
		name: "calls that are answered well", cause: &errorAnswers, inject: answersUnread(500),
		subject: Subject{Kind: "listener", PID: nginxMaster, Port: webPort}, minShare: 0.79,
		fix: "None of the calls of nginx (pid 100) failed so",
	},
)

// TestErrorsBeforeATimeout: errors that come as soon as other answers are no timeouts, and do not
// follow from a dependency that is slow; nor do those that it answers with itself.
func TestErrorsBeforeATimeout(t *testing.T) {
	slow := Finding{Cause: SlowDependency, Subject: Subject{Kind: "destination", NetNS: serverNS, PID: nginxMaster, Port: fpmPort, Addr: "127.0.0.1"}}
	for _, c := range []struct {
		name           string
		called, behind int
		took           int64
		follows        bool
	}{
		{"at once", 0, 0, 3 * ms, false},
		{"after a second", 0, 0, 1000 * ms, true},
		{"after a time that is not known", 0, 0, 0, true},
		{"those of the dependency", 500, 500, 1000 * ms, false},
	} {
		o := healthy()
		errors(500, c.called, c.behind)(o)
		for i := range o.Endpoints {
			for j := range o.Endpoints[i].Failed {
				o.Endpoints[i].Failed[j].TotalNS = c.took
			}
		}
		r := errorAnswers.Judge(NewView(o))
		if len(r.Findings) != 1 {
			t.Fatalf("%s: %+v", c.name, r)
		}
		if got := r.Findings[0].MayFollow(&slow); got != c.follows {
			t.Errorf("%s: follows from the slow dependency: %t", c.name, got)
		}
	}
}
