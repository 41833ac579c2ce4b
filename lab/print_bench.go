package lab

import (
	"strings"

	"github.com/slowray/slowray/lab/blind"
)

// draw is one line for each draw, and what is wrong below it.
func (p *printer) draw(r blind.Result) {
	good := r.Verdict == blind.First && r.Subject && len(r.Blamed)+len(r.Against) == 0 || r.Verdict == blind.Silent || r.Verdict == blind.NoHarm
	p.printf("%3d  %-9s %-22s %s | %s | %s\n", r.Number, p.paint(good, string(r.Verdict)), r.Shape.Kind, r.Shape.Chain, r.Shape.Strength, r.Shape.Load)
	var found []string
	for _, f := range r.Findings {
		name := f.Cause
		if f.Role != "cause" {
			name = "(" + name + ")"
		}
		found = append(found, name)
	}
	share := 1.0
	if r.Lost > 0 {
		share = r.Explains / r.Lost
	}
	p.printf("     found %s; fix %s; explained %.0f %% of %.1f s; late %.1f s; %.0f s\n", strings.Join(found, " "), r.Fix, 100*share, r.Lost, r.LateS, r.Seconds)
	if r.Shape.Second+r.Shape.Noise != "" {
		p.printf("     with %s %s\n", r.Shape.Second, r.Shape.Noise)
	}
	if r.Fix == blind.FixFails || p.verbose && r.FixBy != "" {
		p.printf("     fix: %s %s\n", strings.ReplaceAll(r.FixBy, "\n", "; "), r.Proof)
	}
	for _, list := range [][]string{r.Reasons, r.Against} {
		for _, why := range list {
			p.printf("     - %s\n", why)
		}
	}
	if r.Problem != "" {
		p.printf("     ! %s\n", r.Problem)
	}
	if !good {
		p.printf("     %s\n", r.Again())
	}
}
