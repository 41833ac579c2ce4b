package ship

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// before records numbered requests, seconds and findings into a directory, of which some
// are in Parquet files, and those of a writer that was killed are not.
func before(t *testing.T, dir string) (requests, seconds, findings int) {
	t.Helper()
	begin := time.Now().Add(-3 * time.Hour).Truncate(time.Second)
	add := func(st *store.Store, n int) {
		t.Helper()
		for range n {
			r := numbered(requests, begin.Add(time.Duration(requests)*10*time.Millisecond).UnixNano())
			st.AddRequest(&r)
			requests++
		}
		for range n / 100 {
			s := numberedSecond(seconds+1, begin.Unix()+int64(seconds))
			st.AddSecond(&s)
			seconds++
		}
		if err := st.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		st, err := store.Open(dir, store.Options{Segment: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			add(st, 700)
		}
		o := &observe.Observation{Schema: observe.SchemaObservation, Window: observe.Window{Start: begin.Add(time.Duration(findings) * time.Minute), Seconds: 60}}
		f := cause.Finding{Cause: "blocked-on-disk", Title: "Threads wait", Role: cause.RoleCause, Weight: float64(findings)}
		if err := st.AddObservation(o, []cause.Finding{f}); err != nil {
			t.Fatal(err)
		}
		findings++
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// A writer that is killed leaves logs: those of its directory as it is now.
	other := t.TempDir()
	if err := os.CopyFS(other, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(dir, store.Options{Segment: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	add(st, 500)
	logs, err := filepath.Glob(filepath.Join(dir, "open", "*.log"))
	if err != nil || len(logs) < 2 {
		t.Fatalf("logs: %v %v", logs, err)
	}
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err == nil {
			err = os.WriteFile(filepath.Join(other, "open", filepath.Base(log)), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, dir); err != nil {
		t.Fatal(err)
	}
	return requests, seconds, findings
}

// What was recorded before arrives once and in order, as a history of its own, next to what
// is recorded now, whatever fails and however often all is begun anew, and though the
// store's own files go meanwhile.
func TestRecordedBeforeIsSentToo(t *testing.T) {
	dir := t.TempDir()
	requests, seconds, findings := before(t, dir)
	now, past := newFake(1), newFake(2)
	past.faults = true
	h := &history{t: t, dir: dir, opt: quick(now)}
	n := 0
	for life := range 4 {
		h.opt.Targets[0].History = past
		h.open(300 * time.Millisecond)
		if status := h.shipper.Status(); life == 0 && (len(status) != 2 || !status[1].History || status[1].Title != "fake:// (history)" || status[1].Behind != 0) {
			t.Errorf("status: %+v", status)
		}
		for range 5 {
			for range 50 {
				r := numbered(n, time.Now().UnixNano())
				h.store.AddRequest(&r)
				n++
			}
			if err := h.store.Sync(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Millisecond)
		}
		h.close()
		for _, name := range []string{"requests", "seconds"} {
			days, _ := filepath.Glob(filepath.Join(dir, name, "*"))
			for _, day := range days {
				if err := os.RemoveAll(day); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	past.set(func() { past.faults = false })
	h.opt.Targets[0].History = past
	h.open(time.Hour)
	past.arrived(t, fleet.Requests, requests)
	past.arrived(t, fleet.Seconds, seconds)
	past.arrived(t, fleet.Findings, findings)
	now.arrived(t, fleet.Requests, n)
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		// A log whose last record was sent is there until the next look at it.
		if status := h.shipper.Status(); status[len(status)-1].Bytes == 0 && len(waiting(folder(filepath.Join(dir, shipDir, "fake", pastName)))) == 0 {
			break
		}
	}
	h.close()
	past.check(t, fleet.Requests, 0, requests)
	past.check(t, fleet.Seconds, 1, seconds+1)
	past.check(t, fleet.Findings, 0, findings)
	now.check(t, fleet.Requests, 0, n)
	id := ""
	for _, host := range past.hosts {
		if host.ID == h.shipper.ID() || id != "" && host.ID != id {
			t.Fatalf("what was recorded before is sent as history %s", host.ID)
		}
		id = host.ID
	}
	if len(id) != 36 {
		t.Errorf("its ID is %q", id)
	}
	if list := waiting(folder(filepath.Join(dir, shipDir, "fake", pastName))); len(list) > 0 {
		t.Errorf("still there: %v", list)
	}
	// All is there: nothing is asked or sent any more.
	past.set(func() { past.sends = 0 })
	h.opt.Targets[0].History = past
	h.open(time.Hour)
	if got := h.shipper.Status(); len(got) != 1 {
		t.Errorf("status when all was sent: %+v", got)
	}
	h.close()
	if past.sends != 0 {
		t.Errorf("%d batches were retransmitted", past.sends)
	}
}

// A file that cannot be read is reported; what else there is arrives.
func TestDamagedFileIsTold(t *testing.T) {
	dir := t.TempDir()
	requests, seconds, _ := before(t, dir)
	files, err := filepath.Glob(filepath.Join(dir, "requests", "*", "*.parquet"))
	if err != nil || len(files) == 0 {
		t.Fatalf("files: %v %v", files, err)
	}
	if err := os.WriteFile(files[0], []byte("no Parquet"), 0o600); err != nil {
		t.Fatal(err)
	}
	now, past := newFake(1), newFake(2)
	h := &history{t: t, dir: dir, opt: quick(now)}
	h.opt.Targets[0].History = past
	h.open(time.Hour)
	past.arrived(t, fleet.Seconds, seconds)
	for end := time.Now().Add(10 * time.Second); h.shipper.Status()[1].Bytes > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	h.close()
	if got := past.count(fleet.Requests); got == 0 || got >= requests {
		t.Errorf("%d requests of %d arrived", got, requests)
	}
	if got := h.lines(); strings.Count(got, "cannot be read") != 1 || strings.Count(got, "\n") > 2 {
		t.Errorf("said:\n%s", got)
	}
}

// Where a target was given before, what was recorded then is not sent, and that is said;
// and what waits when the flag is not given any more is reported.
func TestRecordedBeforeIsAskedForLate(t *testing.T) {
	dir := t.TempDir()
	requests, _, _ := before(t, dir)
	now, past := newFake(1), newFake(2)
	h := &history{t: t, dir: dir, opt: quick(now)}
	one := func(n int) {
		t.Helper()
		r := numbered(n, time.Now().UnixNano())
		h.store.AddRequest(&r)
		if err := h.store.Sync(); err != nil {
			t.Fatal(err)
		}
		now.arrived(t, fleet.Requests, n+1)
	}
	h.open(time.Hour)
	one(0)
	h.close()
	h.opt.Targets[0].History = past
	h.open(time.Hour)
	one(1)
	h.close()
	if got := h.lines(); !strings.Contains(got, "before --to-history was given") {
		t.Errorf("said:\n%s", got)
	}
	if len(past.got) != 0 {
		t.Errorf("%d streams were sent", len(past.got))
	}

	other := newFake(3)
	other.down, past.down = true, true
	h.opt.Targets[0] = Destination{Target: other, Name: "other", Title: "other://", History: past}
	h.open(time.Hour)
	h.close()
	h.opt.Targets[0].History = nil
	h.open(time.Hour)
	h.close()
	if got := h.lines(); !strings.Contains(got, "--to-history goes on sending them") {
		t.Errorf("said:\n%s", got)
	}
	past.set(func() { past.down = false })
	h.opt.Targets[0].History = past
	h.open(time.Hour)
	past.arrived(t, fleet.Requests, requests+2)
	h.close()
}
