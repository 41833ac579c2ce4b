package main

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

// beChild makes the test binary the child of a front: its value says how it ends.
const beChild = "SLOWRAY_TEST_BE_CHILD"

// childMain never returns.
func childMain(how string) {
	openStatus()
	switch how {
	case "stuck": // when it has told its status; a stopped process does not end, as one whose thread cannot be killed
		fmt.Fprintln(toFront, exitFindings)
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case "status":
		leave(exitFindings)
	case "killed":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "signal":
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		go func() {
			time.Sleep(100 * time.Millisecond)
			_ = syscall.Kill(os.Getppid(), syscall.SIGTERM)
		}()
		<-asked
		os.Exit(7)
	}
	select {}
}

func TestFront(t *testing.T) {
	for how, want := range map[string]int{"status": exitFindings, "stuck": exitFindings, "killed": 128 + 9, "signal": 7} {
		t.Setenv(beChild, how)
		var stderr bytes.Buffer
		began := time.Now()
		if got := front(nil, &stderr); got != want {
			t.Errorf("%s: exit status %d, want %d: %s", how, got, want, stderr.String())
		}
		if said := strings.Contains(stderr.String(), "ends when"); said != (how == "stuck") {
			t.Errorf("%s: %q", how, stderr.String())
		}
		if took := time.Since(began); took > stopLimit/2 {
			t.Errorf("%s: %s", how, took)
		}
	}
}

func TestNeedsFront(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: without it nothing has a front")
	}
	for line, want := range map[string]bool{
		"": true, "--for 3s": true, "why --port 80": true, "wait 17": true, "record": false, "why --help": false, "--version": false,
		"replay f": false, "prove x --apply": false, "undo": false,
	} {
		if got := needsFront(strings.Fields(line)); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
}
