package watch

import (
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// TestYoungDatabasesAreNotRead: of those that begin within the window nothing is known, and that is said.
func TestYoungDatabasesAreNotRead(t *testing.T) {
	s := &session{out: &observe.Observation{Processes: []observe.Process{
		{PID: 10, PPID: 1, Comm: "postgres", StartedAt: 20}, {PID: 11, PPID: 10, Comm: "postgres", StartedAt: 21},
		{PID: 20, PPID: 1, Comm: "mariadbd", StartedAt: -3}, {PID: 30, PPID: 1, Comm: "redis-server"}, {PID: 31, PPID: 30, Comm: "redis-server", StartedAt: 5},
		{PID: 40, PPID: 1, Comm: "mariadbd", StartedAt: 5, EndedIn: true}, {PID: 50, PPID: 1, Comm: "nginx", StartedAt: 5},
	}}}
	(&databases{}).tellYoung(s)
	if g := s.out.Gaps; len(g) != 1 || g[0].Subject != "postgres (pid 10)" || !g[0].Partial || g[0].Kind != observe.KindDatabases {
		t.Errorf("%+v, want PostgreSQL alone", g)
	}
}
