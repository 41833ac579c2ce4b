package threadcontext

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/procmem"
	"github.com/slowray/slowray/internal/sense/threadcontext/threadcontexttest"
)

// TestFind: the place leads to the variable of the main thread, which the program itself
// says, in whatever way it has it.
func TestFind(t *testing.T) {
	for _, variant := range threadcontexttest.Variants {
		t.Run(variant, func(t *testing.T) {
			s := threadcontexttest.Start(t, variant, 0)
			at, err := Find(context.Background(), s.PID)
			if err != nil {
				t.Fatal(err)
			}
			p := procmem.Process{PID: s.PID, Read: procmem.Read, Budget: budget.New(context.Background(), limits)}
			got := s.Pointer + uint64(at.Offset)
			if at.Module != 0 {
				vector := p.Word(s.Pointer + uint64(at.Vector))
				if last := p.Word(vector + uint64(at.Length)); last < uint64(at.Module) || last > maxModules {
					t.Errorf("the vector has %d entries, the module is %d", last, at.Module)
				}
				got = p.Word(vector+uint64(at.Module)*uint64(at.Entry)) + uint64(at.Offset)
			}
			if got != s.Slot {
				t.Errorf("%+v leads to %#x, the variable is at %#x", at, got, s.Slot)
			}
			t.Logf("%+v", at)
		})
	}
}

// TestNone: what publishes nothing has none of its files opened.
func TestNone(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	for _, pid := range []int{cmd.Process.Pid, os.Getpid()} {
		b := budget.New(context.Background(), limits)
		if _, err := find(b, "/proc", pid, procmem.Read); err != ErrNone {
			t.Errorf("process %d: %v", pid, err)
		}
	}
	if _, err := Find(context.Background(), 1<<30); err == nil || err == ErrNone {
		t.Errorf("of a process that is not there: %v", err)
	}
}
