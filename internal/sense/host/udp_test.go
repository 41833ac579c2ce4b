package host

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseUDP(t *testing.T) {
	const text = `   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  235: 3500007F:0035 00000000:0000 07 00000000:00000B00 00:00000000 00000000   101        0 21035 2 0000000000000000 17
  236: 00000000:1FBD 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 99 2 0000000000000000 0
 1771: 00000000000000000000000001000000:0202 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 77 2 0000000000000000 3
  238: zz00007F:0035 00000000:0000 07 00000000:00000B00 00:00000000 00000000   101        0 21035 2 0000000000000000 17
  239: 3500007F:0035 00000000:0000 07
`
	got, err := parseUDP(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []UDPSample{
		{Local: netip.MustParseAddrPort("127.0.0.53:53"), Inode: 21035, QueueBytes: 0xb00, Drops: 17},
		{Local: netip.MustParseAddrPort("0.0.0.0:8125"), Inode: 99},
		{Local: netip.MustParseAddrPort("[::1]:514"), Inode: 77, Drops: 3},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzParseUDP(f *testing.F) {
	f.Add([]byte("1: 3500007F:0035 00000000:0000 07 0:B00 00:0 0 101 0 21035 2 0 17\n"))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = parseUDP(bytes.NewReader(b)) })
}

// A socket that is sent more than it reads has drops.
func TestUDPDrops(t *testing.T) {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetReadBuffer(1)
	to, err := net.Dial("udp4", conn.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	for range 50 {
		if _, err := to.Write(make([]byte, 500)); err != nil {
			t.Fatal(err)
		}
	}
	ns, err := Default().OpenNetNS(os.Getpid())
	if err != nil {
		t.Skipf("SKIP: %v", err)
	}
	defer ns.Close()
	all, err := ns.UDPSockets()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.Local == conn.LocalAddr().(*net.UDPAddr).AddrPort() {
			if s.Drops < 10 || s.QueueBytes == 0 || s.Inode == 0 {
				t.Errorf("socket that is not read: %+v", s)
			}
			return
		}
	}
	t.Errorf("%s is not among %d sockets", conn.LocalAddr(), len(all))
}
