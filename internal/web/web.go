package web

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/fleet/ship"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// Options say what is served next to the history, and to whom. All of it is
// optional.
type Options struct {
	Version   string
	Host      diagnose.ReportHost
	Recording bool // a recorder in this process writes the history
	// Stats is what the recorder's store did, and the share of one CPU that
	// slowray takes; nil where nothing is recorded.
	Stats func() (stats store.Stats, costCPUShare float64)
	// Targets is how far what is recorded was sent elsewhere; nil where nothing is.
	Targets func() []ship.Status
	// Losses is what the recorder could not see or keep, so far.
	Losses func() []observe.Loss
	// Metrics answers /metrics; nil leaves it out.
	Metrics http.Handler
	// Proofs is a directory with documents of slowray prove and tune; "" none.
	Proofs string

	// Token has to be given by whoever asks; "" asks for none. It is needed
	// wherever others can reach the listener (Listener.Public).
	Token string
	// Loopback says that the listener is reached from this host alone: only
	// requests for its own names are answered then, so that no page on the
	// internet can read it through a name that points here (DNS rebinding).
	Loopback bool
	// Names are further host names that requests may be for, where Loopback is
	// set: those of a reverse proxy.
	Names []string

	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// server answers.
type server struct {
	source  Source
	opt     Options
	windows *windowCache
	turns   *turns
}

// New is the handler of everything that the page needs. The error is one line.
func New(source Source, opt Options) (http.Handler, error) {
	if source == nil {
		return nil, errors.New("web: no history to serve")
	}
	if opt.Token != "" && len(opt.Token) < minToken {
		return nil, fmt.Errorf("web: the token has %d characters: use %d at least", len(opt.Token), minToken)
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	s := &server{source: source, opt: opt, windows: newWindowCache(), turns: newTurns()}
	files, err := newAssets("index.html")
	if err != nil {
		return nil, fmt.Errorf("web: %w", err)
	}
	mux := http.NewServeMux()
	for path, answer := range map[string]answerFunc{
		"/api/status":     s.status,
		"/api/endpoints":  s.endpoints,
		"/api/series":     s.series,
		"/api/findings":   s.findings,
		"/api/report":     s.report,
		"/api/requests":   s.requests,
		"/api/request":    s.request,
		"/api/difference": s.difference,
		"/api/histogram":  s.histogram,
		"/api/waits":      s.waits,
		"/api/stacks":     s.stacks,
		"/api/drops":      s.drops,
		"/api/proofs":     s.proofs,
		"/flame":          s.flamePage,
		"/flame.svg":      s.flamePicture,
	} {
		mux.Handle(path, s.handler(answer))
	}
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, "there is no such answer")
	})
	if opt.Metrics != nil {
		// It has bounds of its own: who looks at the page, or keeps others from it, does
		// not keep the monitoring from its figures.
		mux.Handle("/metrics", prompt(opt.Metrics))
	}
	mux.Handle("/", files)
	return s.recovered(s.headers(s.guarded(mux))), nil
}

// answerFunc makes one answer. Its error is a badRequest, a notFound, or what
// went wrong here.
type answerFunc func(ctx context.Context, q *query) (answer, error)

// notFound is an error about something that is not there (any more).
type notFound struct{ text string }

func (e *notFound) Error() string { return e.text }

// handler checks the query, waits for its turn, and writes the answer.
func (s *server) handler(f answerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		turn := s.turns.wait(w, r)
		if turn == nil {
			return
		}
		defer turn.end()
		q, err := parseQuery(r.URL.RawQuery)
		if err == nil {
			var span timeRange
			if span, err = s.span(); err == nil {
				err = q.complete(span, s.opt.Now())
			}
		}
		var a answer
		if err == nil {
			ctx, cancel := context.WithTimeout(r.Context(), maxAnswer)
			defer cancel()
			a, err = f(ctx, q)
		}
		if err == nil {
			a.write(w, r, turn)
			return
		}
		var mine *badRequest
		var none *notFound
		switch {
		case errors.As(err, &mine):
			writeError(w, http.StatusBadRequest, mine.text)
		case errors.As(err, &none):
			writeError(w, http.StatusNotFound, none.text)
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
			writeError(w, http.StatusServiceUnavailable, "it took too long: ask for a shorter range")
		default:
			writeError(w, http.StatusInternalServerError, "the history cannot be read: "+err.Error())
		}
	})
}

// recovered keeps the recorder alive whatever a file holds.
func (s *server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch p := recover(); p {
			case nil:
			case http.ErrAbortHandler:
				panic(p)
			default:
				log.Printf("web: %q: %v\n%s", clip(r.URL.Path, 80), p, debug.Stack())
				writeError(w, http.StatusInternalServerError, "this answer failed: see slowray's log")
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// span is from when to when there is history; zero when there is none. What was
// recorded while the clock was ahead is not the latest that there is.
func (s *server) span() (timeRange, error) {
	from, to, err := s.source.Span()
	if now := s.opt.Now().Add(clockSlack); to.After(now) && from.Before(now) {
		to = now
	}
	return timeRange{from, to}, err
}

// clockSlack is how much later than now the end of the history may be: its last
// second is not over.
const clockSlack = 2 * time.Second
