package anomaly

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/slowray/slowray/internal/fleet"
)

// state is a model as it is saved: what was learned, not what lies in the windows, nor
// the anomalies under way.
type state struct {
	Version int
	Day     int64
	Ends    []stateEnd
	Groups  []stateGroup
	Tails   [3][NumSignals][windows]stateTail
	Fleet   stateTail
}

type stateEnd struct {
	Key         fleet.Key
	Known, Seen float64
	Whole       bool
	Track       [NumSignals]track
}

type stateGroup struct {
	Key     groupKey
	Seasons [len(seasonal)]seasonState
}

type seasonState struct {
	Days       int
	Day, Burst []float32
	WeekN      [7]int
	Week       [7][]float32
	Sum, N     []float32
}

type stateTail struct {
	N      float64
	Counts []float64
}

// stateVersion changes with the meaning of what is saved.
const stateVersion = 3

// Save writes what was learned.
func (m *Model) Save(w io.Writer) error {
	s := state{Version: stateVersion, Day: m.day, Fleet: stateTail{m.fleet.n, m.fleet.counts[:]}}
	for _, e := range m.ends {
		s.Ends = append(s.Ends, stateEnd{e.Key, e.Known, e.Seen, e.whole, e.Track})
	}
	for _, g := range m.group {
		sg := stateGroup{Key: g.key}
		for i := range g.Seasons {
			t := &g.Seasons[i]
			x := seasonState{Days: t.Days, Day: t.Day[:], Burst: t.Burst[:], WeekN: t.WeekN, Sum: t.sum[:], N: t.n[:]}
			for d := range x.Week {
				if t.WeekN[d] > 0 {
					x.Week[d] = t.Week[d][:]
				}
			}
			sg.Seasons[i] = x
		}
		s.Groups = append(s.Groups, sg)
	}
	for i := range m.tails {
		for j := range m.tails[i] {
			for k := range m.tails[i][j] {
				t := &m.tails[i][j][k]
				s.Tails[i][j][k] = stateTail{t.n, t.counts[:]}
			}
		}
	}
	return gob.NewEncoder(w).Encode(&s)
}

// Load makes a model of what Save wrote. A state of another version, and one that
// makes no sense, is an error.
func Load(r io.Reader, o Options) (*Model, error) {
	var s state
	if err := gob.NewDecoder(r).Decode(&s); err != nil {
		return nil, fmt.Errorf("saved model: %w", err)
	}
	if s.Version != stateVersion {
		return nil, fmt.Errorf("saved model: version %d is not %d", s.Version, stateVersion)
	}
	m := New(o)
	m.day = s.Day
	for i := range s.Ends {
		x := &s.Ends[i]
		var e *endpoint
		if x.Whole {
			e = m.ends[m.group[m.groupOf(x.Key, 0)].whole]
		} else {
			e = m.endpoint(x.Key, 0)
		}
		for _, t := range x.Track {
			if !t.finite() {
				return nil, errors.New("saved model: values that are no numbers")
			}
		}
		e.Known, e.Seen, e.Track = x.Known, x.Seen, x.Track
		for sig := range e.Track {
			e.Track[sig].limit = float32(math.Exp(float64(e.Track[sig].Base)))
		}
	}
	for _, x := range s.Groups {
		gi, ok := m.groups[x.Key]
		if !ok {
			continue
		}
		for i := range x.Seasons {
			m.group[gi].Seasons[i].restore(&x.Seasons[i])
		}
	}
	for i := range m.tails {
		for j := range m.tails[i] {
			for k := range m.tails[i][j] {
				t := &m.tails[i][j][k]
				t.n = s.Tails[i][j][k].N
				copy(t.counts[:], s.Tails[i][j][k].Counts)
				t.fit()
			}
		}
	}
	m.fleet.n = s.Fleet.N
	copy(m.fleet.counts[:], s.Fleet.Counts)
	m.fleet.fit()
	return m, nil
}

func (s *season) restore(x *seasonState) {
	s.Days, s.WeekN = x.Days, x.WeekN
	copy(s.Day[:], x.Day)
	copy(s.Burst[:], x.Burst)
	copy(s.sum[:], x.Sum)
	copy(s.n[:], x.N)
	for d := range x.Week {
		copy(s.Week[d][:], x.Week[d])
	}
}

// finite says whether the values can be reckoned with.
func (t *track) finite() bool {
	sum := t.Base + t.Anchor
	for _, v := range t.A {
		if !(v >= 0) {
			return false
		}
		sum += v
	}
	for _, v := range t.B {
		if !(v > 0) {
			return false
		}
		sum += v
	}
	return !math.IsNaN(float64(sum)) && !math.IsInf(float64(sum), 0)
}
