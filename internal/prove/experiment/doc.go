// Package experiment finds out whether a change does what is claimed of it:
// blocks of traffic are measured before the change, with it, and after it was
// undone, and a verdict is given only on what comes and goes with the change
// beyond the noise.
//
// In: a Subject that can be applied and undone, a Meter that measures blocks.
// Out: a Result with the verdict, the effects and all blocks. It measures
// nothing itself, knows no clock but the Meter's, and touches nothing but
// through the Subject.
package experiment
