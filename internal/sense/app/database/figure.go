package database

import (
	"fmt"
	"math"
	"strconv"
)

// Figure is a number that a server tells. NaN and infinity are none: JSON has no word
// for them, and they compare with nothing.
func Figure(text string) (float64, error) {
	n, err := strconv.ParseFloat(text, 64)
	if err == nil && (math.IsNaN(n) || math.IsInf(n, 0)) {
		return 0, fmt.Errorf("%q is no figure", text)
	}
	return n, err
}
