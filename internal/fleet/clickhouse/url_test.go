package clickhouse

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slowray/slowray/internal/fleet"
)

func TestParse(t *testing.T) {
	t.Setenv(PasswordEnv, "")
	c, err := Parse("clickhouse://me%40x@h1|h1b:9123,[::1]:8124/my_db?secure=1&cluster=all&dialect=plain&compress=none")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([][]string{{"h1:8443", "h1b:9123"}, {"[::1]:8124"}}, c.Shards); d != "" {
		t.Error(d)
	}
	if c.User != "me@x" || c.Database != "my_db" || !c.Secure || c.Compress || c.Dialect != Plain || c.Cluster != "all" {
		t.Errorf("%+v", c)
	}
	if c = mustParse(t, "clickhouse://h"); c.Database != "slowray" || c.Shards[0][0] != "h:8123" || !c.Compress || c.Dialect != Auto || len(c.Gateways) > 0 {
		t.Errorf("%+v", c)
	}
	for url, want := range map[string]bool{"127.0.0.1,[::1]/db?cluster=c": false, "localhost": false, "127.0.0.1,h/db?cluster=c": true, "127.0.0.1/db?compress=lz4": true, "127.0.0.1/db?gateway=g": true, "h/db?compress=none": false} {
		if c = mustParse(t, "clickhouse://"+url); c.Compress != want {
			t.Errorf("%s: compresses %v, want %v", url, c.Compress, want)
		}
	}
	for text, want := range map[string]string{"g": "g:8124", "g:99": "g:99", "[::1]": "[::1]:8124"} {
		if c = mustParse(t, "clickhouse://h/db?gateway="+text); strings.Join(c.Gateways, " ") != want {
			t.Errorf("gateway %q, want %q", c.Gateways, want)
		}
	}
}

func TestLinger(t *testing.T) {
	for url, want := range map[string]time.Duration{"clickhouse://h": 2 * time.Second, "clickhouse://h/db?linger=5s": 5 * time.Second, "clickhouse://h/db?linger=0s": 0} {
		db := New(mustParse(t, url))
		if s, f := db.Linger(fleet.Seconds), db.Linger(fleet.Findings); s != want || f != 0 {
			t.Errorf("%s: seconds wait %s, want %s; findings %s", url, s, want, f)
		}
	}
	for _, value := range []string{"", "5", "-1s", "61s", "soon"} {
		if _, err := Parse("clickhouse://h/db?linger=" + value); err == nil || !strings.Contains(err.Error(), "0s to 1m") {
			t.Errorf("linger=%s: %v", value, err)
		}
	}
}

func TestParseTakesNoPasswordAndShowsNone(t *testing.T) {
	for _, url := range []string{
		"clickhouse://me:SECRET@h/db", "clickhouse://h/db?password=SECRET", "clickhouse://h/db?token=SECRET", "clickhouse://me:%zzSECRET@h/db",
		"clickhouse://h/db?x=%zz&password=SECRET",
	} {
		_, err := Parse(url)
		if err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestPasswordComesFromAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p")
	if err := os.WriteFile(file, []byte("open sesame\r\nmore\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(PasswordEnv, "other")
	if c := mustParse(t, "clickhouse://h/db?password-file="+file); c.password != "open sesame" {
		t.Errorf("%q", c.password)
	}
	if c := mustParse(t, "clickhouse://h/db"); c.password != "other" {
		t.Errorf("%q", c.password)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, url := range []string{
		"", "http://h", "clickhouse://", "clickhouse:///db", "clickhouse://h,,h2/db", "clickhouse://h1,h2/db", "clickhouse://h|h/db", "clickhouse://h/a-b", "clickhouse://h/db;x",
		"clickhouse://h/db?dialect=old", "clickhouse://h/db?compress=zip", "clickhouse://h/db?secure=maybe", "clickhouse://h/db?nonsense=1",
		"clickhouse://h:x/db", "clickhouse://h'/db", "clickhouse://h/db?cluster='", "clickhouse://h/db?gateway=", "clickhouse://h/db?gateway=a b", "clickhouse://h/db?gateway=g:x", "clickhouse://h/db?gateway=g&secure=1", "clickhouse://h/db?gateway=g,", "clickhouse://h/db?gateway=g,g:8124", "clickhouse://h/db?password-file=/does/not/exist",
	} {
		if c, err := Parse(url); err == nil || strings.ContainsAny(err.Error(), "\n") {
			t.Errorf("%s: %+v, %v", url, c, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("clickhouse://u@h1:1|h2,[::1]/db?cluster=c&secure=1")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "file") {
			t.Skip()
		}
		c, err := Parse(text)
		if err == nil && (len(c.Shards) == 0 || len(c.Shards[0]) == 0 || c.Database == "") {
			t.Errorf("%q: %+v", text, c)
		}
	})
}

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{"": "''", "a'b": `'a\'b'`, `\`: `'\\'`, "\x00\n": `'\x00\x0A'`, "ü": `'\xC3\xBC'`} {
		if got := quote(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}
