package callerror

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
)

// TestKnownFailures makes known failures and expects exactly those.
func TestKnownFailures(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to load BPF programs")
	}
	w, err := Load("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	full.Write([]byte("x")) // before it is watched
	if err := w.Watch(); err != nil {
		t.Fatal(err)
	}
	const n = 37
	for range n {
		full.Write([]byte("x"))
	}
	// A path below a descriptor, in a directory of which nothing can be made.
	syscall.Mkdir("/proc/self/slowray", 0o755) // ENOENT: of no interest
	dir, err := os.Open("/sys/kernel")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	errno := syscall.Mkdirat(int(dir.Fd()), "slowray", 0o755)
	time.Sleep(10 * time.Millisecond)
	w.Rest()
	full.Write([]byte("x")) // after
	list, watched, losses, err := w.Read()
	if err != nil || len(losses) > 0 || watched <= 0 {
		t.Fatal(err, losses, watched)
	}
	var own []observe.CallError
	for _, e := range list {
		if e.PID == os.Getpid() && e.Call != "epoll_ctl" { // the runtime asks whether a file can be polled
			own = append(own, e)
		}
	}
	if len(own) != 2 {
		t.Fatalf("%+v", own)
	}
	if e := own[0]; e.Call != "write" || e.Error != "ENOSPC" || e.Calls != n || e.Path != "/dev/full" || e.Device == "" || e.MountID == 0 || e.NetNS == 0 {
		t.Errorf("%+v", e)
	}
	if e := own[1]; e.Call != "mkdirat" || e.Error != errorName(uint32(errno.(syscall.Errno))) || e.Calls != 1 || e.Path != filepath.Join("/sys/kernel", "slowray") {
		t.Errorf("%+v, want %v", e, errno)
	}
}

func TestCallNames(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		for nr, c := range callsOf(arch) {
			if nr >= maxCalls || c.name == "" {
				t.Errorf("%s: %d %+v", arch, nr, c)
			}
		}
	}
	if len(callsOf("amd64")) < len(callsOf("arm64")) || callsOf("mips") != nil {
		t.Error("tables")
	}
	if callName(511) != "call 511" || errorName(99) != "error 99" {
		t.Error("what has no name")
	}
}
