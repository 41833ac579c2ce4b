package cause

import (
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// nginxOf returns the nginx instance behind a service, or nil.
func (v *View) nginxOf(s *Service) *observe.Nginx {
	for i := range v.Nginx {
		n := &v.Nginx[i]
		if slices.Contains(s.PIDs, n.PID) || slices.ContainsFunc(n.Workers, func(w int) bool { return slices.Contains(s.PIDs, w) }) {
			return n
		}
	}
	return nil
}

// nginxInScope says whether an nginx serves a service in view.
func (v *View) nginxInScope(n *observe.Nginx) bool {
	return slices.ContainsFunc(v.Services, func(s *Service) bool { return v.nginxOf(s) == n })
}

// poolOf returns the php-fpm pool behind a service, with its master, or nils.
func (v *View) poolOf(s *Service) (*observe.PHPFPM, *observe.FPMPool) {
	for i := range v.PHPFPM {
		m := &v.PHPFPM[i]
		if !slices.Contains(s.PIDs, m.PID) {
			continue
		}
		for j := range m.Pools {
			if listensAt(m.Pools[j].Listen.Value, s) {
				return m, &m.Pools[j]
			}
		}
	}
	return nil, nil
}

// listensAt compares a listen address as written in a configuration
// ("127.0.0.1:9000", "9000", "[::]:9000", "/run/php.sock") with a service.
func listensAt(listen string, s *Service) bool {
	if strings.HasPrefix(listen, "/") {
		return s.Path() == listen
	}
	port := listen[strings.LastIndexByte(listen, ':')+1:]
	n, err := strconv.Atoi(port)
	return err == nil && n == s.Port()
}

// serviceOfPool returns the service in view that a pool answers, or nil.
func (v *View) serviceOfPool(m *observe.PHPFPM, pool *observe.FPMPool) *Service {
	for _, s := range v.Services {
		if mm, p := v.poolOf(s); mm == m && p == pool {
			return s
		}
	}
	return nil
}

// logCount adds up an application's log lines of the given kinds, and the
// seconds in which they were seen.
func logCount(kinds []observe.LogKind, names ...string) (lines int64, example string) {
	for _, k := range kinds {
		if slices.Contains(names, k.Kind) {
			lines += k.Count
			if example == "" {
				example = k.Example
			}
		}
	}
	return lines, example
}

// statuses adds up the access log over the window.
func statuses(n *observe.Nginx) (sum observe.StatusSecond, all int64) {
	for _, s := range n.Statuses {
		sum.S2xx += s.S2xx
		sum.S3xx += s.S3xx
		sum.S4xx += s.S4xx
		sum.S499 += s.S499
		sum.S5xx += s.S5xx
	}
	return sum, sum.S2xx + sum.S3xx + sum.S4xx + sum.S499 + sum.S5xx
}

// missing says whether a kind of reading could not be had at all.
func (v *View) missing(kind observe.Kind) bool {
	return slices.ContainsFunc(v.Gaps, func(g observe.Gap) bool { return g.Kind == kind && !g.Partial && g.NetNS == 0 })
}

// Answers adds up the access log of the application behind a service. The log
// belongs to the instance: it is told for the service with most clients only
// when the instance listens at several.
func (v *View) Answers(s *Service) (observe.StatusSecond, int64) {
	n := v.nginxOf(s)
	if n == nil {
		return observe.StatusSecond{}, 0
	}
	best := s
	for _, other := range v.Services {
		if v.nginxOf(other) == n && other.opened() > best.opened() {
			best = other
		}
	}
	if best != s {
		return observe.StatusSecond{}, 0
	}
	return statuses(n)
}

// opened is how much a service was used: connections opened or open.
func (s *Service) opened() uint64 {
	var n uint64
	for _, l := range s.Listeners {
		n += l.Opened + uint64(l.Clients)
	}
	return n
}

// firstLine is the evidence of a log line as it was written.
func firstLine(example string) Evidence {
	const most = 160
	if len(example) > most {
		example = strings.ToValidUTF8(example[:most], "") + "…"
	}
	return Evidence{Fact: "the first such line", Value: example, Source: "log"}
}

// fromHost makes the file of a setting one that can be opened on the host: the
// application may run in a root of its own.
func fromHost(root string, s observe.Setting) observe.Setting {
	if strings.HasPrefix(s.File, "/") {
		s.File = root + s.File
	}
	return s
}
