package results

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestKeep(t *testing.T) {
	dir := t.TempDir()
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for i := range most + 10 {
		if err := Keep(dir, at.Add(time.Duration(i)*time.Second), "../Evil/\x1b"+strings.Repeat("x", 300), []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	files, err := os.ReadDir(Dir(dir))
	if err != nil || len(files) != most {
		t.Fatalf("%d files, %v", len(files), err)
	}
	if first := files[0].Name(); !strings.HasPrefix(first, "20261122T120010.000000Z----") || !strings.HasSuffix(first, suffix) || len(first) > 100 {
		t.Errorf("the oldest is %s", first)
	}
	st, err := os.Stat(filepath.Join(Dir(dir), files[0].Name()))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	if above, err := os.ReadDir(dir); err != nil || len(above) != 1 {
		t.Errorf("%d files beside it, %v", len(above), err)
	}
	if err := Keep(filepath.Join(dir, "none"), at, "x", nil); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("without a directory: %v", err)
	}
}
