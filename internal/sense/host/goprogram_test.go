package host

import (
	"os"
	"testing"
)

func TestIsGo(t *testing.T) {
	fs := Default()
	if !fs.IsGo(os.Getpid()) {
		t.Error("this test is a Go program")
	}
	if fs.IsGo(1 << 30) {
		t.Error("a process that does not exist is one")
	}
	// The shell is none.
	if shell := os.Getppid(); shell > 1 && fs.Exe(shell) == "sh" && fs.IsGo(shell) {
		t.Error("the shell is one")
	}
}
