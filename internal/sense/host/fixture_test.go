package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fixture unpacks testdata/NAME.txtar and returns an FS on it. A file whose
// content is "-> TARGET" becomes a symbolic link.
func fixture(t testing.TB, name string) FS {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".txtar"))
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	var file string
	var content strings.Builder
	flush := func() {
		if file == "" {
			return
		}
		put(t, filepath.Join(root, file), content.String())
	}
	for line := range strings.Lines(string(b)) {
		if s, ok := strings.CutPrefix(line, "-- "); ok && strings.HasSuffix(s, " --\n") {
			flush()
			content.Reset()
			file = strings.TrimSuffix(s, " --\n")
			continue
		}
		content.WriteString(line)
	}
	flush()
	return FS{Proc: filepath.Join(root, "proc"), Sys: filepath.Join(root, "sys")}
}

// put writes one file or symbolic link of a fixture.
func put(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	var err error
	if target, ok := strings.CutPrefix(content, "-> "); ok {
		err = os.Symlink(strings.TrimSuffix(target, "\n"), path)
	} else {
		err = os.WriteFile(path, []byte(content), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// needRoot skips a test that makes network namespaces.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs root to make a network namespace (CAP_SYS_ADMIN)")
	}
}
