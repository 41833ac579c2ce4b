package ship

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/store"
)

// Of a log in which a byte is wrong all before it is sent, and it is reported that the rest is
// not; what comes after that log is sent.
func TestDamagedLogIsTold(t *testing.T) {
	f := newFake(1)
	f.down = true
	h := &history{t: t, dir: t.TempDir(), opt: quick(f)}
	h.open(time.Hour)
	n := 0
	add := func() {
		t.Helper()
		for range 10 {
			r := numbered(n, time.Now().UnixNano())
			h.store.AddRequest(&r)
			n++
		}
		if err := h.store.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	add()
	path := filepath.Join(h.dir, shipDir, "fake", store.LogName("requests", h.store.Durable("requests").Log))
	good, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	add()
	h.close()
	// Both names are one file: the history's own is turned into Parquet when it is opened.
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt([]byte{0xff}, good.Size()+20); err != nil {
		t.Fatal(err)
	}
	f.set(func() { f.down = false })
	h.open(time.Hour)
	n = 10 // the numbers of the damaged ones come again
	add()
	f.arrived(t, "requests", 20)
	h.close()
	f.check(t, "requests", 0, 20)
	if said := h.lines(); strings.Count(said, "are damaged, and are not sent") != 1 {
		t.Errorf("said: %s", said)
	}
}
