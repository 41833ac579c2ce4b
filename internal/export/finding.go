package export

import (
	"cmp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/record"
)

// mostFindings is how many findings of a window are shown; the weightiest come
// first in a report, and so here.
const mostFindings = 100

// findings are those of the latest window, and how often each cause was found.
type findings struct {
	mu      sync.Mutex
	windows uint64
	failed  uint64    // windows that could not be watched
	end     time.Time // of the latest window
	now     []shownFinding
	total   int // in the latest window
	ofCause map[causeRole]uint64
}

// causeRole is a cause found in a role.
type causeRole struct{ cause, role string }

// shownFinding is a finding as its labels show it.
type shownFinding struct {
	labels [findingLabelCount]string
	share  float64 // of what the finding says it is, 0 to 1
}

const findingLabelCount = 10

// findingLabels are the labels of a finding, in their order.
var findingLabels = [findingLabelCount]string{"address", "cause", "consequence_of", "container", "interface", "kind", "netns", "port", "process", "role"}

// Window shows the findings that are going on in the order of the report, instead
// of those of the window before. It implements record.Sink.
func (x *Exporter) Window(w *record.Window) {
	if p := x.push.Load(); p != nil {
		p.window(w)
	}
	if w.Err != nil {
		x.findings.mu.Lock()
		x.findings.failed++
		x.findings.mu.Unlock()
		return
	}
	found := make([]*cause.Finding, 0, len(w.Findings))
	for i := range w.Findings {
		if w.Findings[i].End.IsZero() {
			found = append(found, &w.Findings[i].Finding)
		}
	}
	end := x.opt.Now()
	if w.Observation != nil {
		end = w.Observation.Window.Start.Add(time.Duration(w.Observation.Window.Seconds * float64(time.Second)))
	}
	x.findings.set(end, found)
}

// set replaces the findings of the window before.
func (fs *findings) set(end time.Time, found []*cause.Finding) {
	list := make([]shownFinding, 0, min(len(found), mostFindings))
	seen := map[[findingLabelCount]string]int{}
	causes := map[causeRole]bool{}
	for _, f := range found {
		causes[causeRole{label(string(f.Cause)), label(string(f.Role))}] = true
		shown := showFinding(f)
		if at, ok := seen[shown.labels]; ok {
			list[at].share = max(list[at].share, shown.share) // of two processes of the same name
			continue
		}
		if len(list) < mostFindings {
			seen[shown.labels] = len(list)
			list = append(list, shown)
		}
	}
	slices.SortFunc(list, func(a, b shownFinding) int { return slices.Compare(a.labels[:], b.labels[:]) })

	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.windows++
	fs.end, fs.now, fs.total = end, list, len(found)
	if fs.ofCause == nil {
		fs.ofCause = map[causeRole]uint64{}
	}
	for c := range causes {
		if _, known := fs.ofCause[c]; known || len(fs.ofCause) < mostCauses {
			fs.ofCause[c]++
		}
	}
}

// mostCauses is more than the catalogue has, in both roles.
const mostCauses = 1000

func showFinding(f *cause.Finding) shownFinding {
	text := func(n uint64) string {
		if n == 0 {
			return ""
		}
		return strconv.FormatUint(n, 10)
	}
	s := &f.Subject
	follows := ""
	if f.ConsequenceOf != nil {
		follows = string(*f.ConsequenceOf)
	}
	share := f.Impact.Share
	if !(share > 0) { // also NaN
		share = 0
	}
	return shownFinding{
		labels: [findingLabelCount]string{
			label(s.Addr), label(string(f.Cause)), label(follows), label(s.Container), label(s.Interface), label(s.Kind),
			text(s.NetNS), text(uint64(max(s.Port, 0))), label(s.Comm), label(string(f.Role)),
		},
		share: min(share, 1),
	}
}

// counted are how often each cause was found, in the order of their names.
func (fs *findings) counted() []causeRole {
	list := make([]causeRole, 0, len(fs.ofCause))
	for c := range fs.ofCause {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b causeRole) int { return cmp.Or(cmp.Compare(a.cause, b.cause), cmp.Compare(a.role, b.role)) })
	return list
}
