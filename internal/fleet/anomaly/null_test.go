package anomaly

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/lab/simulate"
)

// TestPIsNoSmallerThanItSays judges healthy fleets, in which each P is one of chance: at
// most so many seconds of endpoints may have a P below 1 % as 1 % of them are, and so on.
// SLOWRAY_NULL is how many fleets there are, of an hour each; 1 without it.
func TestPIsNoSmallerThanItSays(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	fleets, _ := strconv.Atoi(os.Getenv("SLOWRAY_NULL"))
	decades := [...]float64{1, 2, 3, 4, 5, 6}
	var below [2][len(decades)]float64
	var all [2]float64
	for n := range max(fleets, 1) {
		const learn, seconds = 1200, 2400
		f := simulate.New(simulate.Options{Hosts: 10 + 10*(n%3), Endpoints: 6, Seed: uint64(900 + n)})
		m := New(Options{})
		begin := int64(1_790_000_000) + int64(n)*5*3600
		for at := begin; at < begin+learn+seconds; at++ {
			f.Second(at, m.Add)
			m.Judge(at)
			if at < begin+learn {
				continue
			}
			for _, e := range m.ends {
				kind := 0
				if e.whole {
					kind = 1
				}
				if e.win[fast].box.seconds == 0 || e.Seen < enoughSeen {
					continue
				}
				all[kind]++
				for i, d := range decades {
					if e.nlp > d*math.Ln10 {
						below[kind][i]++
					}
				}
			}
		}
	}
	for kind, name := range [...]string{"endpoints of hosts", "services as a whole"} {
		text := ""
		for i, d := range decades {
			share := below[kind][i] / all[kind]
			text += fmt.Sprintf("  P < 1e-%.0f: %.2g", d, share)
			if p := math.Pow(10, -d); d <= 4 && share > 1.5*p {
				t.Errorf("%s: %.3g of the seconds have a P below %g", name, share, p)
			}
		}
		t.Logf("%.0f seconds of %s:%s", all[kind], name, text)
	}
}

// TestAComponentIsNotSharedByChance marks endpoints at random: what they are said to share
// then, with a P below 1 %, is so by chance, and that may be one time of a hundred.
func TestAComponentIsNotSharedByChance(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	hosts, all := shop()
	const rounds = 2000
	below := 0
	for range rounds {
		var list []Anomaly
		k := 2 + rng.IntN(12)
		for _, i := range rng.Perm(len(all))[:k] {
			if all[i].Side == observe.Served {
				list = append(list, slowly(all[i], 9_000, 9_000))
			} else {
				list = append(list, Anomaly{Key: all[i], Signal: Total, Part: PartSignal(observe.Network), AddedUS: 9_000, OwnUS: 9_000, Network: true, Effect: 1, Alarm: true})
			}
		}
		for _, s := range Explain(list, all, Facts{Hosts: hosts}).Shared {
			if len(s.Members) > 1 && s.P < 0.01 {
				below++
				break
			}
		}
	}
	t.Logf("%d of %d times something is shared with a P below 1 %%", below, rounds)
	if below > rounds/100 {
		t.Errorf("%d of %d times something is shared with a P below 1 %%", below, rounds)
	}
}
