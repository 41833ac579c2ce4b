package socket

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/sense/host"
)

func ownersOf(list ...uint32) (b []byte) { // inode, pid, inode, pid
	for i := 0; i+1 < len(list); i += 2 {
		b = binary.NativeEndian.AppendUint64(b, uint64(list[i]))
		b = binary.NativeEndian.AppendUint64(b, uint64(list[i+1]))
	}
	return b
}

// FuzzRecords reads what the iterators give: each owner of a socket once, in ascending
// order, and of each record of a socket addresses that are addresses.
func FuzzRecords(f *testing.F) {
	f.Add(ownersOf(7, 1, 7, 1, 7, 2, 9, 3, 7, 1))
	tcp := make([]byte, tcpRecord)
	tcp[12], tcp[13], tcp[16], tcp[42], tcp[43] = familyInet6, 10, 0x20, 0xff, 0xff
	f.Add(tcp)
	f.Add(append(tcp, 1, 2, 3))
	f.Fuzz(func(t *testing.T, b []byte) {
		// A socket has an entry of a map, and a list.
		budgettest.Within(t, len(b), budgettest.Cost{PerByte: 64, Fixed: 1 << 20, CPU: time.Second}, func() {
			owners, err := parseOwners(bytes.NewReader(b), func(inode uint64) bool { return inode%2 == 1 })
			if whole := len(b)%ownerRecord == 0; whole != (err == nil) {
				t.Fatalf("%d bytes: %v", len(b), err)
			}
			held := 0
			for inode, pids := range owners {
				if inode%2 == 0 || len(pids) == 0 || !slices.IsSorted(pids) || len(slices.Compact(slices.Clone(pids))) != len(pids) {
					t.Errorf("socket %d: %v", inode, pids)
				}
				held += len(pids)
			}
			if held > len(b)/ownerRecord {
				t.Errorf("%d owners in %d bytes", held, len(b))
			}
			var s host.SocketSample
			n := 0
			err = records(bytes.NewReader(b), tcpRecord, func(record []byte) {
				n++
				if parseTCP(record, &s); !s.Src.IsValid() || !s.Dst.IsValid() || s.Src.Is4In6() || s.Dst.Is4In6() {
					t.Errorf("%+v", s)
				}
			})
			if n != len(b)/tcpRecord || (err == nil) != (len(b)%tcpRecord == 0) || err != nil && err != io.ErrUnexpectedEOF {
				t.Errorf("%d records in %d bytes: %v", n, len(b), err)
			}
		})
	})
}

// A socket that ten thousand processes hold, as the children of a server do, is no work
// that grows with their square.
func TestManyOwnersOfOneSocket(t *testing.T) {
	var list []uint32
	for pid := range uint32(50_000) {
		list = append(list, 7, pid, 9, pid, 7, pid)
	}
	b := ownersOf(list...)
	budgettest.Within(t, len(b), budgettest.Cost{PerByte: 64, Fixed: 1 << 20, CPU: time.Second}, func() {
		owners, err := parseOwners(bytes.NewReader(b), func(uint64) bool { return true })
		if err != nil || len(owners[7]) != 50_000 || len(owners[9]) != 50_000 {
			t.Errorf("%d and %d owners: %v", len(owners[7]), len(owners[9]), err)
		}
	})
}
