package tomcat

import (
	"context"
	"testing"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork/proctest"
)

// FuzzServer reads the command line and the configuration of a process that calls itself
// Tomcat, and a line of its log.
func FuzzServer(f *testing.F) {
	f.Add("java\x00-Dcatalina.base=/t\x00-Dhttp.port=8080\x00org.apache.catalina.startup.Bootstrap\x00start", serverXML, "SEVERE [main] java.lang.OutOfMemoryError")
	f.Add("java\x00-Dcatalina.home=t\x00-config\x00conf/server.xml\x00-Da=${a}", "<Server><Service><Connector port=\"99999\" maxThreads=\"9223372036854775807\"/><Executor name=\"${a}\"", "")
	fake := proctest.NewFake(f)
	f.Fuzz(func(t *testing.T, cmdline, conf, line string) {
		procs := fake.Process(t, "java", cmdline, "")
		fake.File(t, "t/conf/server.xml", conf)
		budgettest.Within(t, len(cmdline)+len(conf), budgettest.Cost{PerByte: 4096, Fixed: 8 << 20, CPU: budgettest.Usual.CPU}, func() {
			for _, in := range Discover(procs, fake.Proc) {
				in.Begin(budget.New(context.Background(), budget.Limits{}))
				in.Close()
				out, gaps, _ := in.End(budget.New(context.Background(), budget.Limits{}), observe.Window{})
				proctest.Check(t, out, gaps)
			}
			classify([]byte(line))
		})
	})
}
