package rootfs

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slowray/slowray/internal/budget"
)

func enough() *budget.Budget {
	return budget.New(context.Background(), budget.Limits{Wall: time.Minute})
}

func both(t *testing.T, run func(t *testing.T)) {
	t.Run("openat2", run)
	noOpenat2.Store(true)
	defer noOpenat2.Store(false)
	t.Run("walk", run)
}

func TestOpenStaysInside(t *testing.T) {
	outer := t.TempDir()
	root := filepath.Join(outer, "root")
	os.MkdirAll(filepath.Join(root, "etc", "d"), 0o755)
	os.WriteFile(filepath.Join(outer, "secret"), []byte("outside"), 0o644)
	os.WriteFile(filepath.Join(root, "secret"), []byte("inside"), 0o644)
	os.Symlink("/secret", filepath.Join(root, "etc", "abs"))
	os.Symlink("../../../../../secret", filepath.Join(root, "etc", "rel"))
	os.Symlink("/etc/d/../abs", filepath.Join(root, "etc", "d", "chain"))
	os.Symlink("d", filepath.Join(root, "etc", "dir"))
	os.Symlink("/etc", filepath.Join(root, "etc", "up"))
	both(t, func(t *testing.T) {
		for _, name := range []string{"/secret", "secret", "/../secret", "/etc/abs", "/etc/rel", "/etc/d/chain", "/etc/dir/chain", "/etc/up/up/rel", "//etc//./abs"} {
			f, err := At(root, enough()).Open(name)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			b, _ := io.ReadAll(f)
			f.Close()
			if string(b) != "inside" {
				t.Errorf("%s leads %s", name, b)
			}
		}
		for _, name := range []string{"/none", "/etc/d/none/x", "/" + outer + "/secret"} {
			if _, err := At(root, enough()).Open(name); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestGlob(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"a/1.conf", "a/2.conf", "a/.h.conf", "b/3.conf", "b/x.bak"} {
		os.MkdirAll(filepath.Join(dir, filepath.Dir(n)), 0o755)
		os.WriteFile(filepath.Join(dir, n), nil, 0o644)
	}
	os.Symlink("/b", filepath.Join(dir, "c"))
	both(t, func(t *testing.T) {
		for pattern, want := range map[string][]string{
			"/a/*.conf":       {"/a/1.conf", "/a/2.conf"},
			"/*/?.conf":       {"/a/1.conf", "/a/2.conf", "/b/3.conf", "/c/3.conf"},
			"/[!ac]/*":        {"/b/3.conf", "/b/x.bak"},
			"/a/.*":           {"/a/.h.conf"},
			"/a/1.conf":       {"/a/1.conf"},
			"/none/*.conf":    nil,
			"/a/none":         nil,
			"/a/1.conf/*":     nil,
			"/../../a/2.conf": {"/a/2.conf"},
		} {
			got, err := At(dir, enough()).Glob(pattern)
			if err != nil {
				t.Errorf("%s: %v", pattern, err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s: %s", pattern, d)
			}
		}
	})
	if _, err := At(dir, enough()).Glob("/[a"); err == nil {
		t.Error("a broken pattern was taken")
	}
}

func TestReadFileBound(t *testing.T) {
	p := filepath.Join(t.TempDir(), "x")
	os.WriteFile(p, make([]byte, 100), 0o644)
	if _, _, err := At("", enough()).ReadFile(p, 99); err == nil {
		t.Error("100 bytes were read within 99")
	}
	if b, st, err := At("", enough()).ReadFile(p, 100); err != nil || len(b) != 100 || st.Size != 100 {
		t.Error(len(b), st.Size, err)
	}
}
