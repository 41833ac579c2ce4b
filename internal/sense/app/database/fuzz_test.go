package database

import (
	"context"
	"encoding/json"
	"net"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/budget/budgettest"
)

// FuzzFigure reads what a server gives as a number: it must fit into an Observation.
func FuzzFigure(f *testing.F) {
	for _, text := range []string{"", "10", "-1.5", "NaN", "+Inf", "1e999", "0x1p-2", "1_0"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := Figure(text)
		if _, cannot := json.Marshal(n); err == nil && cannot != nil {
			t.Errorf("%q: %v", text, cannot)
		}
	})
}

// FuzzAsk asks a server that answers whatever it likes, in two parts.
func FuzzAsk(f *testing.F) {
	f.Add([]byte("STAT a 1\r\n"), []byte("END\r\n"))
	f.Add([]byte{}, make([]byte, 5000))
	f.Fuzz(func(t *testing.T, one, other []byte) {
		const most = 1024
		budgettest.Within(t, len(one)+len(other), budgettest.Usual, func() {
			here, there := net.Pipe()
			defer here.Close()
			go func() {
				defer there.Close()
				_, _ = there.Read(make([]byte, 16))
				_, _ = there.Write(one)
				_, _ = there.Write(other)
			}()
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			answer, err := Ask(ctx, here, "stats\r\n", most, func(b []byte) bool { return len(b) > 4 && string(b[len(b)-5:]) == "END\r\n" })
			if len(answer) > most+16<<10 || len(answer) > len(one)+len(other) {
				t.Errorf("%d bytes of %d (%v)", len(answer), len(one)+len(other), err)
			}
		})
	})
}
