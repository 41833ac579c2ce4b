package uwsgi

import (
	"context"
	"testing"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork/proctest"
)

// FuzzServer reads the command line and two files of the configuration of a process
// that calls itself uWSGI, and a line of its log.
func FuzzServer(f *testing.F) {
	f.Add("uwsgi\x00-p\x004\x00--ini=/a.ini\x00/b.ini:x\x00", "[other]\nprocesses = 99\n[uwsgi]\nworkers = 4\nthreads=2\nsocket = [::1]:8080\nini = b.ini\nlogto=%d%n.log", "[x]\nini=a.ini",
		`Sun Nov 22 00:00:00 2026 - *** uWSGI listen queue of socket "127.0.0.1:8102" (fd: 3) full !!! (21/20) ***`)
	f.Add("uwsgi\x00-p9223372036854775807\x00--threads\x009223372036854775807\x00-s:99999\x00a.ini", "[uwsgi]\nini=a.ini\nhttp=:-1\n", "", "*** uWSGI listen queue of socket (full !!!")
	fake := proctest.NewFake(f)
	f.Fuzz(func(t *testing.T, cmdline, conf, included, line string) {
		procs := fake.Process(t, "uwsgi", cmdline, "")
		fake.File(t, "a.ini", conf)
		fake.File(t, "b.ini", included)
		budgettest.Within(t, len(cmdline)+len(conf)+len(included), budgettest.Cost{PerByte: 4096, Fixed: 4 << 20, CPU: budgettest.Usual.CPU}, func() {
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
