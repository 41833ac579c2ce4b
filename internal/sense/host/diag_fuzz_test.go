package host

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/budget/budgettest"
)

// FuzzDiag reads what sock_diag tells of queues and unix sockets, and the tables of
// mounts and of RAID arrays.
func FuzzDiag(f *testing.F) {
	attr := func(kind uint16, value []byte) []byte {
		b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
		b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
		for len(b)%4 != 0 {
			b = append(b, 0)
		}
		return b
	}
	queue := make([]byte, inetDiagMsgSize)
	queue[0], queue[diagMsgState] = unix.AF_INET, 1
	f.Add(append(queue, attr(inetDiagInfo, make([]byte, 240))...))
	sock := make([]byte, unixDiagMsgSize)
	sock[0] = unix.AF_UNIX
	f.Add(append(append(sock, attr(unixDiagName, []byte("\x00abstract"))...), attr(unixDiagIcons, make([]byte, 64))...))
	f.Add([]byte("md0 : active raid1 sda1[0] sdb1[1](F)\n      1046528 blocks super 1.2 [2/1] [U_]\n      [==>....]  recovery = 12.6% (1/2)\n"))
	f.Add([]byte("36 35 98:0 /mnt1 /mnt2\\040x rw,noatime master:1 - ext3 /dev/root rw,errors=continue"))
	f.Fuzz(func(t *testing.T, b []byte) {
		budgettest.Within(t, len(b), budgettest.Cost{PerByte: 64, Fixed: 1 << 20, CPU: time.Second}, func() {
			var q QueueSample
			if parseQueues(b, &q) && (q.LastSent < 0 || q.LastReceived < 0 || q.Unanswered < 0 || !q.Src.IsValid()) {
				t.Errorf("%+v", q)
			}
			if u, ok := parseUnixSocket(b); ok && (!utf8.ValidString(u.Name) || len(u.Pending) > len(b)/4) {
				t.Errorf("%+v", u)
			}
			for _, a := range parseMdstat(b) {
				if !strings.HasPrefix(a.Name, "md") || !utf8.ValidString(a.Name+a.Level) {
					t.Errorf("%+v", a)
				}
			}
			if m, ok := parseMount(b); ok && (m.Dir == "" || m.Type == "") {
				t.Errorf("%+v", m)
			}
		})
	})
}
