package server

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const proxyHopConf = `daemon off;
master_process on;
worker_processes 1;
user {{.User}};
pid {{.Dir}}/{{.Name}}.pid;
error_log {{.Dir}}/{{.Name}}-error.log warn;
worker_rlimit_nofile 20000;
events { worker_connections {{.Conns}}; }
http {
	access_log {{.Dir}}/{{.Name}}-access.log;
	client_body_temp_path {{.Dir}}/tmp/{{.Name}}-body;
	proxy_temp_path {{.Dir}}/tmp/{{.Name}}-proxy;
	fastcgi_temp_path {{.Dir}}/tmp/{{.Name}}-fastcgi;
	uwsgi_temp_path {{.Dir}}/tmp/{{.Name}}-uwsgi;
	scgi_temp_path {{.Dir}}/tmp/{{.Name}}-scgi;
	keepalive_requests 1000000;
	upstream next { server {{.Behind}}; keepalive 256; }
	server {
		listen {{.Addr}}:{{.Port}} backlog={{.Backlog}}{{.TLS}};
		location / {
			proxy_pass http://next;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_read_timeout {{.Timeout}}s;
		}
	}
}
`

// proxyHop is an nginx that passes requests on.
func (s *starter) proxyHop(n int, behind string) (args, env []string, err error) {
	h := &s.v.Hops[n]
	if err := os.MkdirAll(filepath.Join(s.box.Dir, "tmp"), 0o755); err != nil {
		return nil, nil, err
	}
	conns, backlog, timeout := h.Children, h.Backlog, int(h.Timeout.Seconds())
	if conns == 0 {
		conns = 1024
	}
	if backlog == 0 {
		backlog = 1024
	}
	if timeout == 0 {
		timeout = 10
	}
	secure := ""
	if n == 0 { // clients talk to it
		if _, err := s.tlsFile(); err != nil {
			return nil, nil, err
		}
		secure = s.v.TLS.Nginx(s.box.Dir)
	}
	text := strings.NewReplacer("{{.User}}", s.v.User, "{{.Dir}}", s.box.Dir, "{{.Name}}", h.Name, "{{.Conns}}", strconv.Itoa(conns),
		"{{.Behind}}", behind, "{{.Addr}}", s.hopAddr(n), "{{.Port}}", strconv.Itoa(h.Port), "{{.Backlog}}", strconv.Itoa(backlog),
		"{{.TLS}}", secure, "{{.Timeout}}", strconv.Itoa(timeout)).Replace(proxyHopConf)
	conf := filepath.Join(s.box.Dir, h.Name+".conf")
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		return nil, nil, err
	}
	nginx := "/usr/sbin/nginx"
	if h.Renamed {
		own := filepath.Join(s.box.Dir, h.Name)
		if err := os.Symlink(nginx, own); err != nil && !os.IsExist(err) {
			return nil, nil, err
		}
		nginx = own
	}
	return []string{nginx, "-c", conf}, nil, nil
}
