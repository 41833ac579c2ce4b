package postgres

import (
	"context"
	"testing"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork/proctest"
)

// FuzzServer reads the command line, the configuration and the log of a process that calls
// itself postgres.
func FuzzServer(f *testing.F) {
	f.Add("postgres\x00-D\x00/\x00-c\x00config_file=/p.conf\x00", "max_connections = 100 # all\nlogging_collector = on\nlog_directory = '/log'\nlog_filename = 'l.log'\nlog_line_prefix = '%m [%p] %h '\nlog_min_duration_statement = 1.5s\ninclude 'p.conf'\ninclude_dir '/'",
		"2026-11-22 00:00:00.000 UTC [7] 10.1.2.3 LOG:  duration: 1500.1 ms  statement: select 1\n")
	f.Add("postgres\x00-csuperuser_reserved_connections=-9223372036854775808\x00--max-connections=", "log_min_duration_statement=NaN\nlog_min_duration_statement='1e300d'\nlog_line_prefix='%", "LOG:  duration: NaN ms")
	fake := proctest.NewFake(f)
	f.Fuzz(func(t *testing.T, cmdline, conf, log string) {
		procs := fake.Process(t, "postgres", cmdline, "")
		fake.File(t, "p.conf", conf)
		fake.File(t, "postgresql.conf", conf)
		fake.File(t, "log/l.log", "")
		budgettest.Within(t, len(cmdline)+len(conf)+len(log), budgettest.Cost{PerByte: 4096, Fixed: 8 << 20, CPU: budgettest.Usual.CPU}, func() {
			s := New(procs[0], fake.Proc, 1)
			s.Begin(budget.New(context.Background(), budget.Limits{}))
			fake.File(t, "log/l.log", log)
			r := s.End(budget.New(context.Background(), budget.Limits{}), observe.Window{})
			s.Close()
			for _, e := range r.Entries {
				if e.TookNS < 0 || e.LockNS < 0 {
					t.Errorf("a statement that took %d ns, and waited %d ns for locks", e.TookNS, e.LockNS)
				}
			}
			proctest.CheckDatabase(t, r.Database, r.Gaps)
		})
	})
}
