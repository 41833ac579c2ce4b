package blind

import (
	"cmp"
	"slices"
)

// Share is so many of so many.
type Share struct {
	Of, Have int
}

func (s *Share) count(have bool) {
	s.Of++
	if have {
		s.Have++
	}
}

// Value is 0 to 1; 1 of none.
func (s Share) Value() float64 {
	if s.Of == 0 {
		return 1
	}
	return float64(s.Have) / float64(s.Of)
}

// Row is what became of the draws of one kind of fault.
type Row struct {
	Cause    string
	First    Share
	InThree  Share
	Subject  Share // of those that were named
	Fix      Share // of those that could be made
	Explains float64
	explains int
}

// Score is how slowray did.
type Score struct {
	Rows     []Row // by cause
	All      Row
	Healthy  Share // draws without a fault, of which nothing was blamed
	Blamed   int   // findings on them
	Nothing  int   // "nothing found" over harm
	Innocent int   // draws with a fault on which something is blamed that is not there
	Against  int   // reports with a contradiction
	Reports  int
	NoHarm   int // draws that were drawn again
	Failed   int
	Late     float64 // s from the end of the window to the report, the longest
	LateP50  float64
	CPU      float64 // CPU time of slowray, s for each s of its window; the median
	Error    float64 // expected calibration error of the confidence that was reported
	Wrong    []Result
}

// NewScore adds results up.
func NewScore(results []Result) *Score {
	s := &Score{}
	var late, cpu []float64
	for _, r := range results {
		switch r.Verdict {
		case NoHarm:
			s.NoHarm++
			continue
		case Failed:
			s.Failed++
			continue
		}
		s.Reports++
		late = append(late, r.LateS)
		cpu = append(cpu, r.CPUS/max(r.WindowS, 1))
		if len(r.Against) > 0 {
			s.Against++
		}
		if r.Healthy {
			s.Healthy.count(r.Verdict == Silent)
			s.Blamed += len(r.Blamed)
		} else {
			s.faulty(&r)
		}
		if r.Verdict != First && r.Verdict != Silent || len(r.Blamed) > 0 || !r.Healthy && !r.Subject || r.Fix == FixFails || len(r.Against) > 0 {
			s.Wrong = append(s.Wrong, r)
		}
	}
	slices.Sort(late)
	slices.Sort(cpu)
	if len(late) > 0 {
		s.Late, s.LateP50, s.CPU = late[len(late)-1], late[len(late)/2], cpu[len(cpu)/2]
	}
	slices.SortFunc(s.Rows, func(a, b Row) int { return cmp.Compare(a.Cause, b.Cause) })
	s.Error = CalibrationError(reported(results))
	return s
}

func (s *Score) faulty(r *Result) {
	at := slices.IndexFunc(s.Rows, func(row Row) bool { return row.Cause == r.Shape.Cause })
	if at < 0 {
		at = len(s.Rows)
		s.Rows = append(s.Rows, Row{Cause: r.Shape.Cause})
	}
	for _, row := range []*Row{&s.Rows[at], &s.All} {
		row.First.count(r.Verdict == First)
		row.InThree.count(r.Verdict == First || r.Verdict == InThree)
		if r.Verdict == First || r.Verdict == InThree || r.Verdict == Later {
			row.Subject.count(r.Subject)
		}
		if r.Fix == FixWorks || r.Fix == FixFails {
			row.Fix.count(r.Fix == FixWorks)
		}
		if r.Lost > 0 {
			row.Explains = (row.Explains*float64(row.explains) + r.Explains/r.Lost) / float64(row.explains+1)
			row.explains++
		}
	}
	if r.Verdict == Nothing {
		s.Nothing++
	}
	if len(r.Blamed) > 0 {
		s.Innocent++
	}
}

// reported is what was said about each cause that was named, and whether it is true.
func reported(results []Result) []Sample {
	var list []Sample
	for _, r := range results {
		if !r.Counts() {
			continue
		}
		for _, f := range r.Findings {
			if f.Role == "cause" {
				list = append(list, Sample{X: f.Confidence, Right: f.Right})
			}
		}
	}
	return list
}
