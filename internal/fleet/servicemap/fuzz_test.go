package servicemap

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
)

// FuzzJoin joins the ends that any hosts may tell of. Each end is in one pair at most,
// a pair has both sides, and the shares of a request add up to it.
func FuzzJoin(f *testing.F) {
	f.Add("10.0.0.1/24,fe80::1%eth0,x", []byte("0123456789abcdef0123456789abcdef0123456789abcdef"))
	f.Add("::ffff:10.0.0.1", make([]byte, 640))
	f.Add("", []byte{})
	f.Fuzz(func(t *testing.T, addresses string, data []byte) {
		data = data[:min(len(data), 32<<10)]
		hosts := []fleet.HostSeen{{Host: fleet.Host{Name: "a", Addresses: strings.Split(addresses, ",")}}, {Host: fleet.Host{Name: "b", Addresses: []string{"10.0.0.2"}}}}
		for _, text := range hosts[0].Addresses {
			if a, ok := address(text); ok && (a.Zone() != "" || a.Is4In6()) {
				t.Errorf("%q is read as %s", text, a)
			}
		}
		var ends []End
		const size = 16
		for ; len(data) >= size; data = data[size:] {
			n := binary.LittleEndian.Uint64(data)
			e := End{Host: string('a' + data[8]%3), Service: "s", Side: 1 + observe.Side(data[8]>>7), Seq: uint32(data[9]), Weight: uint32(data[10]),
				Client: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 1 + data[11]%3}), uint16(data[12]%4)), Server: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 2}), 80),
				First: int64(n), TotalNS: int64(binary.LittleEndian.Uint16(data[13:])) << (data[15] % 48), RequestBytes: n % 3, ResponseBytes: n % 5}
			e.Answer = e.First + e.TotalNS/2
			e.Ledger[observe.Server] = e.TotalNS
			ends = append(ends, e)
		}
		// Indexes by connection, number and host for each end.
		budgettest.Within(t, size*len(ends), budgettest.Cost{PerByte: 2048, Fixed: 4 << 20, CPU: 2 * time.Second}, func() {
			j := Join(ends, hosts)
			seen := map[*End]bool{}
			for i := range j.All {
				x := &j.All[i]
				if x.Called.Side != observe.Called || x.Served.Side != observe.Served {
					t.Fatalf("%v with %v", x.Called.Side, x.Served.Side)
				}
				for _, e := range []*End{x.Called, x.Served} {
					if seen[e] {
						t.Fatalf("an end is in two pairs: %+v", *e)
					}
					seen[e] = true
				}
				if s, ok := x.Shares(); ok && (s.WireShare() < 0 || s.WireShare() > 1 || s.ServerShare() < 0 || s.ServerShare() > 1) {
					t.Fatalf("%+v: %g of the wire, %g of the server", s, s.WireShare(), s.ServerShare())
				}
			}
			if j.Called+j.Served > len(ends) {
				t.Fatalf("%d called and %d served of %d", j.Called, j.Served, len(ends))
			}
			b := NewBuilder(hosts)
			for _, e := range ends {
				b.AddEnd(e)
			}
			b.Map()
		})
	})
}
