package phpfpm

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork/proctest"
)

// FuzzServer reads the title, two files of the configuration and the log of a process
// that calls itself the master of PHP-FPM.
func FuzzServer(f *testing.F) {
	f.Add("php-fpm: master process (/f.conf)  ", "[global]\nerror_log=/l\ninclude=/a.conf\n[www]\nlisten=127.0.0.1:9000\npm=static\npm.max_children=5\nslowlog=/s\nrequest_slowlog_timeout=1s", "[b]\nlisten=/run/b.sock",
		"[22-Nov-2026 00:00:00] WARNING: [pool www] server reached pm.max_children setting (5), consider raising it\n")
	f.Add("php-fpm: master process (f.conf", "include=/*\n[$pool]\nlisten=99999\npm.max_children=-9223372036854775808", "[", "[pool ")
	fake := proctest.NewFake(f)
	f.Fuzz(func(t *testing.T, title, conf, included, log string) {
		procs := fake.Process(t, "php-fpm8.2", title, "")
		fake.File(t, "f.conf", conf)
		fake.File(t, "a.conf", included)
		fake.File(t, "l", "")
		budgettest.Within(t, len(title)+len(conf)+len(included)+len(log), budgettest.Cost{PerByte: 4096, Fixed: 8 << 20, CPU: budgettest.Usual.CPU}, func() {
			for _, in := range Discover(procs, fake.Proc) {
				in.Begin(budget.New(context.Background(), budget.Limits{}))
				fake.File(t, "l", log)
				out, gaps, _ := in.End(budget.New(context.Background(), budget.Limits{}), observe.Window{}, procs)
				in.Close()
				if _, err := json.Marshal(out); err != nil {
					t.Error(err)
				}
				proctest.Check(t, observe.AppServer{}, gaps)
			}
		})
	})
}
