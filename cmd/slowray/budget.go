package main

import "fmt"

// budgetFlag is how much slowray may cost the host it looks at.
type budgetFlag struct {
	Budget float64 `default:"1" placeholder:"P" help:"Share of the host's CPUs, in percent, that slowray may take, in the kernel too, before it looks at less of what happens (${default}; 0: at everything, always)."`
}

func (f budgetFlag) validate() error {
	if !(f.Budget >= 0 && f.Budget <= 100) {
		return fmt.Errorf("--budget %g: must be 0 to 100 percent", f.Budget)
	}
	return nil
}

// share is the budget as the recorder takes it.
func (f budgetFlag) share() float64 {
	if f.Budget == 0 {
		return -1
	}
	return f.Budget / 100
}
