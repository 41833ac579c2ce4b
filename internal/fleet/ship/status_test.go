package ship

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// What a shipper leaves for others tells the same as its Status: while a target is
// away, and after it ended.
func TestReport(t *testing.T) {
	f := newFake(1)
	f.down = true
	h := &history{t: t, dir: t.TempDir(), opt: quick(f)}
	if _, err := ReadReport(h.dir); !errors.Is(err, ErrNothingShipped) {
		t.Errorf("before anything was sent: %v", err)
	}
	if _, err := ReadReport(h.dir + "/none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a directory: %v", err)
	}
	h.open(time.Hour)
	for n := range 10 {
		r := numbered(n, time.Now().UnixNano())
		h.store.AddRequest(&r)
	}
	if err := h.store.Sync(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); h.shipper.Status()[0].Error == "" && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	h.shipper.leave(false)
	r, err := ReadReport(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Targets) != 1 || r.Ended || r.Stale(time.Now()) || !r.Stale(time.Now().Add(time.Minute)) {
		t.Fatalf("report: %+v", r)
	}
	if x := r.Targets[0]; x.Title != "fake://" || x.Error != errDown.Error() || x.LastError != errDown.Error() || x.LastAt.IsZero() || x.Bytes == 0 || x.Failures == 0 {
		t.Errorf("target: %+v", x)
	}
	f.set(func() { f.down = false })
	f.arrived(t, "requests", 10)
	h.close()
	if r, err = ReadReport(h.dir); err != nil || !r.Ended || !r.Stale(time.Now()) {
		t.Fatalf("after the end: %+v, %v", r, err)
	}
	if x := r.Targets[0]; x.Sent != 10 || x.Bytes != 0 || x.LastError != errDown.Error() {
		t.Errorf("target after the end: %+v", x)
	}
	if got := h.lines(); strings.Contains(got, "status") {
		t.Errorf("said: %s", got)
	}
}
