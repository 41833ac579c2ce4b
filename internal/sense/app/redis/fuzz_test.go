package redis

import (
	"context"
	"net"
	"testing"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork/proctest"
)

// FuzzServer asks a process that calls itself redis-server, whatever it answers, and reads
// the configuration file that it names.
func FuzzServer(f *testing.F) {
	f.Add([]byte("$90\r\n# Clients\r\nconnected_clients:3\r\nmaxclients:NaN\r\nconfig_file:/r.conf\r\nuptime_in_seconds:-Inf\r\n\r\n*2\r\n$23\r\nslowlog-log-slower-than\r\n$19\r\n9223372036854775807\r\n*0\r\n"), "maxclients 30\ninclude /r.conf\n")
	f.Add([]byte("-DENIED Redis is running in protected mode\r\n"), "")
	f.Add([]byte("*1\r\n*6\r\n:7\r\n:9223372036854775807\r\n:9223372036854775807\r\n*-1\r\n"), "\"")
	fake := proctest.NewFake(f)
	f.Fuzz(func(t *testing.T, said []byte, conf string) {
		procs := fake.Process(t, "redis-server", "redis-server", "")
		fake.File(t, "r.conf", conf)
		answer := func(context.Context) (net.Conn, error) {
			here, there := net.Pipe()
			go func() {
				_, _ = there.Read(make([]byte, 512)) // what it is asked
				_, _ = there.Write(said)
				there.Close()
			}()
			return here, nil
		}
		budgettest.Within(t, len(said)+len(conf), budgettest.Cost{PerByte: 4096, Fixed: 8 << 20, CPU: budgettest.Usual.CPU}, func() {
			s := New("redis", procs[0], fake.Proc, 1, answer)
			s.Begin(budget.New(context.Background(), budget.Limits{}))
			r := s.End(budget.New(context.Background(), budget.Limits{}), observe.Window{})
			s.Close()
			for _, e := range r.Entries {
				if e.TookNS < 0 {
					t.Errorf("a command that took %d ns", e.TookNS)
				}
			}
			proctest.CheckDatabase(t, r.Database, r.Gaps)
		})
	})
}
