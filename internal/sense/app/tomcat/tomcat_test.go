package tomcat

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
)

const serverXML = `<?xml version="1.0" encoding="UTF-8"?>
<!-- <Connector port="1" /> -->
<Server port="8005">
  <Service name="Catalina">
    <Executor name="pool" namePrefix="x-" maxThreads="${threads:-7}" />
    <Connector port="${http.port}" protocol="HTTP/1.1"
               maxThreads="50" acceptCount="10" />
    <Connector executor="pool" port="8443" />
    <Connector port="8009" protocol="AJP/1.3" />
  </Service>
</Server>
`

func TestConnectors(t *testing.T) {
	got, err := connectors(enough(), serverXML, "/s.xml", map[string]string{"http.port": "8080"})
	if err != nil {
		t.Fatal(err)
	}
	at := func(v string, line int) observe.Setting { return observe.Setting{Value: v, File: "/s.xml", Line: line} }
	def := func(v string) observe.Setting { return observe.Setting{Value: v, Default: true} }
	want := []observe.WorkerPool{
		{Name: "connector of port 8080", Knob: "maxThreads", Limit: 50, Setting: at("50", 6), Listens: []observe.AppListen{{Port: 8080, Backlog: at("10", 6)}}},
		{Name: "executor pool", Knob: "maxThreads", Limit: 7, Setting: at("7", 5), Listens: []observe.AppListen{{Port: 8443, Backlog: def("100")}}},
		{Name: "connector of port 8009", Knob: "maxThreads", Limit: 200, Setting: def("200"), Listens: []observe.AppListen{{Port: 8009, Backlog: def("100")}}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestThreadNames(t *testing.T) {
	for comm, want := range map[string]string{
		"http-nio-8080-e": "8080", "http-nio-8080-P": "", "http-nio-8080-A": "", "https-jsse-nio-": "", "http-nio-80-exe": "80", "qtp1234567-12": "jetty", "qtp-x": "", "main": "", "http-nio-": "",
	} {
		if got := poolOf(comm); got != want {
			t.Errorf("%q is of %q, want %q", comm, got, want)
		}
	}
}

func FuzzConnectors(f *testing.F) {
	f.Add(serverXML)
	f.Fuzz(func(_ *testing.T, text string) { connectors(enough(), text, "/s.xml", map[string]string{"a": "${a}"}) })
}

func enough() *budget.Budget {
	return budget.New(context.Background(), budget.Limits{Wall: time.Minute, Bytes: 1 << 30})
}
