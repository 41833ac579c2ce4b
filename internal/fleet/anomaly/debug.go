package anomaly

import "fmt"

// Debug is for development.
func (m *Model) Debug() {
	for _, sig := range []Signal{Rate, Errors, Again, Total, P50, P99, PartSignal(3), SplitSignal(0), SplitSignal(3)} {
		for w := range 2 {
			t := &m.tails[1][sig][w]
			fmt.Printf("%-20s %d n %8.0f:", sig, w, t.n)
			for _, z := range []float64{2, 3, 5, 7, 10, 15, 20, 30, 50, 100} {
				fmt.Printf(" %5.1f", t.rarity(z))
			}
			fmt.Println()
		}
	}
}
