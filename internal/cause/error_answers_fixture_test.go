package cause

import "github.com/slowray/slowray/internal/observe"

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
