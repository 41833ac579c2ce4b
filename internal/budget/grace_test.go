package budget

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		late, cancel := Grace(ctx, time.Second)
		defer cancel()
		time.Sleep(time.Hour)
		if late.Err() != nil {
			t.Error("it ended before ctx did")
		}
		end()
		time.Sleep(999 * time.Millisecond)
		synctest.Wait()
		if late.Err() != nil {
			t.Error("it ended before its time")
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if late.Err() == nil {
			t.Error("it does not end")
		}
	})
}

// A person who asked for what there is so far waits longer for it.
func TestGraceOfPeople(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancelCause(t.Context())
		below, stop := context.WithTimeout(ctx, time.Hour)
		defer stop()
		late, cancel := Grace(below, time.Second)
		defer cancel()
		end(ErrInterrupted)
		time.Sleep(PatienceOfPeople*time.Second - time.Millisecond)
		synctest.Wait()
		if late.Err() != nil {
			t.Error("it ended as if nobody waited")
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if late.Err() == nil {
			t.Error("it does not end")
		}
	})
}
