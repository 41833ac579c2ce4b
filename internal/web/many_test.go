package web

import (
	"net/netip"
	"net/url"
	"runtime"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// A host that is called at thousands of addresses: the busiest endpoints are reported,
// the number of the others, and no memory is taken for what is not shown.
func TestThousandsOfEndpoints(t *testing.T) {
	m := &memory{from: noon, to: noon.Add(20 * time.Minute)}
	const many = 3000
	for i := range many {
		m.add(noon.Add(time.Duration(i)*100*time.Millisecond), func(r *store.Request) {
			r.Local = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 80)
			r.Weight = 3
		})
	}
	busy := netip.MustParseAddrPort("10.9.9.9:80")
	for i := range 50 {
		m.add(noon.Add(10*time.Minute+time.Duration(i)*time.Second), func(r *store.Request) { r.Local = busy })
	}
	h := serve(t, m, Options{})
	type answer struct {
		Series    []struct{ Key string }
		Endpoints []struct{ Key string }
		Losses    []observe.Loss
	}
	in := "from=" + unixText(noon) + "&to=" + unixText(noon.Add(15*time.Minute))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	a := ask[answer](t, h, "/api/series?points=1000&"+in)
	runtime.ReadMemStats(&after)
	if len(a.Series) != maxSeries || a.Series[0].Key != "served|4026531840|10.9.9.9|80|nginx" {
		t.Errorf("%d series, first %s", len(a.Series), a.Series[0].Key)
	}
	if len(a.Losses) == 0 || a.Losses[0].Count != many+1-maxSeries {
		t.Errorf("losses %+v", a.Losses)
	}
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 150 {
		t.Errorf("%d MB were allocated", took)
	}
	a = ask[answer](t, h, "/api/endpoints?"+in)
	if len(a.Endpoints) != maxEndpoints || len(a.Losses) > 2 {
		t.Errorf("%d endpoints, %d losses: %+v", len(a.Endpoints), len(a.Losses), a.Losses[:min(3, len(a.Losses))])
	}
	// What sums up those that the recorder had no place for can be chosen.
	ask[answer](t, h, "/api/series?"+in+"&ep="+url.QueryEscape("served|0|other|0|"))
}
