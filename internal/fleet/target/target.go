// Package target opens what --to names: it is the one place that knows which scheme
// of a URL is which target.
package target

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/clickhouse"
	"github.com/slowray/slowray/internal/fleet/otlp"
	"github.com/slowray/slowray/internal/fleet/ship"
	"github.com/slowray/slowray/internal/fleet/victorialogs"
)

// schemes are the targets there are.
var schemes = []struct {
	prefix string
	shape  string // of a URL, for who gave another one
	open   func(url string) (fleet.Target, error)
	advice func(error) string // what to do about an error; nil: nothing is known
}{
	{clickhouse.Scheme, "clickhouse://host:8123/database", func(url string) (fleet.Target, error) { return clickhouse.Open(url) }, clickhouse.Advice},
	{victorialogs.Scheme, "victorialogs://host:9428", func(url string) (fleet.Target, error) { return victorialogs.Open(url) }, nil},
	{otlp.Prefix, "otlp+http://host:4318 or otlp+grpc://host:4317", func(url string) (fleet.Target, error) { return otlp.Open(url) }, nil},
}

// Open opens a target; nothing is asked before the first use. The error never shows
// what may be a password.
func Open(url string) (ship.Destination, error) {
	var known []string
	for _, s := range schemes {
		known = append(known, s.shape)
		if !strings.HasPrefix(url, s.prefix) {
			continue
		}
		d := ship.Destination{Name: nameOf(url), Title: titleOf(url), Advice: s.advice}
		var err error
		if d.Target, err = s.open(url); err != nil {
			return d, fmt.Errorf("%s: %w", d.Title, err)
		}
		return d, nil
	}
	given := "nothing"
	if url != "" {
		given = strconv.Quote(titleOf(url))
	}
	if !strings.Contains(url, "://") {
		given += ", which is no URL,"
	}
	return ship.Destination{}, fmt.Errorf("%s names no target: give %s", given, strings.Join(known, ", "))
}

// parts are the scheme, the hosts and the path of a URL.
func parts(url string) (scheme, hosts, path string) {
	scheme, rest, _ := strings.Cut(url, "://")
	rest, _, _ = strings.Cut(rest, "?")
	rest, _, _ = strings.Cut(rest, "#")
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		rest = rest[at+1:]
	}
	hosts, path, _ = strings.Cut(rest, "/")
	return scheme, hosts, strings.Trim(path, "/")
}

// titleOf is a URL without user, password and parameters.
func titleOf(url string) string {
	scheme, hosts, path := parts(url)
	if path != "" {
		hosts += "/" + path
	}
	return scheme + "://" + hosts
}

// nameOf is the name of a target's directory: that of its scheme, its first host and
// its path, so that further hosts may be added.
func nameOf(url string) string {
	scheme, hosts, path := parts(url)
	if end := strings.IndexAny(hosts, ",|;"); end >= 0 {
		hosts = hosts[:end]
	}
	name := []byte(scheme + "-" + hosts)
	if path != "" {
		name = append(name, "-"+path...)
	}
	for i, c := range name {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && c != '-' && c != '.' {
			name[i] = '_'
		}
	}
	const most = 200
	return string(name[:min(len(name), most)])
}
