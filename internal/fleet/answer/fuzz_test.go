package answer

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/memory"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// FuzzWhy asks archives that hold whatever hosts may ship, of a host that is as it should
// be and one that is not. What is answered drives no terminal, is whole JSON, and costs
// what a look at so few records may.
func FuzzWhy(f *testing.F) {
	f.Add("db-7", "mariadbd", "GET /", "10.0.0.7", int64(5e6), uint64(10), uint64(0), uint8(3), int8(0))
	f.Add(hostileTexts[0], hostileTexts[8], hostileTexts[1], hostileTexts[6], int64(math.MaxInt64), uint64(math.MaxUint64), uint64(7), uint8(255), int8(-1))
	f.Add("a:b:c", "", "x\ny", "::1%eth0", int64(-1), uint64(0), uint64(math.MaxUint64), uint8(0), int8(1))
	f.Fuzz(func(t *testing.T, host, comm, text, addr string, took int64, requests, errors uint64, n uint8, skew int8) {
		archive := new(memory.Archive)
		const seconds = 20
		for _, name := range []string{"web-1", host} {
			for s := range int64(seconds) {
				x := &store.Second{At: began + s, Process: observe.Identity{Comm: "app", Unit: "app.service", Cgroup: text, ContainerName: comm}}
				e := &x.Endpoint
				e.Side, e.Addr, e.Port, e.Comm, e.Requests = "served", "10.0.0.1", 80, "app", 10
				e.Total.AddN(int64(5*time.Millisecond), 10)
				if name == host {
					x.Process.Comm, e.Comm, e.Addr, e.Requests, e.Errors, e.Retrans = comm, comm, addr, requests, errors, errors
					e.Parts = map[string]observe.PartStats{"server": {SumNS: took}, text: {SumNS: took}}
					e.Total.AddN(took, requests>>16)
				}
				archive.AddSecond(name, x)
			}
			h := &fleet.Host{Name: name, ID: name, Addresses: []string{addr, "10.0.0.1/24"}, Labels: map[string]string{text: comm, "rack": text}, Kernel: text, Version: comm}
			if err := archive.Hello(context.Background(), h, moment(seconds+int64(skew))); err != nil {
				t.Fatal(err)
			}
			for k := range int(n) {
				r := &store.Request{Process: observe.Identity{Comm: comm, Unit: text}, Why: store.Why(k % 4)}
				r.Side, r.Seq, r.Weight, r.Label, r.StartNS, r.FirstByte = observe.Side(k%4), uint32(k/2), uint32(requests), text, (began+5)*1e9+took/1e3, took/2
				r.Local, r.Peer = netip.MustParseAddrPort("10.0.0.1:80"), netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 2}), uint16(k))
				r.Ledger[k%int(observe.NumParts)] = took
				archive.AddRequest(name, r)
			}
			for k := range int(n % 8) {
				found := &store.Finding{Start: moment(int64(k)), End: moment(int64(k) + int64(skew))}
				found.Cause, found.Title, found.Role, found.Verdict = cause.ID(text), comm, cause.RoleCause, cause.Supported
				found.Impact, found.Weight = cause.Impact{Share: float64(requests), Of: text, Text: text}, math.Float64frombits(requests) // the weight is a column of its own
				found.Subject = cause.Subject{Kind: text, Comm: comm, Addr: addr, PID: k, Port: int(took)}
				archive.AddFinding(name, found)
			}
		}
		length := len(host) + len(comm) + len(text) + len(addr)
		// Some forty seconds of two endpoints, and what the text and the map of them take.
		budgettest.Within(t, length, budgettest.Cost{PerByte: 64 << 10, Fixed: 64 << 20, CPU: 5 * time.Second}, func() {
			q := Question{From: moment(0), To: moment(seconds)}
			r, err := Why(context.Background(), archive, q)
			if err != nil {
				t.Fatal(err)
			}
			bearable(t, "text", []byte(textOf(t, r)))
			var doc bytes.Buffer
			if err := r.JSON(&doc); err != nil {
				t.Fatal(err)
			}
			whole(t, "report", doc.Bytes())
			view, err := NewLooker(archive).Look(context.Background(), q)
			if err != nil {
				t.Fatal(err)
			}
			for _, of := range []any{view.Report.Told(), view.Map.Graph(view.Report.Abnormal), view.Table} {
				if _, err := json.Marshal(of); err != nil {
					t.Errorf("%T: %v", of, err)
				}
			}
		})
	})
}
