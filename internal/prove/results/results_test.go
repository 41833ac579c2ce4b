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
	if err := os.Mkdir(Dir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range most {
		name := at.Add(time.Duration(i)*time.Second).Format("20060102T150405.000000Z") + "----x.json"
		if err := os.WriteFile(filepath.Join(Dir(dir), name), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		if err := Keep(dir, at.Add(time.Duration(most+i)*time.Second), "../Evil/\x1b"+strings.Repeat("x", 300), []byte("{}")); err != nil {
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
	last := files[most-1].Name()
	if !strings.HasPrefix(last, "20261122T120329.000000Z----") || len(last) > 100 {
		t.Errorf("the latest is %s", last)
	}
	st, err := os.Stat(filepath.Join(Dir(dir), last))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	if above, err := os.ReadDir(dir); err != nil || len(above) != 1 {
		t.Errorf("%d files next to it, %v", len(above), err)
	}
	if err := Keep(filepath.Join(dir, "none"), at, "x", nil); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("without a directory: %v", err)
	}
}
