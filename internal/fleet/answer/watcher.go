package answer

import (
	"context"
	"slices"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/anomaly"
)

// Settle is how long after a second it is asked for, at least: by then hosts have
// shipped it.
const Settle = 3 * time.Second

// arrives is how long a second is on its way, next to the time that it waits for others.
const arrives = time.Second

const (
	// placesEvery is how often it is asked where endpoints run, while something is abnormal.
	placesEvery = 300
	// hostsEvery is how often the hosts are asked for: they say Hello each minute.
	hostsEvery = 30
	// catchUp is how much at most is judged when the archive was not to be reached; what
	// is older is left out.
	catchUp = 5 * time.Minute
)

// Watcher judges a fleet second by second. It is for one goroutine.
type Watcher struct {
	archive  fleet.Archive
	model    *anomaly.Model
	Hosts    []fleet.HostSeen
	Newest   map[string]int64 // s: the last second of each host
	at       int64            // the next second to judge, s since 1970
	asked    int64            // when the hosts were asked for
	incident incidents
	Now      anomaly.Judgement // of the last second that was judged
	progress func(string, float64)
	settle   time.Duration
	places   map[fleet.Key]fleet.Place // where endpoints run, as of placed; asked for when something is abnormal
	placed   int64
	moved    bool // it is known anew where they run, and what is abnormal was not explained by it yet
}

// lingers is how long hosts keep seconds back, to send several together.
func lingers(a fleet.Archive) time.Duration {
	if l, ok := a.(fleet.Lingerer); ok {
		return l.Linger(fleet.Seconds)
	}
	return 0
}

// SettleOf is how long after its end a second is there, of all hosts that ship to an
// archive.
func SettleOf(a fleet.Archive) time.Duration { return max(Settle, lingers(a)+arrives) }

// NewWatcher makes a watcher that knows nothing. progress, if set, is called with what is done
// while it learns.
func NewWatcher(a fleet.Archive, progress func(what string, done float64)) *Watcher {
	if progress == nil {
		progress = func(string, float64) {}
	}
	return &Watcher{archive: a, settle: SettleOf(a), model: anomaly.New(anomaly.Options{}), Newest: map[string]int64{}, incident: incidents{open: map[string]*Incident{}}, progress: progress}
}

// learnParts is what learning consists of: sums of the history, the lead, and what is judged
// second by second.
const learnParts = 3

// Learn learns what is usual from the history before now: sums of five minutes, and the
// last quarter of an hour second by second where that is not too much.
func (w *Watcher) Learn(ctx context.Context, now time.Time) error {
	return w.LearnBefore(ctx, now, now)
}

// longestWrong is how long something wrong is taken for that at most: after it the model
// calls it usual, too.
const longestWrong = 6 * time.Hour

// LearnBefore is Learn for who knows that something is wrong since a time, as after a
// restart: the quarter of an hour before that is judged, so that it is not learned as usual,
// and how it began; then what is now. What lies between is left out.
func (w *Watcher) LearnBefore(ctx context.Context, now, since time.Time) error {
	end := now.Add(-w.settle).Truncate(time.Second)
	n, err := population(ctx, w.archive, end.Add(-2*rollUp), end)
	if err != nil {
		return err
	}
	begin := earlier(end, since)
	if end.Sub(begin) > longestWrong {
		begin = end
	}
	p := planFor(n, 0)
	from := begin.Add(-lead).Truncate(10 * time.Second)
	warm := func(part float64, from, to time.Time, step time.Duration) error {
		return w.archive.Points(ctx, fleet.Question{From: from, To: to}, step, func(p *fleet.Point) bool {
			w.progress(learning, (part+share(p.At, from, to))/learnParts)
			w.model.Warm(p)
			return true
		})
	}
	if err := warm(0, from.Add(-p.history), from, rollUp); err != nil {
		return err
	}
	w.at = from.Unix()
	recent := lead
	if p.step > time.Second {
		recent = time.Minute
		upto := begin.Add(-recent).Truncate(p.step)
		if err := warm(1, from, upto, p.step); err != nil {
			return err
		}
		w.at = upto.Unix()
	}
	const onset = 2 * time.Minute
	if last := end.Add(-recent); begin.Add(onset).Before(last) {
		shown := w.progress
		w.progress = func(string, float64) {} // it is of what comes, and never goes back
		_, err := w.judge(ctx, begin.Add(onset).Unix())
		if w.progress = shown; err != nil {
			return err
		}
		w.at = last.Unix()
	}
	_, err = w.judge(ctx, end.Unix())
	return err
}

// Heard is when any host was last heard of, by its own clock; zero where none ever was.
func (w *Watcher) Heard() time.Time {
	var last time.Time
	for i := range w.Hosts {
		last = later(last, w.Hosts[i].Last)
	}
	for _, at := range w.Newest {
		last = later(last, time.Unix(at, 0))
	}
	return last.UTC()
}

// HeardOf is when each host was last heard of, by its own clock.
func (w *Watcher) HeardOf() map[string]time.Time {
	heard := make(map[string]time.Time, len(w.Hosts))
	for i := range w.Hosts {
		heard[w.Hosts[i].Name] = w.Hosts[i].Last
	}
	for host, at := range w.Newest {
		heard[host] = later(heard[host], time.Unix(at+1, 0))
	}
	return heard
}

// Judged is up to when all is judged.
func (w *Watcher) Judged() time.Time { return time.Unix(w.at, 0).UTC() }

// Silent says that no host has been heard of for so long that nothing can be judged.
func (w *Watcher) Silent(now time.Time) bool { return w.Heard().Before(now.Add(-w.settle - silence)) }

// Step judges the seconds that have passed, and says what has begun, become clearer, or
// ended in them.
func (w *Watcher) Step(ctx context.Context, now time.Time) ([]Event, error) {
	end := now.Add(-w.settle).Unix()
	if oldest := now.Add(-catchUp).Unix(); w.at < oldest {
		w.at = oldest
	}
	return w.judge(ctx, end)
}

// judge judges the seconds up to end, which is exclusive.
func (w *Watcher) judge(ctx context.Context, end int64) ([]Event, error) {
	if end <= w.at {
		return nil, nil
	}
	if w.asked == 0 || end-w.asked >= hostsEvery {
		hosts, err := w.archive.Hosts(ctx)
		if err != nil {
			return nil, err
		}
		w.Hosts, w.asked = hosts, end
	}
	if len(w.Now.Anomalies) > 0 && (w.places == nil || end-w.placed >= placesEvery) {
		places, err := w.archive.Places(ctx, fleet.Question{From: time.Unix(end, 0).Add(-rollUp), To: time.Unix(end, 0)})
		if err != nil {
			return nil, err
		}
		w.places, w.placed, w.moved = places, end, true
	}
	var events []Event
	first := w.at
	at, begun := first, false
	err := w.archive.Points(ctx, fleet.Question{From: time.Unix(first, 0), To: time.Unix(end, 0)}, time.Second, func(p *fleet.Point) bool {
		if p.At < at || p.At >= end {
			return true // not of a second that is to be judged
		}
		for ; at < p.At; at++ {
			events = append(events, w.end(at)...)
		}
		begun = true
		w.model.Add(p)
		w.Newest[p.Host] = p.At
		w.progress(judgingNow, (2+float64(p.At-first)/float64(end-first))/learnParts)
		return true
	})
	switch {
	case err == nil:
		for ; at < end; at++ {
			events = append(events, w.end(at)...)
		}
	case begun:
		// The answer broke off within a second: what came of it must not come twice.
		events = append(events, w.end(at)...)
		at++
	}
	w.at = at
	return events, err
}

// end ends a second.
func (w *Watcher) end(at int64) []Event {
	j := w.model.Judge(at)
	w.Now = j
	if !j.Changed && !w.incident.due(at) && !w.moved {
		return nil
	}
	w.moved = false
	x := anomaly.Explanation{}
	if len(j.Anomalies) > 0 {
		hosts := make([]fleet.Host, len(w.Hosts))
		for i := range w.Hosts {
			hosts[i] = w.Hosts[i].Host
		}
		x = w.model.Explain(&j, anomaly.Facts{Hosts: hosts, Places: w.places})
	}
	return w.incident.follow(at, j.Anomalies, &x)
}

// Known says how many endpoints of a host there are, of all hosts where host is empty,
// and how many of them are known well enough to be judged.
func (w *Watcher) Known(host string) (enough, all int) { return w.model.Known(host) }

// Open are the incidents that last, the oldest first.
func (w *Watcher) Open() []Incident {
	var all []Incident
	for _, i := range w.incident.open {
		all = append(all, *i)
	}
	slices.SortFunc(all, compareIncidents)
	return all
}
