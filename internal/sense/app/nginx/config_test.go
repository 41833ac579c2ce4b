package nginx

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork/proctest"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
)

func tree(t *testing.T, files map[string]string) *parser {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, p, text)
	}
	b := enough()
	return &parser{b: b, root: rootfs.At(dir, b), confPrefix: "/etc/nginx"}
}

func parseText(t *testing.T, text string) (*config, *parser) {
	t.Helper()
	p := &parser{b: enough(), root: rootfs.At(t.TempDir(), enough()), confPrefix: "/"}
	return &config{main: p.parse("f", text), prefix: "/p/", build: parseBuild("", "1.22.1"), asRoot: true}, p
}

// show writes directives back with their lines.
func show(ds []*directive, indent string) string {
	var b strings.Builder
	for _, d := range ds {
		fmt.Fprintf(&b, "%s%d %s %q\n%s", indent, d.line, d.name, d.args, show(d.block, indent+"  "))
	}
	return b.String()
}

func TestParse(t *testing.T) {
	const text = "listen 1; # c { } ;\r\n" + `log_format "x;{}# \" y" 'it''s' \"q\" re\.x;
location ${v}x$y{my_pass;}
http {
  if ($a ~* "\.php$") { server; }
  content_by_lua_block {
    -- a comment with }
    --[[ long
    } comment ]]
    local s = "}" .. '}\'}' .. [==[ } ]] } ]==]
    if x then y = { z = { 1 } } end
  }
  access_log 'multi
line';
}
types { text/html html htm; }
map $a $b { default 0; ~^/x 1; }
listen
 h
 ;
;
i`
	_, p := parseText(t, "")
	got := show(p.parse("f", text), "")
	want := `1 listen ["1"]
2 log_format ["x;{}# \" y" "it" "s" "\"q\"" "re\\.x"]
3 location ["${v}x$y"]
  3 my_pass []
4 http []
  5 if ["($a" "~*" "\\.php$" ")"]
    5 server []
  13 access_log ["multi\nline"]
18 listen ["h"]
`
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]problem{{"f", 22, `directive "i" is not ended by ";"`}}, p.problems, cmp.AllowUnexported(problem{})); d != "" {
		t.Error(d)
	}
}

func TestIncludes(t *testing.T) {
	p := tree(t, map[string]string{
		"etc/nginx/nginx.conf":   "include modules/*.conf;\nhttp {\n include /etc/nginx/sites/*;\n include none.conf;\n include nginx.conf;\n}\nlisten last;\n",
		"etc/nginx/sites/b":      "listen b;\n}\nlisten after;",
		"etc/nginx/sites/a":      "listen a;",
		"etc/nginx/sites/.hid":   "listen hidden;",
		"etc/nginx/sites/d/file": "listen x;",
	})
	ds, err := p.readFile("/etc/nginx/nginx.conf")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff("2 http []\n  1 listen [\"a\"]\n  1 listen [\"b\"]\n  3 listen [\"after\"]\n7 listen [\"last\"]\n", show(ds, "")); d != "" {
		t.Error(d)
	}
	want := []problem{
		{"/etc/nginx/sites/b", 2, `unexpected "}"`},
		{"/etc/nginx/nginx.conf", 3, "include /etc/nginx/sites/d: a directory: not a regular file"},
		{"/etc/nginx/nginx.conf", 4, "include /etc/nginx/none.conf: no such file or directory"},
		{"/etc/nginx/nginx.conf", 5, "include /etc/nginx/nginx.conf: it includes itself"},
	}
	if d := cmp.Diff(want, p.problems, cmp.AllowUnexported(problem{})); d != "" {
		t.Error(d)
	}
}

func TestIncludeDepth(t *testing.T) {
	files := map[string]string{}
	for i := range 80 {
		files[fmt.Sprintf("etc/nginx/%d", i)] = fmt.Sprintf("listen %d; include %d;", i, i+1)
	}
	p := tree(t, files)
	ds, err := p.readFile("/etc/nginx/0")
	if err != nil || len(ds) != budget.Default.Depth || !budget.IsExceeded(p.b.Err()) {
		t.Errorf("%d directives, %v, %v", len(ds), p.b.Err(), err)
	}
}

func TestListens(t *testing.T) {
	c, _ := parseText(t, `http {
server { listen 80; listen [::]:80 ipv6only=on backlog=7; }
server { listen *:80 default_server backlog=1024; listen 127.0.0.1:8080; listen 10.0.0.1; listen localhost:81; }
server { listen unix:/run/x.sock; listen 443 ssl; listen 443 quic; listen [::1]; listen 9000-9002; listen $bad; }
server { }
server { listen 8080; }
map $x $y { listen 1; }
}
stream { server { listen 53 udp; listen 12345 backlog=3; } }
mail { server { listen 25; } }`)
	def := observe.Setting{Value: "511", Default: true}
	at := func(v string, line int) observe.Setting { return observe.Setting{Value: v, File: "f", Line: line} }
	want := []observe.NginxListen{
		{Addr: "*", Port: 80, Backlog: at("1024", 3), File: "f", Line: 3},
		{Addr: "::", Port: 80, Backlog: at("7", 2), File: "f", Line: 2},
		{Addr: "127.0.0.1", Port: 8080, Backlog: def, File: "f", Line: 3},
		{Addr: "10.0.0.1", Port: 80, Backlog: def, File: "f", Line: 3},
		{Addr: "localhost", Port: 81, Backlog: def, File: "f", Line: 3},
		{Path: "/run/x.sock", Backlog: def, File: "f", Line: 4},
		{Addr: "*", Port: 443, Backlog: def, File: "f", Line: 4},
		{Addr: "::1", Port: 80, Backlog: def, File: "f", Line: 4},
		{Addr: "*", Port: 9000, Backlog: def, File: "f", Line: 4},
		{Addr: "*", Port: 9001, Backlog: def, File: "f", Line: 4},
		{Addr: "*", Port: 9002, Backlog: def, File: "f", Line: 4},
		{Addr: "$bad", Port: 80, Backlog: def, File: "f", Line: 4},
		{Addr: "*", Port: 8080, Backlog: def, File: "f", Line: 6},
		{Addr: "*", Port: 12345, Backlog: at("3", 9), File: "f", Line: 9},
		{Addr: "*", Port: 25, Backlog: def, File: "f", Line: 10},
	}
	if d := cmp.Diff(want, c.listens()); d != "" {
		t.Error(d)
	}
}

func TestUpstreams(t *testing.T) {
	const text = `http {
upstream kept { server 10.0.0.1:80; server unix:/run/a.sock weight=2; server 10.0.0.9 down; server b; keepalive 16; }
upstream php { server unix:/run/php.sock; keepalive 8; }
upstream rpc { server 10.0.0.2:50; keepalive 4; }
upstream unused { server 10.0.0.3:80; }
proxy_http_version 1.1;
proxy_set_header Connection "";
server {
 location /a { proxy_pass http://kept/x/; }
 location /b { proxy_pass https://[::1]/x; proxy_set_header Host $host; }
 location /c { fastcgi_pass php; fastcgi_keep_conn on; }
 location /d { grpc_pass grpc://rpc; }
 location /e { uwsgi_pass 127.0.0.1:3031; }
 location /f { scgi_pass unix:/run/s.sock; }
 location /g { memcached_pass 127.0.0.1:11211; if ($a) { fastcgi_pass 127.0.0.1:9000; } }
 location /h { proxy_pass http://unix:/run/b.sock:/uri; }
 location /i { proxy_pass http://10.0.0.5; }
}
}
stream { upstream kept { server 10.1.0.1:5432; } server { listen 1; proxy_pass kept; } }
`
	def := observe.Setting{Value: "0", Default: true}
	at := func(v string, line int) observe.Setting { return observe.Setting{Value: v, File: "f", Line: line} }
	want := []observe.NginxUpstream{
		{Name: "kept", Via: "proxy", Servers: []string{"10.0.0.1:80", "unix:/run/a.sock", "b:80"}, Keepalive: at("16", 2), File: "f", Line: 2},
		{Name: "[::1]", Via: "proxy", Servers: []string{"[::1]:443"}, Keepalive: def, File: "f", Line: 10},
		{Name: "php", Via: "fastcgi", Servers: []string{"unix:/run/php.sock"}, Keepalive: at("8", 3), File: "f", Line: 3},
		{Name: "rpc", Via: "grpc", Servers: []string{"10.0.0.2:50"}, Keepalive: at("4", 4), File: "f", Line: 4},
		{Name: "127.0.0.1:3031", Via: "uwsgi", Servers: []string{"127.0.0.1:3031"}, Keepalive: def, File: "f", Line: 13},
		{Name: "unix:/run/s.sock", Via: "scgi", Servers: []string{"unix:/run/s.sock"}, Keepalive: def, File: "f", Line: 14},
		{Name: "127.0.0.1:11211", Via: "memcached", Servers: []string{"127.0.0.1:11211"}, Keepalive: def, File: "f", Line: 15},
		{Name: "127.0.0.1:9000", Via: "fastcgi", Servers: []string{"127.0.0.1:9000"}, Keepalive: def, File: "f", Line: 15},
		{Name: "unix:/run/b.sock", Via: "proxy", Servers: []string{"unix:/run/b.sock"}, Keepalive: def, File: "f", Line: 16},
		{Name: "10.0.0.5", Via: "proxy", Servers: []string{"10.0.0.5:80"}, Keepalive: def, File: "f", Line: 17},
		{Name: "kept", Via: "proxy", Servers: []string{"10.1.0.1:5432"}, Keepalive: def, File: "f", Line: 20},
	}
	c, _ := parseText(t, text)
	if d := cmp.Diff(want, c.upstreams()); d != "" {
		t.Error(d)
	}
}

// TestKeepalive: what it takes for connections to be kept, by version.
func TestKeepalive(t *testing.T) {
	const up = "upstream u { server a:1; %s }"
	for _, c := range []struct{ version, upstream, http, location, want string }{
		{"1.22.1", "keepalive 4;", "", "proxy_pass http://u;", "0"},
		{"1.22.1", "keepalive 4;", "proxy_http_version 1.1;", "proxy_pass http://u;", "0"},
		{"1.22.1", "keepalive 4;", `proxy_set_header Connection "";`, "proxy_http_version 1.1; proxy_pass http://u;", "4"},
		{"1.22.1", "keepalive 4;", `proxy_set_header Connection "";`, "proxy_http_version 1.1; proxy_set_header Host x; proxy_pass http://u;", "0"},
		{"1.22.1", "", "", `proxy_http_version 1.1; proxy_set_header Connection ""; proxy_pass http://u;`, "0"},
		{"1.22.1", "keepalive 4;", "", "fastcgi_pass u;", "0"},
		{"1.22.1", "keepalive 4;", "fastcgi_keep_conn on;", "fastcgi_pass u;", "4"},
		{"1.22.1", "keepalive 4;", "", "uwsgi_pass u;", "0"},
		{"1.29.7", "", "", "proxy_pass http://u;", "32"},
		{"1.30.0", "keepalive 0;", "", "proxy_pass http://u;", "0"},
		{"1.29.7", "", "", "proxy_set_header Connection close; proxy_pass http://u;", "0"},
	} {
		cf, _ := parseText(t, "http {"+fmt.Sprintf(up, c.upstream)+c.http+"server { location / {"+c.location+"} } }")
		cf.build = parseBuild("", c.version)
		got := cf.upstreams()
		if len(got) != 1 || got[0].Keepalive.Value != c.want {
			t.Errorf("%+v: got %+v", c, got)
		}
	}
}

func TestVariableTarget(t *testing.T) {
	c, _ := parseText(t, "http { upstream a { server x:1; } server { location / { proxy_pass http://$b; } } }")
	if got := c.upstreams(); len(got) != 1 || got[0].Name != "a" || got[0].Via != "" {
		t.Errorf("%+v", got)
	}
}

func TestLogs(t *testing.T) {
	c, _ := parseText(t, `error_log logs/e.log warn;
http {
 log_format js escape=json '{"s":' '$status}';
 error_log syslog:server=x;
 access_log a.log js; access_log b.log combined buffer=32k flush=5s; access_log errors.log js if=$bad;
 server { access_log off; error_log stderr; location / { access_log /var/$host.log; error_log memory:32m debug; } }
 server { access_log z.log combined gzip=4; access_log c.log unknown; }
}`)
	list := c.logs("/default", true)
	type spec struct {
		path, what, problem string
		formats             int
		counted, buffered   bool
	}
	var got []spec
	for _, s := range list {
		got = append(got, spec{s.path, s.what, s.problem, len(s.formats), s.counted, s.buffered})
	}
	want := []spec{
		{path: "/p/logs/e.log", what: "error"},
		{path: "syslog:server=x", what: "error", problem: "the error log goes to syslog, not to a file"},
		{path: "stderr", what: "error", problem: "the error log goes to standard error, not to a file"},
		{path: "memory:32m", what: "error", problem: "the error log goes to a memory buffer, not to a file"},
		{path: "/p/a.log", what: "access", formats: 1, counted: true},
		{path: "/p/b.log", what: "access", formats: 1, buffered: true},
		{path: "/p/errors.log", what: "access", formats: 1},
		{path: "/var/$host.log", what: "access", problem: "the path of the access log depends on the request", formats: 1},
		{path: "/p/z.log", what: "access", problem: "the access log is written compressed", formats: 1},
		{path: "/p/c.log", what: "access", counted: true},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(spec{})); d != "" {
		t.Error(d)
	}
	c, _ = parseText(t, "http { server { } }")
	list = c.logs("/default", true)
	if len(list) != 2 || list[0].path != "/default" || list[1].path != "/usr/local/nginx/logs/access.log" {
		t.Errorf("%+v", list)
	}
}

func TestTitles(t *testing.T) {
	for title, want := range map[string]arguments{
		"nginx: master process nginx -g daemon off;":                                     {global: "daemon off;"},
		"nginx: master process /usr/sbin/nginx -c /x/nginx.conf -p /prefix -g a b; c d;": {conf: "/x/nginx.conf", prefix: "/prefix", global: "a b; c d;"},
		"nginx: master process ./x -c/x/my dir/n.conf -q":                                {conf: "/x/my dir/n.conf"},
		"nginx: master process nginx -e stderr -g 'daemon off;'":                         {errorLog: "stderr", global: "daemon off;"},
		"angie: master process v1.4.0 #1 [angie -c /a.conf]":                             {conf: "/a.conf"},
		"nginx: master process":                                                          {},
	} {
		line, ok := masterArgs(title)
		if got := parseTitleArgs(line); !ok || got != want {
			t.Errorf("%s: %v %+v", title, ok, got)
		}
	}
	for _, title := range []string{"", "nginx: worker process", "php-fpm: master process (/x)", "nginx", "vi nginx: master process"} {
		if _, ok := masterArgs(title); ok {
			t.Errorf("%q is taken for a master", title)
		}
	}
	for title, want := range map[string]role{"nginx: worker process": roleWorker, "nginx: worker process is shutting down": roleLeaving,
		"nginx: cache manager process": roleOther, "nginx: master process nginx": roleOther} {
		if got := roleOf(title); got != want {
			t.Errorf("%q: %v", title, got)
		}
	}
	for _, argv := range [][]string{{"-t"}, {"-s", "reload"}, {"-qt"}, {"-V"}} {
		if _, serves := parseArgv(argv); serves {
			t.Errorf("%v serves", argv)
		}
	}
	if a, serves := parseArgv([]string{"-qc", "/x", "-p/y", "-g", "master_process off;"}); !serves || a != (arguments{conf: "/x", prefix: "/y", global: "master_process off;"}) {
		t.Errorf("%v %+v", serves, a)
	}
}

func TestBuild(t *testing.T) {
	text := strings.Repeat("\x7fELF", 300_000) + "nginx/1.22.1\x00configure arguments:\x00" + strings.Repeat("z", 700_000) +
		"configure arguments: --with-cc-opt='-g --prefix=/no' --prefix=/usr/share/nginx --conf-path=/etc/nginx/nginx.conf --error-log-path=stderr\x00tail"
	args, version, err := scanBuild(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := build{prefix: "/usr/share/nginx/", confPath: "/etc/nginx/nginx.conf", errorLog: "stderr", accessLog: "/usr/share/nginx/logs/access.log", version: [3]int{1, 22, 1}}
	if d := cmp.Diff(want, parseBuild(args, version), cmp.AllowUnexported(build{})); d != "" {
		t.Error(d)
	}
	if _, _, err := scanBuild(strings.NewReader("nothing here")); err == nil {
		t.Error("arguments were found in nothing")
	}
}

func FuzzConfig(f *testing.F) {
	f.Add("a 1;b{c \"x\" 'y';}content_by_lua_block { --[[ } ]] \"}\" }include *;http{server{listen 80;}}")
	f.Add("http { upstream u { server a; keepalive 1; } log_format x '$status'; access_log a x; server { location / { proxy_pass http://u; } } }")
	f.Add("}{;\"'\\${")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		b := enough()
		p := &parser{b: b, root: rootfs.At(dir, b), confPrefix: "/"}
		c := &config{main: p.parse("f", text), prefix: "/", build: parseBuild(text, text)}
		var n observe.Nginx
		c.fill(&n)
		c.logs("stderr", true)
		if len(p.problems) > maxProblems {
			t.Errorf("%d problems", len(p.problems))
		}
	})
}

// FuzzServer reads the title or the command line, and two files of the configuration, of
// a process that calls itself nginx.
func FuzzServer(f *testing.F) {
	f.Add("nginx: master process nginx -c /n.conf -g 'daemon off;'\x00", "error_log /e.log; include a.conf; http { log_format x '$status'; access_log /a.log x; include *; }", "server { listen 80; }")
	f.Add("nginx\x00-p\x00/\x00-c\x00n.conf\x00-g\x00master_process off;\x00-e\x00", "include n.conf; http { server { listen 99999; listen [::]:-1 backlog=9223372036854775808; } }", "{")
	f.Add("nginx: master process -c \"", "", "}")
	fake := proctest.NewFake(f)
	f.Fuzz(func(t *testing.T, cmdline, conf, included string) {
		procs := fake.Process(t, "nginx", cmdline, "")
		fake.File(t, "n.conf", conf)
		fake.File(t, "a.conf", included)
		fake.File(t, "etc/nginx/nginx.conf", conf)
		budgettest.Within(t, len(cmdline)+len(conf)+len(included), budgettest.Cost{PerByte: 4096, Fixed: 8 << 20, CPU: budgettest.Usual.CPU}, func() {
			for _, in := range Discover(procs, fake.Proc) {
				in.Begin(budget.New(context.Background(), budget.Limits{}))
				in.Close()
				out, gaps, _ := in.End(budget.New(context.Background(), budget.Limits{}), observe.Window{})
				for _, l := range out.Listens {
					if l.Port < 0 || l.Port > 65535 {
						t.Errorf("it listens on port %d", l.Port)
					}
				}
				proctest.Check(t, observe.AppServer{}, gaps)
			}
		})
	})
}

func enough() *budget.Budget {
	return budget.New(context.Background(), budget.Limits{Wall: time.Minute, Bytes: 1 << 30})
}
