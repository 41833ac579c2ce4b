package target

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/budget/budgettest"
)

// FuzzOpen takes URLs as they are given: nothing that may be a password is in a title, an
// error or a directory's name, and that is the name of one directory.
func FuzzOpen(f *testing.F) {
	for _, url := range []string{
		"clickhouse://me@ch-1:8123|ch-1b,ch-2/slowray?cluster=c&gateway=g", "victorialogs://logs-1:9428", "otlp+grpc://col:4317", "otlp+http://me:hunter2@col:4318",
		"clickhouse://me:hunter2@h", "clickhouse://", "ftp://x", "", "clickhouse://../../../etc@h", "otlp+http://h/..%2f..",
	} {
		f.Add(url)
	}
	f.Fuzz(func(t *testing.T, url string) {
		if strings.Contains(url, "-file") {
			return // it would read any file of this machine
		}
		budgettest.Within(t, len(url), budgettest.Usual, func() {
			d, err := Open(url)
			if err == nil {
				defer d.Target.Close()
			}
			if name := d.Name; err == nil && (name == "" || filepath.Base(name) != name || name == "." || name == ".." || len(name) > 255) {
				t.Errorf("%q is no name of a directory", name)
			}
		})
		// Whatever stands before the last @ of the part with the hosts may be one.
		const secret = "hunter2"
		scheme, rest, ok := strings.Cut(url, "://")
		if !ok || strings.ContainsAny(rest, "?#") || strings.Contains(url, secret) {
			return
		}
		d, err := Open(scheme + "://me:" + secret + "@" + rest)
		if err == nil {
			d.Target.Close()
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("%v", err)
		}
		if strings.Contains(d.Title+d.Name, secret) {
			t.Errorf("%q %q", d.Title, d.Name)
		}
	})
}
