package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	fleetanswer "github.com/slowray/slowray/internal/fleet/answer"
)

// NewFleet is the handler of the fleet's page: an archive over many hosts, by the same
// rules as New. Of the options it uses Version, Token, Loopback, Names and Now. The error
// is one line.
func NewFleet(archive fleet.Archive, opt Options) (http.Handler, error) {
	if archive == nil {
		return nil, errors.New("web: no archive to serve")
	}
	if opt.Token != "" && len(opt.Token) < minToken {
		return nil, fmt.Errorf("web: the token has %d characters: use %d at least", len(opt.Token), minToken)
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	s := &server{opt: opt, turns: newTurns()}
	files, err := newAssets("fleet.html")
	if err != nil {
		return nil, fmt.Errorf("web: %w", err)
	}
	f := &fleetServer{server: s, looker: fleetanswer.NewLooker(archive), settle: fleetanswer.SettleOf(archive), judging: make(chan struct{}, 1)}
	mux := http.NewServeMux()
	mux.Handle("/api/fleet", http.HandlerFunc(f.serve))
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, "there is no such answer")
	})
	mux.Handle("/", files)
	return s.recovered(s.headers(s.guarded(mux))), nil
}

// fleetServer answers about a fleet.
type fleetServer struct {
	*server
	looker *fleetanswer.Looker
	settle time.Duration // after which the hosts' seconds are there
	// judging has room for one: a range is judged at a time, which reads much of the
	// archive. Who is in it may use kept and looker.
	judging chan struct{}
	kept    []*fleetView // the last ones, which all who look at the same range share
}

const (
	keptViews = 6
	// fleetTime is how long a range may be judged. It ends before Serve's writeTime does.
	fleetTime = maxAnswer + 15*time.Second
	// Hosts that were away send what they have later: what was judged so soon after its
	// end is judged again.
	settled    = 10 * time.Minute
	judgeAgain = 10 * time.Second
	// maxFleetRows of services, and of hosts, are sent, and of a host maxOfHost labels and
	// addresses.
	maxFleetRows = 500
	maxOfHost    = 32
)

func (f *fleetServer) serve(w http.ResponseWriter, r *http.Request) {
	turn := f.turns.wait(w, r)
	if turn == nil {
		return
	}
	defer turn.end()
	q, err := parseFleetQuery(r.URL.RawQuery, f.opt.Now().Add(-f.settle))
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), fleetTime)
	defer cancel()
	view, err := f.view(ctx, q)
	switch {
	case err == nil:
		now := *view
		now.Now = float64(f.opt.Now().UnixMilli()) / 1e3
		a := answer{value: &now}
		a.write(w, r, turn)
	case ctx.Err() != nil:
		writeError(w, http.StatusServiceUnavailable, "it took too long: ask for a shorter range ("+err.Error()+")")
	default:
		writeError(w, http.StatusBadGateway, "the archive cannot be asked: "+err.Error())
	}
}

// view judges a range, or finds that it was judged.
func (f *fleetServer) view(ctx context.Context, q timeRange) (*fleetView, error) {
	select {
	case f.judging <- struct{}{}:
		defer func() { <-f.judging }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	now := f.opt.Now()
	f.kept = slices.DeleteFunc(f.kept, func(v *fleetView) bool {
		return v.made.Sub(q.to) < settled && v.timeRange == q && now.Sub(v.made) > judgeAgain
	})
	if i := slices.IndexFunc(f.kept, func(v *fleetView) bool { return v.timeRange == q }); i >= 0 {
		return f.kept[i], nil
	}
	v, err := f.judge(ctx, q)
	if err != nil {
		return nil, err
	}
	v.made = now
	f.kept = append(f.kept, v)
	f.kept = slices.Delete(f.kept, 0, max(len(f.kept)-keptViews, 0))
	return v, nil
}
