package servicemap

import (
	"net/netip"
	"testing"
	"time"
)

// Requests of which nothing tells which is which, by the ten thousands on one connection,
// keep nobody from the others.
func TestEndsThatAreAllAlikeHideNoOthers(t *testing.T) {
	for name, change := range map[string]func(e *End, i int){
		"one number":      func(e *End, _ int) { e.Seq = 7 },
		"no number fits":  func(e *End, i int) { e.Seq = uint32(2*i + int(e.Side)) },
		"one time, sizes": func(e *End, i int) { e.Seq, e.First, e.RequestBytes, e.ResponseBytes = uint32(i%3), start, 1, 1 },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			s.host("web", 0, 0, "10.0.0.1")
			s.host("db", 0, 0, "10.0.0.7")
			s.talk(300, time.Second, turn{clientHost: "web", serverHost: "db", client: "10.0.0.1:1", server: "10.0.0.7:3306"}, 0)
			want := len(Join(s.ends, s.hosts).All)
			others := len(s.ends)
			s.talk(15_000, time.Millisecond, turn{clientHost: "web", serverHost: "db", client: "10.0.0.1:2", server: "10.0.0.7:3306"}, 0)
			for i := range s.ends[others:] {
				e := &s.ends[others+i]
				e.Client = netip.MustParseAddrPort("10.0.0.1:2")
				change(e, i/2)
			}
			got := 0
			for _, x := range Join(s.ends, s.hosts).All {
				if x.Called.Client.Port() != 2 {
					got++
				}
			}
			if got != want || want < 200 {
				t.Errorf("%d of %d others are joined", got, want)
			}
		})
	}
}
