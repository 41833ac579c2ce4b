package server

import (
	"bytes"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"text/template"
)

// values is what the configuration templates are filled with.
type values struct {
	Setup
	Plan
	Dir       string
	User      string // unprivileged user of workers and children
	Start     int    // php-fpm children at start
	ProxyAddr string // of the second nginx
}

// Clients keep their connections however fast the answers are. With the default
// of 1,000 requests, those that get fast errors would soon be gone from a full
// connection tracking table, whose entries they leave in TIME_WAIT.
const nginxConf = `user {{.User}};
worker_processes {{if and .TLS.On (not .TLS.HTTP2)}}1{{else}}2{{end}};
daemon off;
pid {{.Dir}}/nginx.pid;
error_log {{.Dir}}/nginx-error.log warn;

events {
	worker_connections {{.WorkerConnections}};
}

http {
	access_log {{.Dir}}/nginx-access.log combined;
	keepalive_requests 1000000;
{{- if .Workers.LimitKey}}
	limit_req_zone {{.Workers.LimitKey}} zone=booking:1m rate={{.Workers.LimitRate}}r/s;
	limit_req zone=booking burst=5 nodelay;
{{- end}}
{{- if .Workers.LimitConn}}
	limit_conn_zone $binary_remote_addr zone=clients:1m;
	limit_conn clients {{.Workers.LimitConn}};
{{- end}}
	client_body_temp_path {{.Dir}}/tmp/body;
	fastcgi_temp_path {{.Dir}}/tmp/fastcgi;
	proxy_temp_path {{.Dir}}/tmp/proxy;
	uwsgi_temp_path {{.Dir}}/tmp/uwsgi;
	scgi_temp_path {{.Dir}}/tmp/scgi;

	server {
		listen {{.ServerAddr}}:{{.FrontPort}} backlog={{.NginxBacklog}}{{.TLS.Nginx .Dir}};
{{- if .TLS.On}}
		ssl_protocols TLSv1.2{{if not .TLS.V12}} TLSv1.3{{end}};
{{- if or .TLS.Cache .TLS.None}}
		ssl_session_tickets off;
		ssl_session_cache {{if .TLS.None}}off{{else}}{{.TLS.Cache}}{{end}};
{{- end}}
{{- end}}
		root {{.Dir}}/www;
		error_page 500 502 503 504 /50x.html;
		location = /50x.html {
		}
{{- if eq .Kind 0}}
		location / {
			fastcgi_pass 127.0.0.1:{{.BackPort}};
			fastcgi_param SCRIPT_FILENAME $document_root/index.php;
			fastcgi_param REQUEST_METHOD $request_method;
			fastcgi_param QUERY_STRING $query_string;
			fastcgi_param SERVER_PROTOCOL $server_protocol;
		}
{{- else}}
		location / {
			proxy_pass http://{{.ProxyAddr}}:{{.BackPort}};
			proxy_http_version 1.1;
			proxy_set_header Connection "";
		}
{{- end}}
	}
}
`

const backendConf = `user {{.User}};
worker_processes 2;
daemon off;
pid {{.Dir}}/backend.pid;
error_log {{.Dir}}/backend-error.log warn;

events {
	worker_connections {{.WorkerConnections}};
}

http {
	access_log {{.Dir}}/backend-access.log combined;
	client_body_temp_path {{.Dir}}/tmp/body;
	fastcgi_temp_path {{.Dir}}/tmp/fastcgi;
	proxy_temp_path {{.Dir}}/tmp/proxy;
	uwsgi_temp_path {{.Dir}}/tmp/uwsgi;
	scgi_temp_path {{.Dir}}/tmp/scgi;

	server {
		listen {{.ProxyAddr}}:{{.BackPort}} backlog=4096;
		location / {
			return 200 "Hello World\n";
		}
	}
}
`

// The pool is dynamic as Debian's is: only then php-fpm warns when the limit
// is reached.
const fpmConf = `[global]
error_log = {{.Dir}}/php-fpm.log
log_level = notice
daemonize = no

[www]
user = {{.User}}
group = {{.User}}
listen = 127.0.0.1:{{.BackPort}}
listen.backlog = {{.FPMBacklog}}
pm = dynamic
pm.max_children = {{.Children}}
pm.start_servers = {{.Start}}
pm.min_spare_servers = 1
pm.max_spare_servers = {{.Start}}
{{- if .Workers.SlowLog}}
slowlog = {{.Dir}}/php-fpm-slow.log
request_slowlog_timeout = 1s
{{- end}}
`

// A page costs turns of a function, not time, so that a slower CPU takes longer
// for it.
const page = `<?php
{{- if .Sleep}}
usleep({{.Sleep.Microseconds}});
{{- end}}
{{- if .Workers.Each}}
function price_of_route() {
	usleep({{.Workers.Slow.Microseconds}});
}
if (mt_rand(1, {{.Workers.Each}}) == 1) {
	price_of_route();
}
{{- end}}
{{- if .Includes}}
foreach (require __DIR__ . "/vendor/files.php" as $file) {
	include $file;
}
{{- end}}
{{- if .Hot}}
function price_of_route($turns) {
	$total = 0;
	for ($leg = 0; $leg < $turns; $leg++) {
		$total += ($leg * 2654435761) % 97;
	}
	return $total;
}
price_of_route({{.Hot}});
{{- end}}
{{- if .Mixed}}
function render_seats($turns) {
	$html = "";
	for ($n = 0; $n < $turns; $n++) {
		$html .= "<td>" . ($n % 40) . "</td>";
	}
	return $html;
}
function sort_flights($turns) {
	$flights = [];
	for ($n = 0; $n < $turns; $n++) {
		$flights[] = $n * 7919 % $turns;
	}
	sort($flights);
	return $flights;
}
render_seats({{.Mixed}});
sort_flights({{.Mixed}});
json_decode(json_encode(range(1, {{.Mixed}})));
preg_match_all("/[A-Z]{3}-[0-9]+/", str_repeat("LHR-11 to FRA-7 ", {{.Mixed}}), $codes);
for ($n = 0; $n < {{.Mixed}}; $n++) {
	$digest = sha1("offer $n");
}
{{- end}}
{{- if .Workers.Code}}
{{.Workers.Code}}
request();
{{- end}}
echo "Hello World\n";
`

func (v values) write(name, text string) (string, error) {
	t, err := template.New(name).Parse(text)
	if err != nil {
		return "", err
	}
	var buf bytes.Buffer
	if err := t.Execute(&buf, v); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	path := filepath.Join(v.Dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, buf.Bytes(), 0o644)
}

// unprivileged is the user that Debian's servers run as, or the present one.
func unprivileged() string {
	if _, err := user.Lookup("www-data"); err == nil {
		return "www-data"
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "root"
}

// findFPM gives the newest php-fpm: Debian has its version in the name.
func findFPM() (string, error) {
	found, _ := filepath.Glob("/usr/sbin/php-fpm*")
	if len(found) == 0 {
		return "", fmt.Errorf("php-fpm: not installed")
	}
	return found[len(found)-1], nil
}
