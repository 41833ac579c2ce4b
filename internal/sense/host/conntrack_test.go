package host

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestConntrackFixture(t *testing.T) {
	fs := fixture(t, "web-6.18")
	n := &NetNS{fs: fs, fd: -1}
	got, err := n.Conntrack()
	if err != nil {
		t.Fatal(err)
	}
	want := ConntrackSample{Entries: 255, Max: 262144, Drop: 6016, EarlyDrop: 1, InsertFailed: 3, Invalid: 3}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if err := os.RemoveAll(filepath.Join(fs.Proc, "sys/net/netfilter")); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Conntrack(); !errors.Is(err, ErrNoConntrack) {
		t.Error(err)
	}
}

func TestConntrackStatOldFormat(t *testing.T) {
	// Linux 4.9: "searched" where "clashres" is now, no two-space groups.
	var s ConntrackSample
	err := parseConntrackStat(strings.NewReader("entries  searched found new invalid ignore delete delete_list insert insert_failed drop early_drop icmp_error  expect_new expect_create expect_delete search_restart\n"+
		"00000010  00000001 00000002 00000003 00000004 00000005 00000006 00000007 00000008 00000009 0000000a 0000000b 0000000c  0000000d 0000000e 0000000f 00000010\nbroken line\n"), &s)
	if d := cmp.Diff(ConntrackSample{Invalid: 4, InsertFailed: 9, Drop: 10, EarlyDrop: 11}, s); d != "" || err != nil {
		t.Error(d, err)
	}
}

func TestParseConntrackCPU(t *testing.T) {
	b := make([]byte, nfgenmsgSize)
	for kind := range uint16(16) {
		b = binary.NativeEndian.AppendUint16(b, 8)
		b = binary.NativeEndian.AppendUint16(b, kind|1<<14)
		b = binary.BigEndian.AppendUint32(b, uint32(kind)*100)
	}
	var s ConntrackSample
	parseConntrackCPU(b, &s)
	parseConntrackCPU(b[:3], &s)
	if d := cmp.Diff(ConntrackSample{Invalid: 400, InsertFailed: 900, Drop: 1000, EarlyDrop: 1100, ClashResolved: 1400}, s); d != "" {
		t.Error(d)
	}
}

// TestRealConntrack compares the two ways to the same figures.
func TestRealConntrack(t *testing.T) {
	n := privateNetNS(t)
	s, err := n.Conntrack()
	if errors.Is(err, ErrNoConntrack) {
		t.Skip("SKIPPED: this kernel tracks no connections")
	}
	if err != nil || s.Max == 0 {
		t.Fatal(s, err)
	}
	var own ConntrackSample
	if err := n.Do(func() error { return conntrackNetlink(&own) }); err != nil {
		t.Fatal(err)
	}
	own.Entries, own.Max = s.Entries, s.Max
	if d := cmp.Diff(s, own); d != "" {
		t.Error(d)
	}
}
