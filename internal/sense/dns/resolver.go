package dns

import (
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
)

// resolvConf is where the C library looks (resolv.conf(5)).
const resolvConf = "/etc/resolv.conf"

// ReadResolver reads resolv.conf as a process sees it whose root is at dir, a
// directory as "/proc/PID/root". The error is that of the file, or of the budget.
func ReadResolver(b *budget.Budget, dir string) (*observe.Resolver, error) {
	text, _, err := rootfs.At(dir, b).ReadFile(resolvConf, 64<<10)
	if err != nil {
		return nil, err
	}
	return parseResolver(b, text)
}

// parseResolver reads resolv.conf(5) with the C library's defaults. Of several
// search and domain lines the last counts; of nameservers the first three do.
func parseResolver(b *budget.Budget, text string) (*observe.Resolver, error) {
	r := &observe.Resolver{File: resolvConf, NDots: 1, TimeoutSeconds: 5, Attempts: 2}
	for line := range strings.Lines(text) {
		if err := b.Node(); err != nil {
			return nil, err
		}
		f := strings.Fields(line)
		if len(f) < 2 || f[0][0] == '#' || f[0][0] == ';' {
			continue
		}
		switch f[0] {
		case "nameserver":
			if len(r.NameServers) < 3 {
				r.NameServers = append(r.NameServers, clip(f[1]))
			}
		case "search", "domain":
			r.Search = nil
			for _, domain := range f[1:min(len(f), 33)] {
				r.Search = append(r.Search, clip(strings.TrimSuffix(domain, ".")))
			}
		case "options":
			for _, option := range f[1:] {
				setOption(r, option)
			}
		}
	}
	return r, nil
}

func setOption(r *observe.Resolver, option string) {
	name, value, _ := strings.Cut(option, ":")
	n, err := strconv.Atoi(value)
	switch {
	case name == "rotate":
		r.Rotate = true
	case err != nil || n < 0:
	case name == "ndots":
		r.NDots = min(n, 15) // RES_MAXNDOTS
	case name == "timeout":
		r.TimeoutSeconds = min(n, 30) // RES_MAXRETRANS
	case name == "attempts":
		r.Attempts = min(n, 5) // RES_MAXRETRY
	}
}

// clip bounds a word, and leaves what can be printed of it.
func clip(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, s)
	return s[:min(len(s), 255)]
}
