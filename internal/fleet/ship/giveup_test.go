package ship

import (
	"testing"
	"time"

	"github.com/slowray/slowray/internal/fleet"
)

// While a part of a log is with the target nothing newer is given up, so that what is missing
// in the end are as many as were counted, also when the agent is begun anew meanwhile.
func TestGivenUpWhileABatchIsUnderWay(t *testing.T) {
	f := newFake(1)
	f.hold = make(chan struct{})
	h := &history{t: t, dir: t.TempDir(), opt: quick(f)}
	h.opt.Buffer, h.opt.timeout = 20_000, time.Minute
	h.open(100 * time.Millisecond)
	n := 0
	add := func(records int) {
		t.Helper()
		for range records {
			r := numbered(n, time.Now().UnixNano())
			h.store.AddRequest(&r)
			n++
		}
		if err := h.store.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	// Not about the end of a log, so that the batch is a part of one.
	for time.Now().UnixMilli()%100 > 30 {
		time.Sleep(time.Millisecond)
	}
	add(100)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Microsecond) {
		f.mu.Lock()
		sends := f.sends
		f.mu.Unlock()
		if sends > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("nothing is sent")
		}
	}
	add(200)
	for range 20 { // some logs, which are more than may wait
		time.Sleep(20 * time.Millisecond)
		add(300)
	}
	h.shipper.to[0].giveUp()
	// What was under way arrives, and nothing else; the agent is begun anew.
	hold := f.hold
	f.set(func() { f.hold, f.down = nil, true })
	close(hold)
	for end := time.Now().Add(10 * time.Second); h.shipper.Status()[0].GaveUp == 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	h.close()
	f.set(func() { f.down = false })
	h.open(time.Hour)
	for end := time.Now().Add(10 * time.Second); f.count(fleet.Requests)+int(h.shipper.Status()[0].GaveUp) < n && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	h.close()
	gone, got := int(h.shipper.Status()[0].GaveUp), f.count(fleet.Requests)
	if got+gone != n {
		t.Errorf("%d requests have arrived and %d are reported to be given up, of %d", got, gone, n)
	}
	if got == 0 || gone == 0 {
		t.Errorf("%d requests have arrived and %d were given up: that was not tested", got, gone)
	}
	t.Logf("%d arrived, %d given up, of %d", got, gone, n)
}
