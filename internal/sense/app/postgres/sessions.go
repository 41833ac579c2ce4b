package postgres

import (
	"cmp"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork"
)

const (
	// maxLooks is how many backends one look reads the titles of.
	maxLooks    = 256
	maxSessions = 8 // of each kind, that are reported
	maxTracked  = 4096
)

// title reads what a backend of a client calls itself: "postgres: [CLUSTER: ]
// USER DATABASE CLIENT DOING [waiting]" (ps_status.c, postmaster.c). Other
// processes of the server have no client.
func title(text string) (s observe.Session, waiting, ok bool) {
	rest, ok := strings.CutPrefix(text, "postgres: ")
	if !ok {
		return s, false, false
	}
	fields := strings.Fields(rest)
	// cluster_name is written before, as "15/main:".
	if len(fields) > 0 && strings.HasSuffix(fields[0], ":") {
		fields = fields[1:]
	}
	at := slices.IndexFunc(fields, func(f string) bool { return f == "[local]" || strings.HasSuffix(f, ")") && strings.Contains(f, "(") })
	if at < 2 {
		return s, false, false
	}
	s.User, s.Name, s.Client = clean(fields[at-2]), clean(fields[at-1]), clean(fields[at])
	doing := fields[at+1:]
	if n := len(doing); n > 0 && doing[n-1] == "waiting" {
		waiting, doing = true, doing[:n-1]
	}
	s.Doing = clean(strings.Join(doing, " "))
	return s, waiting, true
}

func clean(s string) string { return logtail.Printable([]byte(s), 64) }

// sessions counts what the titles said over the window.
type sessions struct {
	out              observe.Sessions
	backends, waited int
	waiters, holders map[int]*observe.Session
	running          running
	turn             int
}

// look reads the titles of all backends, or of as many as one look may read.
func (s *sessions) look(procRoot string, children []int) {
	if s.waiters == nil {
		s.waiters, s.holders = map[int]*observe.Session{}, map[int]*observe.Session{}
	}
	if n := len(children); n > maxLooks {
		s.out.Skipped += int64(n - maxLooks)
		s.turn %= n
		children = append(slices.Clone(children[s.turn:]), children[:s.turn]...)[:maxLooks]
		s.turn += maxLooks
	}
	waiting := 0
	var idle []observe.Session
	for _, pid := range children {
		session, waits, ok := title(prefork.Title(procRoot, pid))
		// One that begins may still be refused.
		if !ok || session.Doing == "startup" || session.Doing == "authentication" {
			continue
		}
		session.PID = pid
		s.backends++
		switch {
		case waits:
			waiting++
			note(s.waiters, session)
		case strings.HasPrefix(session.Doing, "idle in transaction"):
			idle = append(idle, session)
		case session.Doing != "idle" && session.Doing != "":
			s.running.look(pid)
		}
	}
	s.out.Rounds++
	s.waited += waiting
	s.out.WaitingPeak = max(s.out.WaitingPeak, waiting)
	if waiting > 0 {
		s.out.WaitingRounds++
		for _, session := range idle {
			note(s.holders, session)
		}
	}
}

func note(in map[int]*observe.Session, session observe.Session) {
	if old := in[session.PID]; old != nil {
		old.Rounds++
		return
	}
	if len(in) < maxTracked {
		session.Rounds = 1
		in[session.PID] = &session
	}
}

// sum is what was seen in all.
func (s *sessions) sum() *observe.Sessions {
	if s.out.Rounds == 0 {
		return nil
	}
	s.out.BackendsMean = float64(s.backends) / float64(s.out.Rounds)
	s.out.WaitingMean = float64(s.waited) / float64(s.out.Rounds)
	s.out.Waiters, s.out.Holders = most(s.waiters), most(s.holders)
	s.out.Statements = s.running.told()
	return &s.out
}

func most(of map[int]*observe.Session) []observe.Session {
	var out []observe.Session
	for _, s := range of {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b observe.Session) int {
		return cmp.Or(cmp.Compare(b.Rounds, a.Rounds), cmp.Compare(a.PID, b.PID))
	})
	return out[:min(len(out), maxSessions)]
}
