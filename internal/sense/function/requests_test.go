package function

import (
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// server is a request at a time: 20 ms asleep, 10 ms on the CPU.
const server = `
import socket, time
s = socket.socket()
s.bind(("127.0.0.1", 0))
s.listen(8)
print(s.getsockname()[1], flush=True)
c, _ = s.accept()
while c.recv(4096):
    time.sleep(0.02)
    end = time.perf_counter() + 0.01
    while time.perf_counter() < end: pass
    c.send(b"answer")
`

// TestRequestShare: of requests that take 30 ms, 20 are spent asleep in a
// system call.
func TestRequestShare(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to load BPF programs")
	}
	const python = "/usr/bin/python3"
	if _, err := os.Stat(python); err != nil {
		t.Skip("NO PYTHON: the share of requests is not tested")
	}
	cmd := exec.Command(python, "-c", server)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	line := make([]byte, 32)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	opt := Options{Target: strconv.Itoa(cmd.Process.Pid), Symbols: []string{"syscall:clock_nanosleep", "syscall:sendto"}, Requests: true}
	o := watch(t, probeKernel(), opt, func() {
		c, err := net.Dial("tcp", "127.0.0.1:"+strings.TrimSpace(string(line[:n])))
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		for range 15 {
			if _, err := io.WriteString(c, "question\n"); err != nil {
				t.Error(err)
				return
			}
			if _, err := c.Read(make([]byte, 16)); err != nil {
				t.Error(err)
				return
			}
		}
		time.Sleep(50 * time.Millisecond)
	})
	f := of(t, o, "clock_nanosleep")
	if f.Share == nil || f.Share.Requests != 10 || f.Share.Touched != 10 {
		t.Fatalf("share %+v, want that of the 10 slowest requests", f.Share)
	}
	share := float64(f.Share.InsideNS) / float64(f.Share.TimeNS)
	if share < 0.4 || share > 0.85 || f.Share.InsideNS < int64(195*time.Millisecond) {
		t.Errorf("%+v: %.2f of the time was spent asleep, planted 0.66", f.Share, share)
	}
	if s := of(t, o, "sendto").Share; s == nil || s.InsideNS*10 > s.TimeNS {
		t.Errorf("sendto: %+v, want next to nothing", s)
	}
}

// TestUnionAndOverlap: calls within calls count once.
func TestUnionAndOverlap(t *testing.T) {
	v := union([][2]int64{{50, 60}, {0, 10}, {5, 20}, {7, 8}, {20, 30}})
	for _, c := range []struct{ from, to, want int64 }{{0, 100, 40}, {10, 20, 10}, {30, 50, 0}, {25, 55, 10}, {70, 80, 0}, {-5, 1, 1}} {
		if got := overlap(v, c.from, c.to); got != c.want {
			t.Errorf("%v from %d to %d: %d, want %d", v, c.from, c.to, got, c.want)
		}
	}
}
