package victorialogs

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
)

// Scheme is what the URL of a VictoriaLogs begins with.
const Scheme = "victorialogs://"

// PasswordEnv is where a password is taken from when the URL names no file of it.
const PasswordEnv = "SLOWRAY_VICTORIALOGS_PASSWORD"

const defaultPort = "9428"

// config is where a VictoriaLogs is.
type config struct {
	fronts           []string // http(s)://host:port, without a path
	path             string   // before /insert and /select, as of a proxy
	user, password   string
	account, project string // tenant
}

// parse reads victorialogs://[user@]front1:9428,front2:9428[/path]?secure=1&
// password-file=F&account=N&project=N. Errors never show what may be a password.
func parse(text string) (*config, error) {
	rest, ok := strings.CutPrefix(text, Scheme)
	if !ok {
		return nil, errors.New("a URL of VictoriaLogs begins with " + Scheme)
	}
	rest, query, _ := strings.Cut(rest, "?")
	hosts, path, _ := strings.Cut(rest, "/")
	c := &config{password: os.Getenv(PasswordEnv)}
	if path = strings.Trim(path, "/"); path != "" {
		c.path = "/" + path
	}
	if at := strings.LastIndexByte(hosts, '@'); at >= 0 {
		user, err := url.PathUnescape(hosts[:at])
		if err != nil || strings.Contains(hosts[:at], ":") {
			return nil, errors.New("a URL takes no password: give password-file=FILE, or set " + PasswordEnv)
		}
		c.user, hosts = user, hosts[at+1:]
	}
	params, err := url.ParseQuery(query)
	if err != nil {
		return nil, errors.New("what comes after ? cannot be read")
	}
	scheme := "http://"
	for name := range params {
		value := params.Get(name)
		switch name {
		case "secure":
			if value == "1" {
				scheme = "https://"
			} else if value != "0" {
				return nil, errors.New("secure: must be 0 or 1")
			}
		case "password-file":
			secret, err := os.ReadFile(value)
			if err != nil {
				return nil, fmt.Errorf("password-file: %w", err)
			}
			c.password = strings.TrimRight(string(secret), "\r\n")
		case "account", "project":
			if value == "" || strings.Trim(value, "0123456789") != "" || len(value) > 10 {
				return nil, errors.New(name + ": must be a number")
			}
			if name == "account" {
				c.account = value
			} else {
				c.project = value
			}
		default:
			return nil, fmt.Errorf("%q: is not known (secure, password-file, account, project are)", name)
		}
	}
	for host := range strings.SplitSeq(hosts, ",") {
		if host == "" {
			return nil, errors.New("names no host")
		}
		name, port, err := net.SplitHostPort(host)
		if err != nil {
			name, port = strings.Trim(host, "[]"), defaultPort
		}
		if name == "" || strings.Trim(port, "0123456789") != "" || port == "" || strings.ContainsAny(name, " @/\\") {
			return nil, errors.New("host: must be name:port")
		}
		c.fronts = append(c.fronts, scheme+net.JoinHostPort(name, port))
	}
	return c, nil
}
