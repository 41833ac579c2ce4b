package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stageForTest has a directory and nothing else.
func stageForTest(t *testing.T) *stage {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "stage")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return &stage{began: time.Now(), dir: dir, early: make(chan error, 1), spaces: map[string]*os.File{}}
}

// pidsIn waits for so many lines in a file.
func pidsIn(t *testing.T, file string, n int) (pids []int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		text, _ := os.ReadFile(file)
		if lines := strings.Fields(string(text)); len(lines) == n && bytes.HasSuffix(text, []byte("\n")) {
			for _, l := range lines {
				pid, err := strconv.Atoi(l)
				if err != nil {
					t.Fatal(err)
				}
				pids = append(pids, pid)
			}
			return pids
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %q", file, text)
		}
	}
}

// gone says that a process runs no more: what is not this process's child may be a
// zombie for a while.
func gone(pid int) bool {
	for range 400 {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || bytes.Contains(text, []byte(") Z ")) {
			return true
		}
		time.Sleep(5 * time.Millisecond)
	}
	return false
}

func TestAllIsEndedAtOnce(t *testing.T) {
	s := stageForTest(t)
	// Ten that do not listen, each with a child that does not either.
	file := filepath.Join(t.TempDir(), "pids")
	for i := range 10 {
		if err := s.start(fmt.Sprintf("deaf-%d", i), "", "sh", "-c", `trap "" TERM; sleep 300 & echo $$ $! >> `+file+`; wait`); err != nil {
			t.Fatal(err)
		}
	}
	pids := pidsIn(t, file, 20)
	var order []int
	for i := range 3 {
		s.atEnd(func() { order = append(order, i) })
	}
	s.close()
	for _, pid := range pids {
		if !gone(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
	if len(order) != 3 || order[0] != 2 {
		t.Errorf("ended in the order %v", order)
	}
	if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
		t.Errorf("its directory is left: %v", err)
	}
	if err := s.wait(t.Context(), time.Minute); err == nil || !strings.Contains(err.Error(), "deaf-") {
		t.Errorf("a program that ended was not told of: %v", err)
	}
}

func TestWhatARunHasStartedEndsWithIt(t *testing.T) {
	s := stageForTest(t)
	defer s.close()
	file := filepath.Join(t.TempDir(), "pids")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx, "sh", "-c", "sleep 300 & echo $$ $! >> "+file+"; wait") }()
	pids := pidsIn(t, file, 2)
	stop()
	if err := <-ended; err == nil {
		t.Error("no error")
	}
	for _, pid := range pids {
		if !gone(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
}

func TestSweepLeavesWhatIsInUse(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	keep := []string{dirPrefix + strconv.Itoa(os.Getpid()) + "-1", dirPrefix + "x-1", "other-" + strconv.Itoa(ended.Process.Pid)}
	for _, name := range append(keep, fmt.Sprintf("%s%d-1", dirPrefix, ended.Process.Pid)) {
		if err := os.MkdirAll(filepath.Join(os.TempDir(), name, "sub"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	sweep()
	left, err := os.ReadDir(os.TempDir())
	if err != nil || len(left) != len(keep) {
		t.Errorf("%v, %v", left, err)
	}
}

func TestHostsReachEachOtherAndLeaveNothing(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIP: needs root, for network namespaces")
	}
	s := stageForTest(t)
	defer s.close()
	if err := s.wire(); err != nil {
		t.Fatal(err)
	}
	// The other host's name is in no table: the address answers over the wire.
	if err := s.start("there", hostDB, "sh", "-c", "readlink /proc/self/ns/net; sleep 300"); err != nil {
		t.Fatal(err)
	}
	here, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); s.lastLine("there") == ""; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it prints nothing")
		}
	}
	if ns := s.lastLine("there"); ns == here || !strings.HasPrefix(ns, "net:[") {
		t.Errorf("a program of a host is in %s, this one in %s", ns, here)
	}
	pid := s.pid("there")
	s.close()
	if syscall.Kill(pid, 0) == nil && !gone(pid) {
		t.Error("it is left")
	}
}
