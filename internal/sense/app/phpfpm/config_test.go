package phpfpm

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
)

func tree(t *testing.T, files map[string]string) rootfs.Root {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, p, text)
	}
	return rootfs.At(dir, enough())
}

func TestParser(t *testing.T) {
	root := tree(t, map[string]string{
		"etc/fpm.conf": `; main
[global]
pid = /run/x
error_log = "/var/log/$x.log" ; quoted ; twice
include=etc/pool.d/*.conf
include=/etc/missing.conf
garbage
[late]
listen = [::1]:9001
pm = static
pm.max_children = ${N}
`,
		"etc/pool.d/a.conf":   "[www]\nlisten = run/$pool.sock\npm = dynamic;comment\npm.max_children = '5'\nphp_admin_value[memory_limit] = 1G\n",
		"etc/pool.d/b.conf":   "listen.backlog = -1\ninclude = /etc/pool.d/b.conf\n[empty]\n",
		"etc/pool.d/.c.conf":  "[hidden]\n",
		"etc/pool.d/d.conf.x": "[other]\n",
	})
	p := &parser{b: enough(), root: root, prefix: "/"}
	if err := p.readFile("/etc/fpm.conf"); err != nil {
		t.Fatal(err)
	}
	at := func(v, file string, line int) observe.Setting {
		return observe.Setting{Value: v, File: file, Line: line}
	}
	def := func(v string) observe.Setting { return observe.Setting{Value: v, Default: true} }
	a, m := "/etc/pool.d/a.conf", "/etc/fpm.conf"
	want := []observe.FPMPool{
		{Name: "www", Listen: at("/usr/run/www.sock", a, 2), ListenBacklog: at("-1", "/etc/pool.d/b.conf", 1), PM: at("dynamic", a, 3), MaxChildren: at("5", a, 4)},
		{Name: "empty", Listen: def(""), ListenBacklog: def("511"), PM: def(""), MaxChildren: def("")},
		{Name: "late", Listen: at("[::1]:9001", m, 9), ListenBacklog: def("511"), PM: at("static", m, 10), MaxChildren: at("${N}", m, 11)},
	}
	var got []observe.FPMPool
	for _, c := range p.pools {
		got = append(got, c.pool("/usr"))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if v := p.global["error_log"].text; v != "/var/log/$x.log" {
		t.Errorf("error_log %q", v)
	}
	var texts []string
	for _, pr := range p.problems {
		texts = append(texts, pr.text)
	}
	wantProblems := []string{
		"include /etc/pool.d/b.conf: it includes itself",
		"include /etc/missing.conf: no such file",
		"a line of unknown form",
		"pm.max_children = ${N} comes from an environment variable of php-fpm, which cannot be read",
	}
	if d := cmp.Diff(wantProblems, texts); d != "" {
		t.Error(d)
	}
}

func TestINIValue(t *testing.T) {
	for in, want := range map[string]string{
		"": "", " a ; b": "a", `"a;b" ; c`: "a;b", `'a'b "c"`: "ab c", `"open`: "open", `"a\"b\\"`: `a"b\`,
		"a  b": "a  b", ";": "", `""`: "", "1;2": "1", `C:\x`: `C:\x`,
	} {
		if got := iniValue(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestTitles(t *testing.T) {
	for in, want := range map[string]string{
		"php-fpm: master process (/etc/php/8.2/fpm/php-fpm.conf)": "/etc/php/8.2/fpm/php-fpm.conf",
		"php-fpm: master process (/a (b)/c.conf)":                 "/a (b)/c.conf",
		"php-fpm: master process (/etc/ph":                        "",
		"php-fpm: master":                                         "",
	} {
		if got := configInTitle(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
	if got := poolInTitle("php-fpm: pool www   "); got != "www" {
		t.Errorf("%q", got)
	}
}

func FuzzConfig(f *testing.F) {
	f.Add("[www]\nlisten = run/$pool.sock\npm = dynamic;comment\npm.max_children = '5'\ninclude=*\nx[y] = \"")
	f.Add("[\n]=\n[]\n=\n;\n\x00\xff")
	root := rootfs.At(f.TempDir(), enough())
	f.Fuzz(func(t *testing.T, text string) {
		p := &parser{b: enough(), root: root, prefix: "/"}
		p.parse("f", text)
		for _, c := range p.pools {
			if c.name == "" {
				t.Error("a pool without name")
			}
			c.pool("/usr")
		}
		if lines := strings.Count(text, "\n") + 1; len(p.problems) > lines+1 {
			t.Errorf("%d problems in %d lines", len(p.problems), lines)
		}
	})
}

func enough() *budget.Budget {
	return budget.New(context.Background(), budget.Limits{Wall: time.Minute, Bytes: 1 << 30})
}
