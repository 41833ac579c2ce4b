package mariadb

import (
	"context"
	"testing"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork/proctest"
)

// FuzzServer reads the command line, the option file and the logs of a process that calls
// itself mariadbd.
func FuzzServer(f *testing.F) {
	f.Add("mariadbd\x00--defaults-file=/my.cnf\x00--max-connections=5\x00", "[mysqld]\nlog_error=/e.err\nslow_query_log=ON\nslow_query_log_file=/s.log\nlong_query_time=0.5\ndatadir=/d\n!include /my.cnf\n!includedir /",
		"# Time: 261122  0:00:00\n# User@Host: a[a] @ h [10.1.2.3]\n# Query_time: 1.5  Lock_time: NaN  Rows_sent: 1  Rows_examined: 9\nSET timestamp=1795262340;\nselect 1;\n", "2026-11-22  0:00:00 7 [Warning] Aborted connection 7\n")
	f.Add("mariadbd\x00--defaults-file", "[mysqld]\nlong_query_time=NaN\nlong-query-time=-1e999\nslow_query_log", "# Query_time: Inf", "")
	fake := proctest.NewFake(f)
	f.Fuzz(func(t *testing.T, cmdline, conf, slow, errors string) {
		procs := fake.Process(t, "mariadbd", cmdline, "")
		fake.File(t, "my.cnf", conf)
		fake.File(t, "etc/mysql/my.cnf", conf)
		fake.File(t, "s.log", "")
		fake.File(t, "e.err", "")
		budgettest.Within(t, len(cmdline)+len(conf)+len(slow)+len(errors), budgettest.Cost{PerByte: 4096, Fixed: 8 << 20, CPU: budgettest.Usual.CPU}, func() {
			s := New("mariadb", procs[0], fake.Proc, 1)
			s.Begin(budget.New(context.Background(), budget.Limits{}))
			fake.File(t, "s.log", slow)
			fake.File(t, "e.err", errors)
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
