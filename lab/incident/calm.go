package incident

import "strings"

// calm is the incidents, next to those that are Light, that need hardly any CPU as
// they are injected and under load: an eighth of two CPUs at most, of which slowray's
// part is not. None of them changes anything of the host.
var calm = map[string]bool{
	"mariadb-lock-wait": true, "postgres-lock-wait": true, "database-pool": true,
	"database-idle-connections": true, "database-nightly-report": true,
	"php-fpm-children": true, "cgroup-io-throttled": true, "page-cache-thrash": true,
	"container-within-limit": true, "cache-up-to-limit": true,

	"firewall-drop": true, "mtu-mismatch": true, "qdisc-drop": true, "rp-filter-drop": true, "neighbour-unresolved": true,
	"lost-response-segment": true, "network-loss-driver": true, "delay-crossed-twice": true, "syn-lost": true,
	"nagle-delayed-ack": true, "stall-mid-response": true, "event-loop-blocked": true, "accept-queue-wait": true,
	"slow-receiver": true, "slow-dependency": true, "log-collector-stalled": true, "redis-fsync": true,

	"resets-after-answers": true, "firewall-scan": true, "far-clients": true, "late-acks": true, "long-poll": true, "waves-answered": true,
	"pipe-read": true, "idle-pool": true, "idle-pool-go": true, "mutex-often-go": true, "disk-nearly-full": true,

	"tomcat-threads": true, "haproxy-maxconn": true, "haproxy-server-queue": true,
	"apache-warns-only": true, "event-keep-alive": true, "uwsgi-all-busy": true,

	"healthy-idle": true, "request-waves": true, "uwsgi-harakiri": true,
}

// Calm says whether the incident may be injected next to others that are as Quick: it
// needs hardly any CPU as it is injected, changes nothing of the host, and is looked
// at as all of them are. A tracer takes a CPU.
func (i Incident) Calm() bool {
	alike := i.Lead == 0 && !i.Stepped && !i.EndInside && len(i.Phases) == 0
	return alike && (calm[strings.TrimSuffix(i.Name, tlsSuffix)] || i.Light && i.Name != "tracer-attached")
}
