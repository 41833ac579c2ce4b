package symbol

import (
	"slices"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/budget/budgettest"
)

// FuzzKallsyms finds functions in any list of the kernel's symbols: an address has the
// nearest function at or below it.
func FuzzKallsyms(f *testing.F) {
	f.Add("ffffffff81000000 T _text\nffffffff81000010 t do_x\t[mod]\n0 t hidden\n", uint64(0xffffffff81000011), uint64(0xffffffff81000000))
	f.Add("1 t a\n1 t b\n\n 2 t c\nzz t d\n", uint64(1), uint64(1<<63))
	f.Fuzz(func(t *testing.T, text string, one, two uint64) {
		addresses := []uint64{min(one, two), max(one, two)}
		addresses = slices.Compact(addresses)
		// The scanner has a buffer of 64 KiB.
		budgettest.Within(t, len(text), budgettest.Usual, func() {
			found, err := parseKallsyms(strings.NewReader(text), addresses)
			if err != nil {
				return
			}
			for at := range found {
				if !slices.Contains(addresses, at) {
					t.Errorf("%x was not asked for", at)
				}
			}
		})
	})
}
