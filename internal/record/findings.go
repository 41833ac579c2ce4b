package record

import (
	"cmp"
	"slices"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/diagnose"
)

// course follows findings from window to window.
type course struct {
	open map[diagnose.Identity]Finding
	end  time.Time // of the last window
}

// add takes a window's findings and gives those that go on now, in their order,
// and then those that have ended.
func (c *course) add(start, end time.Time, findings []cause.Finding) []Finding {
	before := c.open
	c.open = map[diagnose.Identity]Finding{}
	var now, over []Finding
	for i := range findings {
		onset, _ := diagnose.Onset(&findings[i], start)
		f := Finding{Finding: findings[i], Onset: onset, Windows: 1, New: true}
		id := diagnose.IdentityOf(&f.Finding)
		if _, twice := c.open[id]; twice {
			continue
		}
		if old, known := before[id]; known && start.Sub(c.end) <= diagnose.Apart {
			f.Onset, f.Windows, f.New = old.Onset, old.Windows+1, false
			delete(before, id)
		}
		c.open[id] = f
		now = append(now, f)
	}
	for _, f := range before {
		f.End, f.New = c.end, false
		over = append(over, f)
	}
	slices.SortFunc(over, func(a, b Finding) int {
		return cmp.Or(a.Onset.Compare(b.Onset), cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.Subject.Port, b.Subject.Port), cmp.Compare(a.Subject.PID, b.Subject.PID))
	})
	c.end = end
	return append(now, over...)
}
