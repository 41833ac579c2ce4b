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
