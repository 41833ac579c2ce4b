package gunicorn

import (
	"context"
	"testing"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork/proctest"
)

// FuzzServer reads the command line, the environment and the configuration of a process
// that calls itself gunicorn, and a line of its log.
func FuzzServer(f *testing.F) {
	f.Add("gunicorn\x00-w4\x00--threads=2\x00-b\x000.0.0.0:80\x00app:app\x00-c\x00/g.py\x00", "WEB_CONCURRENCY=3\x00GUNICORN_CMD_ARGS=-b [::1]:99999\x00",
		"workers = 3 # three\nbind = [\"127.0.0.1:8000\", 'unix:/run/x']\nthreads = cpu_count()\n", "[2026-11-22 00:00:00 +0000] [21770] [CRITICAL] WORKER TIMEOUT (pid:21773)")
	f.Add("gunicorn: master [x]", "GUNICORN_CMD_ARGS=-w", "workers = 9223372036854775807\nthreads=\"9223372036854775807\"\nbind='-1'\r\n", "[CRITICAL] WORKER TIMEOUT (pid:")
	fake := proctest.NewFake(f)
	f.Fuzz(func(t *testing.T, cmdline, environ, conf, line string) {
		procs := fake.Process(t, "gunicorn", cmdline, environ)
		fake.File(t, "g.py", conf)
		fake.File(t, "gunicorn.conf.py", conf)
		budgettest.Within(t, len(cmdline)+len(environ)+len(conf), budgettest.Cost{PerByte: 4096, Fixed: 4 << 20, CPU: budgettest.Usual.CPU}, func() {
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
