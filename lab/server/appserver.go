package server

import (
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Kinds with a limit on workers.
const (
	Apache        Kind = 100 + iota // Apache httpd whose page waits
	UWSGI                           // uWSGI with a page in Python that waits
	NginxGunicorn                   // nginx, and gunicorn with a page that waits behind it
	HAProxyWeb                      // HAProxy, and Web behind it on loopback
	Tomcat                          // Tomcat with a servlet that waits
)

// healthyWorkers are enough for the clients of the lab.
var healthyWorkers = Workers{Max: 40, Work: 50 * time.Millisecond, MPM: "prefork", MaxConn: 4000}

// Workers is how a server with a limit on workers is set up: Apache, uWSGI,
// gunicorn, Tomcat, and HAProxy in front of the lab's own web server.
type Workers struct {
	Max      int           // workers, or threads
	Work     time.Duration // that each waits before it answers
	MPM      string        // Apache: "prefork", "event"
	Harakiri int           // uWSGI: after so many seconds a request is cut off; gunicorn: its timeout
	Slow     time.Duration // what one of SlowEvery requests waits instead of Work
	Each     int           // 0 = none

	MaxConn       int // HAProxy: maxconn of the process
	ServerMaxConn int // HAProxy: maxconn of the server behind
	ServerGone    bool

	SlowLog   bool   // php-fpm: of requests over a second
	LimitKey  string // nginx: limit_req by this key; empty = none
	LimitRate int    // … requests in a second
	KeepMB    int    // uWSGI, gunicorn: what a worker keeps, once it has answered
	LimitConn int    // nginx: limit_conn by the client's address; 0 = none

	// Code is what a request does besides, at php-fpm, uWSGI and gunicorn: lines of PHP
	// or Python that define request(), with fields of Plan in double braces.
	Code     string
	Database bool // … it asks a MariaDB on a machine of its own
	Asks     bool // … it asks a service in Python, which is as Setup.Asked says, at the port after BackPort
	Boxed    bool // php-fpm and gunicorn run in a container
}

// page starts what a request of Workers.Code needs, and fills in where that is.
func (s *starter) page() (err error) {
	if s.v.Workers.Code, err = s.filled(s.v.Workers.Code); err != nil {
		return err
	}
	if s.v.Workers.Database {
		if err := s.mariadb(); err != nil {
			return err
		}
	}
	if !s.v.Workers.Asks {
		return nil
	}
	path, err := s.program("booking.py")
	if err != nil {
		return err
	}
	_, err = s.asked(path)
	return err
}

// Slowly gives the seconds of Work as programs have them.
func (w Workers) Slowly() string { return strconv.FormatFloat(w.Work.Seconds(), 'f', -1, 64) }

// SlowSeconds is the same of Slow.
func (w Workers) SlowSeconds() string { return strconv.FormatFloat(w.Slow.Seconds(), 'f', -1, 64) }

const apacheConf = `ServerRoot {{.Dir}}
ServerName lab
PidFile {{.Dir}}/apache.pid
User {{.User}}
Group {{.User}}
LoadModule mpm_{{.Workers.MPM}}_module /usr/lib/apache2/modules/mod_mpm_{{.Workers.MPM}}.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule lua_module /usr/lib/apache2/modules/mod_lua.so
Listen {{.ServerAddr}}:{{.FrontPort}}
ListenBacklog {{.AppBacklog}}
ErrorLog {{.Dir}}/apache-error.log
<IfModule mpm_prefork_module>
	StartServers {{.Workers.Max}}
	MinSpareServers 1
	MaxSpareServers {{.Workers.Max}}
	ServerLimit {{.Workers.Max}}
	MaxRequestWorkers {{.Workers.Max}}
</IfModule>
<IfModule mpm_event_module>
	StartServers 2
	ThreadsPerChild {{.Threads}}
	ThreadLimit {{.Threads}}
	MinSpareThreads 1
	MaxSpareThreads {{.Workers.Max}}
	MaxRequestWorkers {{.Workers.Max}}
</IfModule>
DocumentRoot {{.Dir}}/www
<Location />
	Require all granted
</Location>
LuaMapHandler ^/ {{.Dir}}/booking.lua
`

// bookingLua waits as for a query.
const bookingLua = `local socket = require("socket")

function handle(r)
	socket.sleep({{.Workers.Slowly}})
	r.content_type = "text/plain"
	r:puts("Hello World\n")
	return apache2.OK
end
`

// Threads is how many each of Apache's two processes has.
func (v values) Threads() int { return max(1, v.Workers.Max/2) }

func (s *starter) apache() error {
	for name, text := range map[string]string{"booking.lua": bookingLua, "www/index.html": "Hello World\n"} {
		if _, err := s.v.write(name, text); err != nil {
			return err
		}
	}
	conf, err := s.v.write("apache.conf", apacheConf)
	if err != nil {
		return err
	}
	return s.run(s.v.FrontPort, "apache2", "apache2", "-f", conf, "-D", "FOREGROUND")
}

// ClosesItself reports whether the page has to say that the connection ends:
// uWSGI's own HTTP ends it without a word.
func (v values) ClosesItself() bool { return v.Kind == UWSGI }

// bookingWSGI waits as for a query, in a way that no part of it computes.
const bookingWSGI = `import itertools
import time

requests = itertools.count(1)
kept = []
{{- if .Workers.Code}}
{{.Workers.Code}}
{{- end}}


def application(environ, start_response):
{{- if .Workers.KeepMB}}
    if not kept:
        kept.append(bytearray(b"x") * ({{.Workers.KeepMB}} << 20))
{{- end}}
{{- if .Workers.Code}}
    request()
{{- end}}
{{- if .Workers.Each}}
    time.sleep({{.Workers.SlowSeconds}} if next(requests) % {{.Workers.Each}} == 0 else {{.Workers.Slowly}})
{{- else if .Workers.Work}}
    time.sleep({{.Workers.Slowly}})
{{- end}}
    start_response("200 OK", [("Content-Length", "12"){{if .ClosesItself}}, ("Connection", "close"){{end}}])
    return [b"Hello World\n"]
`

const uwsgiConf = `[uwsgi]
plugin = python3
master = true
http-socket = {{.ServerAddr}}:{{.FrontPort}}
listen = {{.AppBacklog}}
processes = {{.Workers.Max}}
{{- if .Workers.Harakiri}}
harakiri = {{.Workers.Harakiri}}
{{- end}}
uid = {{.User}}
gid = {{.User}}
chdir = {{.Dir}}
wsgi-file = {{.Dir}}/booking_wsgi.py
logto = {{.Dir}}/uwsgi.log
disable-logging = true
die-on-term = true
`

func (s *starter) uwsgi() error {
	if err := s.page(); err != nil {
		return err
	}
	if _, err := s.v.write("booking_wsgi.py", bookingWSGI); err != nil {
		return err
	}
	conf, err := s.v.write("uwsgi.ini", uwsgiConf)
	if err != nil {
		return err
	}
	// It writes its log as the user it becomes.
	if err := os.WriteFile(filepath.Join(s.box.Dir, "uwsgi.log"), nil, 0o666); err != nil {
		return err
	}
	return s.run(s.v.FrontPort, "uwsgi", "uwsgi", "--ini", conf)
}

const gunicornConf = `bind = "{{.ProxyAddr}}:{{.BackPort}}"
backlog = {{.AppBacklog}}
workers = {{.Workers.Max}}
preload_app = True
{{- if .Workers.Harakiri}}
timeout = {{.Workers.Harakiri}}
{{- end}}
errorlog = "{{.Dir}}/gunicorn.log"
`

// nginxGunicorn is nginx with gunicorn behind it.
func (s *starter) nginxGunicorn() error {
	if err := s.page(); err != nil {
		return err
	}
	if _, err := s.v.write("booking_wsgi.py", bookingWSGI); err != nil {
		return err
	}
	conf, err := s.v.write("gunicorn.conf.py", gunicornConf)
	if err != nil {
		return err
	}
	if err := s.runBoxed(s.v.BackPort, "gunicorn", python, "/usr/bin/gunicorn", "-c", conf, "--chdir", s.box.Dir, "booking_wsgi:application"); err != nil {
		return err
	}
	return s.front()
}

const haproxyConf = `global
	maxconn {{.Workers.MaxConn}}
	stats socket {{.Dir}}/haproxy.sock mode 600 level user
defaults
	mode http
	timeout connect 5s
	timeout client 30s
	timeout server 30s
	timeout queue 30s
	retries 0
frontend booking
	bind {{.ServerAddr}}:{{.FrontPort}}
	backlog {{.AppBacklog}}
	default_backend engines
backend engines
	server engine1 127.0.0.1:{{.BackPort}}{{if .Workers.ServerMaxConn}} maxconn {{.Workers.ServerMaxConn}}{{end}}
`

// haproxyWeb is HAProxy with the lab's own web server behind it.
func (s *starter) haproxyWeb() error {
	if !s.v.Workers.ServerGone {
		own := s.v.Web
		own.Work = s.v.Workers.Work
		if err := s.startWeb(s.box.Server, "booking-engine", webSpec{Service: own, Addr: "127.0.0.1", Port: s.v.BackPort, Backlog: s.v.AppBacklog}); err != nil {
			return err
		}
	}
	conf, err := s.v.write("haproxy.cfg", haproxyConf)
	if err != nil {
		return err
	}
	return s.run(s.v.FrontPort, "haproxy", "haproxy", "-W", "-db", "-f", conf)
}
