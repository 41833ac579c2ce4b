package dns

import (
	"net"
	"testing"

	"github.com/cilium/ebpf"
)

// BenchmarkOtherPackets is what the programs cost a packet that is none of
// theirs: out-ns and in-ns.
func BenchmarkOtherPackets(b *testing.B) { costOf(b, "9") }

// BenchmarkQueries is what they cost a query, and what comes back.
func BenchmarkQueries(b *testing.B) { costOf(b, "53") }

func costOf(b *testing.B, port string) {
	stats, err := ebpf.EnableStats(0)
	if err != nil {
		b.Skip(err)
	}
	defer stats.Close()
	w := start(b)
	conn, err := net.Dial("udp", net.JoinHostPort("127.53.53.9", port))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	for range b.N {
		conn.Write(query(1, "db.example.com", 1)) // refused: nobody is there
	}
	for name, p := range map[string]*ebpf.Program{"out-ns": w.objects.DnsOut, "in-ns": w.objects.DnsIn} {
		if s, err := p.Stats(); err == nil && s.RunCount > 0 {
			b.ReportMetric(float64(s.Runtime.Nanoseconds())/float64(s.RunCount), name)
		}
	}
}
