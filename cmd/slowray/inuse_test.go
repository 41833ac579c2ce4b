package main

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
)

// An address that is in use is reported with who uses it, and with one that is free.
func TestInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_, err = listenPage(address, nil)
	if err == nil {
		t.Fatal("listens on an address that is in use")
	}
	before, free, ok := strings.Cut(err.Error(), ": choose another one with --listen ")
	if who := fmt.Sprintf("%s is in use (%s, pid ", address, comm(t)); !ok || os.Geteuid() == 0 && !strings.HasPrefix(before, who) {
		t.Errorf("%q does not begin with %q", err, who)
	}
	page, err := listenPage(free, nil)
	if err != nil {
		t.Fatalf("%q is not free: %v", free, err)
	}
	page.close()
	l.Close()
	if err := inUse(address); err != nil {
		t.Errorf("free: %v", err)
	}
	if err := inUse("unix:/x"); err != nil {
		t.Errorf("a path: %v", err)
	}
}

func comm(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}
