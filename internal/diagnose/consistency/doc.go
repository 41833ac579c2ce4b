// Package consistency finds what cannot be true in a report.
//
// In: a diagnose.Report. Out: one sentence for each contradiction: a part that is
// larger than its whole, a figure that no host can have, a name that is empty, a
// cause that is ruled out by what another line of the same report says otherwise.
// Tests ask it of every report of the corpus and of the lab; the product does not.
package consistency
