package commandline

import (
	"syscall"
	"testing"
	"time"
)

// TestSignalThatComesTwice: as timeout(1) sends it, it ends a command, which still reports.
// This process is killed where the second one is not taken for the first.
func TestSignalThatComesTwice(t *testing.T) {
	ctx := UntilSignal(time.Hour)
	for range 3 {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Minute):
			t.Fatal("a signal does not end it")
		}
	}
}
