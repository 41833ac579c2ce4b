package cause

import "github.com/slowray/slowray/internal/observe"

// traced is a web server whose requests take so long, with a tracer that
// stopped its threads in so many of a hundred looks.
func traced(server int64, stopped int) func(*observe.Observation) {
	return func(o *observe.Observation) {
		quiet(nginxServed().add(1000, ms, ms, 0, parts{observe.RecvWait: server / 4, observe.Server: server}))(o)
		p := process(o, nginxWorker1)
		p.TracerPID = hog
		p.States = &observe.ThreadStates{Rounds: 100, Samples: 100, Running: 10, Stopped: stopped, Waiting: 90 - stopped}
	}
}

var _ = fixturePair(fires{
	name: "strace", cause: &tracerAttached, inject: traced(40*ms, 80),
	subject: Subject{Kind: "process", PID: nginxWorker1, Port: webPort}, minShare: 0.9, fix: "kill 300", evidence: "its tracer=backup (pid 300)",
},
	miss{"nobody traces", &tracerAttached, nil, "no process that answers was seen stopped"},
	miss{"requests stay quick", &tracerAttached, traced(ms/2, 80), "the requests do not suffer"},
	miss{"slow for something else", &tracerAttached, traced(40*ms, 2), "in 2.0 % of 100 looks"},
	miss{"a tracer at another process", &tracerAttached, func(o *observe.Observation) {
		traced(40*ms, 0)(o)
		process(o, nginxWorker1).TracerPID = 0
		process(o, hog).TracerPID, process(o, hog).States = 1, &observe.ThreadStates{Samples: 100, Stopped: 100}
	}, "no process that answers was seen stopped"},
)
