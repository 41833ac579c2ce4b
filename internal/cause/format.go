package cause

import (
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/shell"
)

func itoa(n int) string    { return strconv.Itoa(n) }
func utoa(n uint64) string { return strconv.FormatUint(n, 10) }

func count[T int | int64 | uint32 | uint64](n T) string { return figure.Count(n) }
func percent(share float64) string                      { return figure.Percent(share) }
func seconds(s float64) string                          { return figure.Seconds(s) }

// ofLimit writes what is used of a limit, "9 of 10 entries", or "11 entries, limit 10":
// a limit may be lowered, some are checked late, and the two are not read at once.
func ofLimit(used, limit any, unit string) string { return figure.Evidence(used, limit, unit) }

// permille writes parts of a thousand to two digits, from 100 on as a whole number.
func permille(f float64) string {
	if f >= 100 {
		return strconv.FormatFloat(math.Round(f), 'f', -1, 64) + " ‰"
	}
	return strconv.FormatFloat(f, 'g', 2, 64) + " ‰"
}

// ratio is a/b, 0 when b is 0, and never outside 0 to 1.
func ratio[A, B int | int64 | uint64 | uint32 | float64](a A, b B) float64 {
	if b == 0 {
		return 0
	}
	return max(min(float64(a)/float64(b), 1), 0)
}

// lookAtWaits is the command that tells what the threads of a process wait for.
func lookAtWaits(pid int) shell.Command {
	return shell.Line("slowray wait %s   # what its threads wait for, to the last hop", pid)
}

// round keeps evidence readable: three decimals.
func round(f float64) float64 { return math.Round(f*1000) / 1000 }

// sortedKeys lists the keys of a map in order, for reports that never differ.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
