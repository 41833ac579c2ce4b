package anomaly

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/budget/budgettest"
)

// FuzzLoad loads saved models with bytes changed. What is loaded can be saved, judged
// with, and loaded again.
func FuzzLoad(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 2))
	m := New(Options{})
	at := int64(1_700_000_000)
	for range 120 {
		plain(rng, at, 2, nil, m.Add)
		m.Judge(at)
		at++
	}
	var saved bytes.Buffer
	if err := m.Save(&saved); err != nil {
		f.Fatal(err)
	}
	f.Add(uint32(0), []byte{}, uint32(1<<31))
	f.Add(uint32(200), []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, uint32(1<<31))
	f.Add(uint32(saved.Len()-40), []byte{0xf8, 0, 0, 0, 0, 0, 0, 0xf8, 0x7f}, uint32(1<<31))
	f.Add(uint32(0), []byte{}, uint32(1000))
	f.Fuzz(func(t *testing.T, from uint32, change []byte, length uint32) {
		data := bytes.Clone(saved.Bytes())
		copy(data[int(from)%len(data):], change)
		data = data[:min(int(length), len(data))]
		// A model has tables of its own for each endpoint and group.
		budgettest.Within(t, len(data), budgettest.Cost{PerByte: 512, Fixed: 64 << 20, CPU: 2 * time.Second}, func() {
			m, err := Load(bytes.NewReader(data), Options{})
			if err != nil {
				return
			}
			for i := range int64(3) {
				plain(rand.New(rand.NewPCG(3, 4)), at+i, 2, nil, m.Add)
				m.Judge(at + i)
			}
			var again bytes.Buffer
			if err := m.Save(&again); err != nil {
				t.Fatal(err)
			}
			if _, err := Load(&again, Options{}); err != nil && bytes.Equal(data, saved.Bytes()) {
				t.Fatal(err)
			}
		})
	})
}
