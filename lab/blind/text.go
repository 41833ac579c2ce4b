package blind

import (
	"fmt"
	"strings"
)

func (s Share) String() string {
	if s.Of == 0 {
		return "–"
	}
	return fmt.Sprintf("%d of %d (%.0f %%)", s.Have, s.Of, 100*s.Value())
}

// Summary is the score in three lines.
func (s *Score) Summary() string {
	return strings.Join([]string{
		fmt.Sprintf("%d draws with a fault: named first %s, in the first three %s, subject right %s.", s.All.First.Of, s.All.First, s.All.InThree, s.All.Subject),
		fmt.Sprintf("The printed fix works %s; %.0f %% of the harm is explained; nothing found over harm: %d times.", s.All.Fix, 100*s.All.Explains, s.Nothing),
		fmt.Sprintf("%d draws without a fault: %d false findings; %d of %d reports contradict themselves; calibration error %.3f.", s.Healthy.Of, s.Blamed, s.Against, s.Reports, s.Error),
	}, "\n")
}
