package request

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
)

// TestCaller: a process that called and has ended is known by name and parent.
func TestCaller(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to load BPF programs")
	}
	r, err := Start(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	cmd := exec.Command("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/"+port)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	comm, parent, ok := r.Caller(cmd.Process.Pid)
	if comm != "bash" || parent != os.Getpid() || !ok {
		t.Errorf("%q, parent %d, %v; want bash, %d", comm, parent, ok, os.Getpid())
	}
	if comm, _, ok := r.Caller(os.Getpid()); ok {
		t.Errorf("this process called nobody, and is known as %q", comm)
	}
	r.Close()
	if _, _, ok := r.Caller(cmd.Process.Pid); ok {
		t.Error("it is known after Close")
	}
}
