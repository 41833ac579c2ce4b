package memcached

import (
	"context"
	"math"
	"net"
	"testing"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork/proctest"
)

// FuzzServer asks a process that calls itself memcached, whatever it answers.
func FuzzServer(f *testing.F) {
	f.Add("memcached\x00-c\x0064\x00--threads=2\x00", []byte("STAT curr_connections 10\r\nSTAT max_connections 1024\r\nSTAT uptime x\r\nEND\r\n"))
	f.Add("memcached\x00-c", []byte("ERROR Too many open connections\r\n"))
	f.Add("memcached\x00-c\x00\x1b[2J\x00", []byte("STAT bytes 1e999\nSTAT evictions NaN\nSTAT uptime -Inf\nSTAT"))
	fake := proctest.NewFake(f)
	f.Fuzz(func(t *testing.T, cmdline string, said []byte) {
		procs := fake.Process(t, "memcached", cmdline, "")
		answer := func(context.Context) (net.Conn, error) {
			here, there := net.Pipe()
			go func() {
				_, _ = there.Read(make([]byte, 64)) // "stats"
				_, _ = there.Write(said)
				there.Close()
			}()
			return here, nil
		}
		budgettest.Within(t, len(cmdline)+len(said), budgettest.Cost{PerByte: 4096, Fixed: 1 << 20, CPU: budgettest.Usual.CPU}, func() {
			s := New(procs[0], fake.Proc, 1, answer)
			s.Begin(budget.New(context.Background(), budget.Limits{}))
			r := s.End(budget.New(context.Background(), budget.Limits{}), observe.Window{})
			for name, n := range r.Database.Status.End {
				if math.IsNaN(n) || math.IsInf(n, 0) {
					t.Errorf("%s is %v, which JSON cannot say", name, n)
				}
			}
			proctest.Check(t, observe.AppServer{}, r.Gaps)
		})
	})
}
