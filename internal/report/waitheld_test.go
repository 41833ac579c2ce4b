package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// TestWaitVerdictOfShortWaits: what many short waits come to, what others wait for, and
// what is not seen of a database is no "OK".
func TestWaitVerdictOfShortWaits(t *testing.T) {
	service, report, db := waitProcess(30, "seats"), waitProcess(40, "nightly"), waitProcess(50, "mariadbd")
	brief := func(wants observe.WaitWants, kind observe.WaitKind, object string, end observe.WaitEnd, last observe.WaitProcess, share int64) observe.WaitShare {
		return observe.WaitShare{AtOnce: 20, ThreadNS: share * 500_000_000, Chain: observe.WaitChain{End: end, BackTo: -1, Text: "it ends there", Hops: []observe.WaitHop{
			{Process: service, Kind: kind, Wants: wants, Object: object, Syscall: "call"}, {Process: last, Kind: observe.WaitSleep}}}}
	}
	of := func(p observe.WaitProcess, b ...observe.WaitShare) *observe.Waits {
		return &observe.Waits{Process: p, WindowNS: 500_000_000, Threads: 21, Looked: 21, Brief: b}
	}
	lock := func(share int64) observe.WaitShare {
		return brief(observe.WantsRelease, observe.WaitFileLock, "fd 5 → file /run/x.lock", observe.EndSleep, report, share)
	}
	holder := of(report)
	holder.Held = []observe.HeldLock{{Object: "file /run/x.lock", Detail: "FLOCK lock, WRITE", Threads: 17, AtOnce: 20, Waiters: []observe.LockWaiter{{Process: service, Threads: 17}}}}
	idle := of(service, lock(3))
	idle.Chains = []observe.WaitChain{{Count: 17, End: observe.EndIdle, Hops: []observe.WaitHop{{Process: service}}}}
	driver := of(service)
	driver.Chains = []observe.WaitChain{{Count: 20, End: observe.EndIdle, Text: "ready", Hops: []observe.WaitHop{{Process: service, Goroutine: 7, Kind: observe.WaitEvent, Moving: true, Stack: []string{"mysql.(*mysqlConn).readWithTimeout connection.go:74"}}}}}
	for name, c := range map[string]struct {
		o    *observe.Waits
		want []string
	}{
		"most threads":      {of(service, lock(17)), []string{"PROBLEM  seats (pid 30)  17 of 21 threads wait for x.lock → nightly"}},
		"few threads":       {of(service, lock(3)), []string{"OK  seats (pid 30)  nobody holds it up for long"}},
		"most that work":    {idle, []string{"PROBLEM  seats (pid 30)  3 of 21 threads"}},
		"short answers":     {of(service, brief(observe.WantsAnswer, observe.WaitTCP, "tcp to 127.0.0.1:80", observe.EndNoOwner, report, 17)), []string{"OK  "}},
		"database":          {of(service, brief(observe.WantsAnswer, observe.WaitTCP, "tcp to 127.0.0.1:3306", observe.EndNoOwner, db, 17)), []string{"UNKNOWN  seats (pid 30)  waits for mariadbd (pid 50), whose locks are not seen", "\n  slowray why --port 3306\n"}},
		"database, at work": {of(service, brief(observe.WantsAnswer, observe.WaitTCP, "tcp to 127.0.0.1:3306", observe.EndRunning, db, 17)), []string{"OK  "}},
		"driver":            {driver, []string{"UNKNOWN  seats (pid 30)  waits for the database that it calls", "\n  slowray why --pid 30\n"}},
		"holder":            {holder, []string{"PROBLEM  nightly (pid 40)  holds x.lock: 17 threads of seats wait", "17 threads wait for it at a time on average, 20 at most: seats (pid 30) 17"}},
	} {
		var b bytes.Buffer
		if err := Wait(&b, c.o, Style{Width: 120}); err != nil {
			t.Fatal(err)
		}
		for _, want := range c.want {
			if !strings.Contains("\n"+b.String(), "\n"+strings.TrimPrefix(want, "\n")) && !strings.Contains(strings.Join(strings.Fields(b.String()), " "), want) {
				t.Errorf("%s: %q is not in\n%s", name, want, b.String())
			}
		}
	}
}
