package cause

import (
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// findApps gives each service the nginx, or the php-fpm pool, behind it: of
// several the first.
func (v *View) findApps() {
	v.nginxIn, v.proxies = map[uint64][]*observe.Nginx{}, map[int]bool{}
	nginx, fpm := map[int]int{}, map[int][]int{} // places in Nginx and PHPFPM, by process
	for i := range v.Nginx {
		for _, pid := range append([]int{v.Nginx[i].PID}, v.Nginx[i].Workers...) {
			if _, known := nginx[pid]; !known {
				nginx[pid] = i
			}
		}
	}
	for i := range v.PHPFPM {
		fpm[v.PHPFPM[i].PID] = append(fpm[v.PHPFPM[i].PID], i)
	}
	for i := range v.Nginx {
		n := &v.Nginx[i]
		v.nginxIn[n.NetNS] = append(v.nginxIn[n.NetNS], n)
	}
	for i := range v.AppServers {
		if a := &v.AppServers[i]; a.Kind == observe.KindHAProxy {
			v.proxies[v.Master(a.PID)] = true
		}
	}
	v.nginxServes, v.poolServes = map[*observe.Nginx][]*Service{}, map[*observe.FPMPool]*Service{}
	for _, s := range v.Services {
		first := len(v.Nginx)
		var masters []int
		for _, pid := range s.PIDs {
			if i, known := nginx[pid]; known {
				first = min(first, i)
			}
			masters = append(masters, fpm[pid]...)
		}
		if first < len(v.Nginx) {
			s.nginx = &v.Nginx[first]
			v.nginxServes[s.nginx] = append(v.nginxServes[s.nginx], s)
		}
		slices.Sort(masters)
		for _, i := range masters {
			m := &v.PHPFPM[i]
			if j := slices.IndexFunc(m.Pools, func(p observe.FPMPool) bool { return listensAt(p.Listen.Value, s) }); j >= 0 {
				s.fpm, s.pool = m, &m.Pools[j]
				break
			}
		}
		if s.pool != nil && v.poolServes[s.pool] == nil {
			v.poolServes[s.pool] = s
		}
	}
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
// belongs to the instance: it is reported for the service with most clients only
// when the instance listens at several.
func (v *View) Answers(s *Service) (observe.StatusSecond, int64) {
	if s.nginx == nil || slices.ContainsFunc(v.nginxServes[s.nginx], func(other *Service) bool { return other.opened() > s.opened() }) {
		return observe.StatusSecond{}, 0
	}
	return statuses(s.nginx)
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
