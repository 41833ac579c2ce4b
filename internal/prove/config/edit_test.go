package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/sense/app/nginx"
	"github.com/slowray/slowray/internal/sense/app/phpfpm"
)

// editCase is one edit of a text: the line that is looked at, and what it becomes.
type editCase struct {
	name, text string
	p          place
	want       string // the whole text afterwards
	was        string
	err        string // or what the error says
}

func at(line int, section, name, was, value string) place {
	p := place{line: line, section: section, name: name, was: was, value: value}
	p.directive, p.argName, _ = strings.Cut(name, " ")
	return p
}

func runEdits(t *testing.T, edit func(string, place) (edit, error), cases []editCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			e, err := edit(c.text, c.p)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("error %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := string(e.apply([]byte(c.text))); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
			if e.was != c.was {
				t.Errorf("was %q, want %q", e.was, c.was)
			}
		})
	}
}

var nginxCases = []editCase{
	{name: "comment behind", text: "worker_processes 2; # two\n", p: at(1, "", "worker_processes", "2", "4"), want: "worker_processes 4; # two\n", was: "2"},
	{name: "several on a line", text: "user www; worker_processes auto; pid p;\n", p: at(1, "", "worker_processes", "auto", "4"), want: "user www; worker_processes 4; pid p;\n", was: "auto"},
	{name: "CRLF and tabs", text: "events {\r\n\tworker_connections\t512;\r\n}\r\n", p: at(2, "", "worker_connections", "512", "1024"), want: "events {\r\n\tworker_connections\t1024;\r\n}\r\n", was: "512"},
	{name: "quoted", text: `worker_processes "2";`, p: at(1, "", "worker_processes", "2", "4"), want: `worker_processes 4;`, was: "2"},
	{name: "byte order mark", text: "\ufeffworker_processes 2;", p: at(1, "", "worker_processes", "2", "4"), want: "\ufeffworker_processes 4;", was: "2"},
	{name: "over lines", text: "worker_processes\n  # how many\n  2\n;", p: at(1, "", "worker_processes", "2", "4"), want: "worker_processes\n  # how many\n  4\n;", was: "2"},
	{name: "several arguments", text: "keepalive_timeout 65 60;", p: at(1, "", "keepalive_timeout", "65 60", "30 60"), want: "keepalive_timeout 30 60;", was: "65 60"},
	{name: "fewer arguments", text: "keepalive_timeout 65 60;", p: at(1, "", "keepalive_timeout", "65", "30"), want: "keepalive_timeout 30;", was: "65 60"},
	{name: "comment between arguments", text: "keepalive_timeout 65 # x\n 60;", p: at(1, "", "keepalive_timeout", "", "30"), err: "comment inside"},
	{name: "backlog", text: "server { listen 80 backlog=511 reuseport; }", p: at(1, "", "backlog", "511", "4096"), want: "server { listen 80 backlog=4096 reuseport; }", was: "511"},
	{name: "backlog of IPv6", text: "server {\n listen 80;\n listen [::]:80 ipv6only=on default_server;\n}", p: at(3, "", "backlog", "", "4096"), want: "server {\n listen 80;\n listen [::]:80 ipv6only=on default_server backlog=4096;\n}"},
	{name: "backlog of a unix socket", text: "server{listen unix:/run/a.sock;}", p: at(1, "", "listen backlog=", "", "9"), want: "server{listen unix:/run/a.sock backlog=9;}"},
	{name: "several servers on a line", text: "server{listen 1 backlog=5;} server{listen 2 backlog=6;}", p: at(1, "", "backlog", "6", "9"), want: "server{listen 1 backlog=5;} server{listen 2 backlog=9;}", was: "6"},
	{name: "rate of a zone", text: "limit_req_zone $binary_remote_addr zone=a:10m rate=1r/s;", p: at(1, "", "limit_req_zone rate=", "1r/s", "100r/s"), want: "limit_req_zone $binary_remote_addr zone=a:10m rate=100r/s;", was: "1r/s"},
	{name: "default in events", text: "events {\n    use epoll;\n}\n", p: at(0, "events", "worker_connections", "", "4096"), want: "events {\n    worker_connections 4096;\n    use epoll;\n}\n"},
	{name: "default in an empty block", text: "events {}\n", p: at(0, "events", "worker_connections", "", "4096"), want: "events { worker_connections 4096;}\n"},
	{name: "default in an empty block of two lines", text: "events {\n}\n", p: at(0, "events", "worker_connections", "", "4096"), want: "events {\n    worker_connections 4096;\n}\n"},
	{name: "default in a block with a comment only", text: "\tevents {\r\n\t\t# none\r\n\t}\r\n", p: at(0, "events", "worker_connections", "", "4096"), want: "\tevents {\r\n\t\t# none\r\n\t    worker_connections 4096;\r\n\t}\r\n"},
	{name: "default in a block on one line", text: "events { use epoll; }", p: at(0, "events", "worker_connections", "", "9"), want: "events { worker_connections 9; use epoll; }"},
	{name: "default at the top", text: "user a;\nevents {\n}\n", p: at(0, "", "worker_rlimit_nofile", "", "9"), want: "user a;\nworker_rlimit_nofile 9;\nevents {\n}\n"},
	{name: "default at the top, no block", text: "user a;\n", p: at(0, "", "worker_rlimit_nofile", "", "9"), want: "worker_rlimit_nofile 9;\nuser a;\n"},
	{name: "written after all", text: "user a; worker_rlimit_nofile 8;\n", p: at(0, "", "worker_rlimit_nofile", "", "9"), want: "user a; worker_rlimit_nofile 9;\n", was: "8"},
	{name: "into an upstream", text: "http {\n upstream back {\n  server 1.2.3.4;\n }\n}", p: at(0, "upstream back", "keepalive", "", "64"), want: "http {\n upstream back {\n  keepalive 64;\n  server 1.2.3.4;\n }\n}"},
	{name: "into the block at a line", text: "http {\n upstream back {\n  server 1.2.3.4;\n }\n}", p: at(2, "", "keepalive", "", "64"), want: "http {\n upstream back {\n  keepalive 64;\n  server 1.2.3.4;\n }\n}"},
	{name: "the line has moved", text: "worker_rlimit_nofile 9;\nevents {\n worker_connections 64;\n}", p: at(2, "", "worker_connections", "64", "9"), want: "worker_rlimit_nofile 9;\nevents {\n worker_connections 9;\n}", was: "64"},
	{name: "name inside a string", text: "log_format a 'worker_processes 2;';\nworker_processes 2;", p: at(2, "", "worker_processes", "2", "9"), want: "log_format a 'worker_processes 2;';\nworker_processes 9;", was: "2"},
	{name: "in a comment", text: "# worker_processes 2;\n", p: at(1, "", "worker_processes", "2", "9"), err: "no worker_processes stands there"},
	{name: "Lua", text: "content_by_lua_block { x = \"}\" -- }\n }\nworker_processes 2;", p: at(3, "", "worker_processes", "2", "9"), want: "content_by_lua_block { x = \"}\" -- }\n }\nworker_processes 9;", was: "2"},
	{name: "two sections", text: "server {\n}\nserver {\n}\n", p: at(0, "server", "backlog", "", "9"), err: "several blocks"},
	{name: "same value", text: "worker_processes 2;", p: at(1, "", "worker_processes", "2", "2"), err: "already"},
	{name: "not closed", text: "events {", p: at(0, "events", "worker_connections", "", "2"), err: "not closed"},
	{name: "not ended", text: "worker_processes 2", p: at(1, "", "worker_processes", "2", "3"), err: "not ended"},
}

func TestEditNginx(t *testing.T) { runEdits(t, editNginx, nginxCases) }

const pools = "; a pool\n[www]\nuser = www-data\npm = dynamic\npm.max_children = 5\n\n; the end\n[other]\npm.max_children=2"

var fpmCases = []editCase{
	{name: "comment behind", text: "[www]\npm.max_children = 5 ; few\n", p: at(2, "", "pm.max_children", "5", "20"), want: "[www]\npm.max_children = 20 ; few\n", was: "5"},
	{name: "no blanks", text: pools, p: at(9, "", "pm.max_children", "2", "20"), want: strings.Replace(pools, "=2", "=20", 1), was: "2"},
	{name: "of one pool of two", text: pools, p: at(5, "www", "pm.max_children", "5", "20"), want: strings.Replace(pools, "= 5", "= 20", 1), was: "5"},
	{name: "CRLF and tabs", text: "[www]\r\npm.max_children\t=\t5\t\r\n", p: at(2, "", "pm.max_children", "5", "20"), want: "[www]\r\npm.max_children\t=\t20\t\r\n", was: "5"},
	{name: "quoted", text: "[www]\npm.max_children = \"5\"; x\n", p: at(2, "", "pm.max_children", "5", "20"), want: "[www]\npm.max_children = 20; x\n", was: "5"},
	{name: "added", text: pools, p: at(0, "www", "pm.max_requests", "", "500"), want: strings.Replace(pools, "= 5\n", "= 5\npm.max_requests = 500\n", 1)},
	{name: "added at the end", text: pools, p: at(0, "other", "pm.max_requests", "", "500"), want: pools + "\npm.max_requests = 500"},
	{name: "added, CRLF, indented", text: "[www]\r\n  pm = static\r\n", p: at(0, "www", "pm.max_requests", "", "500"), want: "[www]\r\n  pm = static\r\n  pm.max_requests = 500\r\n"},
	{name: "the last one counts", text: "[www]\npm.max_children = 5\npm.max_children = 6\n", p: at(0, "www", "pm.max_children", "", "7"), want: "[www]\npm.max_children = 5\npm.max_children = 7\n", was: "6"},
	{name: "the line has moved", text: "; new\n[www]\npm.max_children = 5\n", p: at(2, "www", "pm.max_children", "5", "7"), want: "; new\n[www]\npm.max_children = 7\n", was: "5"},
	{name: "no value", text: "[www]\npm.max_children =\n", p: at(2, "", "pm.max_children", "", "7"), want: "[www]\npm.max_children = 7\n"},
	{name: "in a comment", text: "[www]\n;pm.max_children = 5\n", p: at(2, "", "pm.max_children", "5", "7"), err: "no pm.max_children stands there"},
	{name: "no such pool", text: pools, p: at(0, "none", "pm.max_children", "", "7"), err: "no section [none]"},
	{name: "no pool named", text: pools, p: at(0, "", "pm.max_requests", "", "7"), err: "no section is named"},
	{name: "same value", text: pools, p: at(5, "", "pm.max_children", "5", "5"), err: "already"},
}

func TestEditPHPFPM(t *testing.T) { runEdits(t, editPHPFPM, fpmCases) }

const mpm = "# mpm\n<IfModule mpm_event_module>\n\tServerLimit 16\n\tMaxRequestWorkers\t150\n</IfModule>\n<VirtualHost *:80>\n\tTimeout 5\n</VirtualHost>\nTimeout 300\n"

var apacheCases = []editCase{
	{name: "tabs", text: mpm, p: at(4, "", "MaxRequestWorkers", "150", "400"), want: strings.Replace(mpm, "150", "400", 1), was: "150"},
	{name: "any case", text: "maxrequestworkers 150\r\n", p: at(1, "", "MaxRequestWorkers", "150", "400"), want: "maxrequestworkers 400\r\n", was: "150"},
	{name: "old name", text: "MaxClients 150\n", p: at(1, "", "MaxRequestWorkers", "150", "400"), want: "MaxClients 400\n", was: "150"},
	{name: "quoted", text: "MaxRequestWorkers \"150\"\n", p: at(1, "", "MaxRequestWorkers", "150", "400"), want: "MaxRequestWorkers 400\n", was: "150"},
	{name: "continued", text: "MaxRequestWorkers \\\n   150\nTimeout 5\n", p: at(1, "", "MaxRequestWorkers", "150", "400"), want: "MaxRequestWorkers \\\n   400\nTimeout 5\n", was: "150"},
	{name: "a variable", text: "Define N 150\nMaxRequestWorkers ${N}\n", p: at(2, "", "MaxRequestWorkers", "", "400"), want: "Define N 150\nMaxRequestWorkers 400\n", was: "${N}"},
	{name: "added at the end", text: "Timeout 5\n", p: at(0, "", "MaxRequestWorkers", "", "400"), want: "Timeout 5\nMaxRequestWorkers 400\n"},
	{name: "added at the end, no line end", text: "Timeout 5", p: at(0, "", "MaxRequestWorkers", "", "400"), want: "Timeout 5\nMaxRequestWorkers 400"},
	{name: "at the top level, not in a host", text: mpm, p: at(0, "", "Timeout", "", "60"), want: strings.Replace(mpm, "300", "60", 1), was: "300"},
	{name: "in a host", text: mpm, p: at(0, "VirtualHost *:80", "Timeout", "", "60"), want: strings.Replace(mpm, "Timeout 5", "Timeout 60", 1), was: "5"},
	{name: "added in a condition", text: mpm, p: at(0, "IfModule mpm_event_module", "ThreadsPerChild", "", "64"), want: strings.Replace(mpm, "\tServer", "\tThreadsPerChild 64\n\tServer", 1)},
	{name: "in a comment", text: "# MaxRequestWorkers 150\n", p: at(1, "", "MaxRequestWorkers", "150", "400"), err: "no MaxRequestWorkers stands there"},
	{name: "same value", text: mpm, p: at(4, "", "MaxRequestWorkers", "150", "150"), err: "already"},
	{name: "no such section", text: mpm, p: at(0, "Proxy x", "Timeout", "", "150"), err: "no section"},
}

func TestEditApache(t *testing.T) { runEdits(t, editApache, apacheCases) }

const balancer = "global\n    log /dev/log local0\n\ndefaults\n    timeout client 5s\n\nfrontend web # the site\n    bind *:80 maxconn 10 # all\n    maxconn 100\n    default_backend app\n\nbackend app\n    server a 10.0.0.1:80 check maxconn 20\n    server b 10.0.0.2:80 check\n"

var haproxyCases = []editCase{
	{name: "of a frontend", text: balancer, p: at(9, "", "maxconn", "100", "400"), want: strings.Replace(balancer, "maxconn 100", "maxconn 400", 1), was: "100"},
	{name: "of a bind line", text: balancer, p: at(8, "", "maxconn", "10", "400"), want: strings.Replace(balancer, "maxconn 10 ", "maxconn 400 ", 1), was: "10"},
	{name: "of a server", text: balancer, p: at(13, "", "server maxconn", "20", "80"), want: strings.Replace(balancer, "maxconn 20", "maxconn 80", 1), was: "20"},
	{name: "of a server, moved", text: "# new\n" + balancer, p: at(13, "", "server maxconn", "20", "80"), want: "# new\n" + strings.Replace(balancer, "maxconn 20", "maxconn 80", 1), was: "20"},
	{name: "of a server that has none", text: balancer, p: at(14, "", "server maxconn", "", "80"), want: strings.Replace(balancer, ".2:80 check", ".2:80 check maxconn 80", 1)},
	{name: "added to global", text: balancer, p: at(0, "global", "maxconn", "", "4000"), want: strings.Replace(balancer, "global\n", "global\n    maxconn 4000\n", 1)},
	{name: "added to a frontend by its name", text: balancer, p: at(0, "web", "timeout client", "", "4"), err: "stands in no line yet"},
	{name: "added to a backend", text: balancer, p: at(0, "backend app", "fullconn", "", "4"), want: strings.Replace(balancer, "\nbackend app\n", "\nbackend app\n    fullconn 4\n", 1)},
	{name: "written in the section", text: balancer, p: at(0, "web", "maxconn", "", "4"), want: strings.Replace(balancer, "maxconn 100", "maxconn 4", 1), was: "100"},
	{name: "an empty section at the end", text: "global", p: at(0, "global", "maxconn", "", "4"), want: "global\n    maxconn 4"},
	{name: "CRLF, tabs, quotes", text: "global\r\n\tmaxconn\t\"50\"\r\n", p: at(2, "", "maxconn", "50", "60"), want: "global\r\n\tmaxconn\t60\r\n", was: "50"},
	{name: "in a comment", text: "global\n # maxconn 50\n", p: at(2, "", "maxconn", "50", "60"), err: "no maxconn stands there"},
	{name: "no such section", text: balancer, p: at(0, "peers", "maxconn", "", "4"), err: "no section"},
}

func TestEditHAProxy(t *testing.T) { runEdits(t, editHAProxy, haproxyCases) }

// fuzzLines holds for the servers whose lines are read word by word.
func fuzzLines(f *testing.F, cases []editCase, edit func(string, place) (edit, error), lines func(string) []directiveLine) {
	for _, c := range cases {
		f.Add(c.text, c.p.line, c.p.section, c.p.name)
	}
	f.Fuzz(func(t *testing.T, text string, line int, section, name string) {
		if !plainName.MatchString(name) || len(text) > 4096 || slices.Contains(haproxySections, name) {
			return
		}
		e, err := edit(text, at(line, section, name, "", "xyz"))
		if err != nil {
			return
		}
		out := around(t, text, e)
		if grown := len(lines(out)) - len(lines(text)); grown != 0 && grown != 1 {
			t.Fatalf("%q → %q: %d lines more", text, out, grown)
		}
		for _, l := range lines(out) {
			for _, w := range l.words[1:] {
				if w.text == "xyz" && l.n >= e.line-1 {
					return
				}
			}
		}
		t.Fatalf("%q → %q: not read", text, out)
	})
}

func FuzzEditApache(f *testing.F) { fuzzLines(f, apacheCases, editApache, apacheLines) }

// FuzzEditHAProxy: see fuzzLines.
func FuzzEditHAProxy(f *testing.F) { fuzzLines(f, haproxyCases, editHAProxy, haproxyLines) }

const uwsgiFile = "[uwsgi]\n; processes = 1\nworkers = 2\n\tthreads=4\r\n[other]\nprocesses = 9\n"

var uwsgiCases = []editCase{
	{name: "by its other name", text: uwsgiFile, p: at(3, "", "processes", "2", "8"), want: strings.Replace(uwsgiFile, "= 2", "= 8", 1), was: "2"},
	{name: "no blanks, CRLF", text: uwsgiFile, p: at(4, "", "threads", "4", "8"), want: strings.Replace(uwsgiFile, "=4", "=8", 1), was: "4"},
	{name: "of a section", text: uwsgiFile, p: at(0, "other", "processes", "", "8"), want: strings.Replace(uwsgiFile, "= 9", "= 8", 1), was: "9"},
	{name: "added", text: uwsgiFile, p: at(0, "uwsgi", "max-requests", "", "8"), want: strings.Replace(uwsgiFile, "[other]", "\tmax-requests = 8\n[other]", 1)},
	{name: "in a comment", text: uwsgiFile, p: at(2, "", "processes", "1", "8"), err: "no processes stands there"},
}

func TestEditUWSGI(t *testing.T) { runEdits(t, editUWSGI, uwsgiCases) }

// around says that an edit leaves all but its splices as it was.
func around(t *testing.T, text string, e edit) string {
	t.Helper()
	out := string(e.apply([]byte(text)))
	from, to := e.splices[0].begin, len(text)-e.splices[len(e.splices)-1].end
	if len(e.splices) == 1 && e.splices[0].end-from > 4096 {
		t.Fatalf("%d bytes are replaced", e.splices[0].end-from)
	}
	if len(out) < from+to || out[:from] != text[:from] || out[len(out)-to:] != text[len(text)-to:] {
		t.Fatalf("other bytes changed: %q → %q", text, out)
	}
	return out
}

// FuzzEditNginx: what was set is what is read, of the same directives.
func FuzzEditNginx(f *testing.F) {
	for _, c := range nginxCases {
		f.Add(c.text, c.p.line, c.p.section, c.p.name)
	}
	f.Fuzz(func(t *testing.T, text string, line int, section, name string) {
		if !plainName.MatchString(name) || strings.Contains(name, " ") || strings.HasSuffix(name, "_by_lua_block") || len(text) > 4096 {
			return
		}
		e, err := editNginx(text, at(line, section, name, "", "xyz"))
		if err != nil {
			return
		}
		out := around(t, text, e)
		was, _ := nginx.Places(text)
		ds, err := nginx.Places(out)
		if err != nil {
			t.Fatalf("%q → %q: %v", text, out, err)
		}
		grown := len(flatten(ds, nil)) - len(flatten(was, nil))
		if grown != 0 && grown != 1 {
			t.Fatalf("%q → %q: %d directives more", text, out, grown)
		}
		for _, d := range flatten(ds, nil) {
			for _, a := range d.Args {
				if d.Name == name && a == "xyz" || d.Name == "listen" && a == name+"=xyz" {
					return
				}
			}
		}
		t.Fatalf("%q → %q: not read", text, out)
	})
}

func FuzzEditPHPFPM(f *testing.F) {
	for _, c := range fpmCases {
		f.Add(c.text, c.p.line, c.p.section, c.p.name)
	}
	f.Fuzz(func(t *testing.T, text string, line int, section, name string) {
		if !plainName.MatchString(name) || strings.Contains(name, " ") || len(text) > 4096 || strings.ContainsAny(text, "\x00") {
			return
		}
		e, err := editPHPFPM(text, at(line, section, name, "", "xyz"))
		if err != nil {
			return
		}
		out := around(t, text, e)
		was, now := phpfpm.Lines(text), phpfpm.Lines(out)
		if grown := len(now) - len(was); grown != 0 && grown != 1 {
			t.Fatalf("%q → %q: %d lines more", text, out, grown)
		}
		for _, l := range now {
			if l.Key == name && l.Value == "xyz" && l.Number == e.line {
				return
			}
		}
		t.Fatalf("%q → %q: not read at line %d", text, out, e.line)
	})
}

func TestTorn(t *testing.T) {
	old, new := []byte("a 1;\nb 2;\n"), []byte("a 100;\nb 2;\n")
	for i := range new {
		text := append([]byte{}, new[:i]...)
		if i < len(old) {
			text = append(text, old[i:]...)
		}
		if !torn(text, old, new) || !torn(append([]byte{}, text...), new, old) {
			t.Errorf("%q is not seen to be torn", text)
		}
	}
	if torn([]byte("a 1;\nb 3;\n"), old, new) {
		t.Error("another's change is taken for a torn one")
	}
}
