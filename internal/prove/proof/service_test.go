package proof

import (
	"testing"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
)

// webHost is nginx at port 80 before php-fpm at 9000, and a database next to them
// with more requests of its own.
func webHost() *observe.Observation {
	return &observe.Observation{
		Window: observe.Window{Seconds: 10},
		Processes: []observe.Process{
			{PID: 10, PPID: 1, Comm: "nginx"}, {PID: 11, PPID: 10, Comm: "nginx"},
			{PID: 20, PPID: 1, Comm: "php-fpm"}, {PID: 21, PPID: 20, Comm: "php-fpm"}, {PID: 30, PPID: 1, Comm: "redis"},
		},
		Namespaces: []observe.NetNS{{Inode: 7, Listeners: []observe.Listener{
			{Proto: "tcp", Port: 80, PID: 10, PIDs: []int{10, 11}, Opened: 5}, {Proto: "tcp", Port: 9000, PID: 20, PIDs: []int{20, 21}, Opened: 5},
			{Proto: "tcp", Port: 6379, PID: 30, PIDs: []int{30}, Opened: 5}, {Proto: "unix", Path: "/run/x", PID: 30, PIDs: []int{30}, Opened: 5},
		}}},
		Endpoints: []observe.Endpoint{
			{Side: "served", NetNS: 7, Port: 80, PID: 10, Requests: 1000}, {Side: "served", NetNS: 7, Port: 9000, PID: 20, Requests: 1000},
			{Side: "served", NetNS: 7, Port: 6379, PID: 30, Requests: 9000}, {Side: "called", NetNS: 7, Port: 9000, PID: 10, PIDs: []int{11}, Requests: 1000},
		},
	}
}

func TestMeasured(t *testing.T) {
	at := func(s cause.Subject) *cause.Finding { return &cause.Finding{Subject: s} }
	for name, c := range map[string]struct {
		filter  observe.Filter
		finding *cause.Finding
		want    int
	}{
		"most requests":                      {want: 6379},
		"the port asked for":                 {filter: observe.Filter{Port: 9000}, want: 9000},
		"in front of the one it is about":    {finding: at(cause.Subject{NetNS: 7, Port: 9000}), want: 80},
		"the one it is about, by process":    {finding: at(cause.Subject{PID: 21}), want: 80},
		"the one it is about, nobody before": {finding: at(cause.Subject{PID: 11}), want: 80},
		"another namespace":                  {finding: at(cause.Subject{NetNS: 8, Port: 9000}), want: 6379},
	} {
		o := webHost()
		o.Filter = c.filter
		got := Measured(o, c.finding)
		if got.Port != c.want || got.NetNS != 7 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if s := Measured(webHost(), at(cause.Subject{PID: 21})); s.Comm != "nginx" || s.PID != 10 || s.Requests != 100 {
		t.Errorf("%+v", s)
	}
	if s := Measured(&observe.Observation{}, nil); s.Port != 0 {
		t.Errorf("nothing listens: %+v", s)
	}
}
