package page_test

import (
	"fmt"
	"slices"
)

// What the story's server tells besides figures over time.

var ruledOut = []object{
	{"cause": "conntrack-full", "because": "2,114 of 262,144 entries at most; no insert failed"}, {"cause": "accept-queue-overflow", "because": "no queue was over half of its limit; ListenOverflows stood still"},
	{"cause": "ephemeral-ports-exhausted", "because": "1,240 of 28,232 ports in use to the busiest destination"}, {"cause": "cpu-saturated", "because": "41 % of 8 CPUs at most; threads of slow requests were ready for 0.9 ms"},
}

var chain = object{"culprit": true, "deadlock": false, "threads": []int{2231, 2232}, "count": 14, "end": "remote", "text": "203.0.113.44:24224 does not read what it is sent", "back_to": -1, "sure": false, "branch": 0,
	"hops": []object{
		{"process": object{"pid": 2210, "comm": "php-fpm8.2", "container": "9f2c1e77ab01", "container_name": "shop-php"}, "tid": 2231, "comm": "php-fpm8.2", "state": "S", "syscall": "write", "kind": "pipe", "wants": "room", "object": "fd 2 → pipe:[48123]", "detail": "65,536 of 65,536 bytes not read", "at_least_ns": int64(2.31e9)},
		{"process": object{"pid": 1500, "comm": "containerd-shim"}, "tid": 1511, "comm": "containerd-shim", "state": "S", "syscall": "write", "how": "peer of the fd", "why": "reads the pipe:", "kind": "unix", "wants": "room", "object": "fd 11 → /run/fluent.sock", "at_least_ns": int64(2.3e9)},
		{"process": object{"pid": 1122, "comm": "fluent-bit"}, "tid": 1130, "comm": "flb-out-forward", "state": "S", "syscall": "sendto", "how": "peer of the fd", "why": "reads the socket:", "kind": "tcp", "wants": "room", "object": "192.0.2.10:51844 → 203.0.113.44:24224", "detail": "117,440 bytes not acknowledged", "remote": "203.0.113.44:24224", "at_least_ns": int64(2.3e9), "quiet_ns": int64(23e9)},
	}}

var waitGraph = object{
	"nodes": []object{
		{"id": "p1812", "kind": "process", "title": "nginx", "pid": 1812, "text": "answers 192.0.2.10:443"}, {"id": "t9000", "kind": "tcp", "title": "127.0.0.1:9000"},
		{"id": "p2210", "kind": "process", "title": "php-fpm8.2", "pid": 2210, "container": "shop-php", "text": "14 of 40 children wait alike"}, {"id": "p3107", "kind": "process", "title": "node", "pid": 3107, "container": "booking"},
		{"id": "i48123", "kind": "pipe", "title": "pipe:[48123]", "detail": "full: 65,536 bytes not read"}, {"id": "i51200", "kind": "pipe", "title": "pipe:[51200]", "detail": "full"},
		{"id": "p1500", "kind": "process", "title": "containerd-shim", "pid": 1500}, {"id": "u1", "kind": "unix", "title": "/run/fluent.sock"}, {"id": "p1122", "kind": "process", "title": "fluent-bit", "pid": 1122},
		{"id": "r1", "kind": "remote", "title": "203.0.113.44:24224", "culprit": true, "text": "does not read what it is sent: nothing passed for 23 s"},
		{"id": "a1", "kind": "thread", "title": "stock-sync", "pid": 4401, "text": "holds lock A, wants lock B"}, {"id": "a2", "kind": "thread", "title": "stock-audit", "pid": 4402, "text": "holds lock B, wants lock A"},
	},
	"edges": []object{
		{"from": "p1812", "to": "t9000", "seconds": 96.2, "how": "peer of the fd", "text": "waits for the answer to its calls"}, {"from": "t9000", "to": "p2210", "seconds": 96.2, "text": "is answered by"},
		{"from": "p2210", "to": "i48123", "seconds": 412.5, "text": "write(2): the pipe is full"}, {"from": "i48123", "to": "p1500", "seconds": 412.5, "how": "peer of the fd", "text": "is read by"},
		{"from": "p3107", "to": "i51200", "seconds": 38, "text": "write(1): the pipe is full"}, {"from": "i51200", "to": "p1500", "seconds": 38, "how": "peer of the fd", "text": "is read by"},
		{"from": "p1500", "to": "u1", "seconds": 440, "text": "write(11)"}, {"from": "u1", "to": "p1122", "seconds": 440, "how": "peer of the fd", "text": "is read by"},
		{"from": "p1122", "to": "r1", "seconds": 440, "how": "peer of the fd", "text": "sendto: 117,440 bytes not acknowledged"},
		{"from": "a1", "to": "a2", "seconds": 12, "how": "owner read", "text": "waits for a lock that stock-audit holds"}, {"from": "a2", "to": "a1", "seconds": 12, "how": "owner read", "text": "waits for a lock that stock-sync holds"},
	},
	"chains": []object{
		{"nodes": []string{"p2210", "i48123", "p1500", "u1", "p1122", "r1"}, "seconds": 412.5, "text": "203.0.113.44:24224 does not read what it is sent", "cycle": false},
		{"nodes": []string{"p1812", "t9000", "p2210", "i48123", "p1500", "u1", "p1122", "r1"}, "seconds": 96.2, "text": "the same, through php-fpm", "cycle": false},
		{"nodes": []string{"p3107", "i51200", "p1500", "u1", "p1122", "r1"}, "seconds": 38, "text": "the same, through node", "cycle": false},
		{"nodes": []string{"a1", "a2"}, "seconds": 12, "text": "each holds the lock that the other one wants", "cycle": true, "deadlock": true},
	}, "losses": []object{{"what": "waits that were over before they could be followed", "count": 31}}}

var drops = object{"layers": []object{
	{"layer": "firewall", "packets": 9482, "rows": []object{{"what": "iptables OUTPUT #3: -m statistic --probability 0.03 -j DROP", "where": "to 198.51.100.7:3306", "source": "skb:kfree_skb NETFILTER_DROP", "packets": 9482}}},
	{"layer": "qdisc", "packets": 214, "rows": []object{{"what": "fq_codel 8002: on eth0, limit reached", "where": "eth0, out", "source": "tc -s qdisc", "packets": 214}}},
	{"layer": "no-socket", "packets": 36, "rows": []object{{"what": "NO_SOCKET", "where": "no-socket at lo", "source": "skb:kfree_skb", "packets": 36, "flows": []object{{"from": object{"addr": "203.0.113.9", "port": 41022}, "to": object{"addr": "192.0.2.10", "port": 8081}, "segments": 36}}}}},
}, "clean": []string{"nic", "softnet-backlog", "conntrack", "accept-queue", "syn-queue", "socket-buffer"}, "losses": []object{}}

func sample(median float64, n int) object {
	blocks := make([]float64, n)
	for i := range blocks {
		blocks[i] = median * (0.94 + 0.12*chance("block", i, median))
	}
	slices.Sort(blocks)
	return object{"blocks": blocks, "median": median}
}

var proof = object{"schema": "slowray.prove/1", "at": noon - 240, "host": "shop-01", "cause": "firewall-drop", "title": "A firewall rule drops packets that requests wait for", "found": true, "service": object{"port": 443, "pid": 1812, "comm": "nginx", "requests_per_s": 412}, "applied": true,
	"steps": []object{{"change": object{}, "was": "rule 3 of OUTPUT", "do": []string{"iptables -D OUTPUT 3"}, "undo": []string{"iptables -I OUTPUT 3 -p tcp --dport 3306 -m statistic --mode random --probability 0.03 -j DROP"}}},
	"result": object{"verdict": "proved", "why": "p99 fell from 214 ms to 27 ms with the change, and rose again without it; so great a difference comes by chance once in 924 times.", "rounds": 1, "undone": true, "phases": []object{},
		"effects": []object{
			{"metric": "p99 of good requests", "unit": "ns", "better": "lower", "before": sample(214e6, 6), "with": sample(27e6, 6), "after": sample(211e6, 6), "ratio": 0.127, "low": 0.12, "high": 0.14, "confidence": 0.95, "p": 0.001, "outcome": "better"},
			{"metric": "good requests", "unit": "1/s", "better": "higher", "before": sample(318, 6), "with": sample(411, 6), "after": sample(322, 6), "ratio": 1.29, "low": 1.2, "high": 1.4, "confidence": 0.95, "p": 0.001, "outcome": "better"}}}}

var tuned = object{"schema": "slowray.tune/1", "at": noon - 1800, "service": "nginx :80", "load": "wrk -c 1000 http://127.0.0.1", "applied": true, "ending": "healthy", "text": "Good answers went from 189 to 9,700 a second in three steps.",
	"first": object{"blocks": 5, "good_per_s": 189, "errors_per_s": 4100, "p50_ms": 900, "p99_ms": 3100}, "last": object{"blocks": 5, "good_per_s": 9700, "errors_per_s": 0, "p50_ms": 100, "p99_ms": 125},
	"steps": []object{{"cause": "conntrack-full", "title": "The connection tracking table is full", "changes": []object{{"kind": "sysctl", "text": "nf_conntrack_max from 200 to 262144", "value": "262144"}}, "verdict": "proved", "text": "", "kept": true,
		"before": object{"good_per_s": 189}, "with": object{"good_per_s": 5400}, "after": object{"good_per_s": 201}},
		{"cause": "fin-timeout", "title": "Connections linger", "changes": []object{}, "verdict": "no-effect", "text": "no difference that chance would not make", "kept": false, "before": object{"good_per_s": 5400}, "with": object{"good_per_s": 5390}, "after": object{"good_per_s": 5410}}},
	"left": []object{{"cause": "time-wait", "title": "Ports wait", "because": "it does no harm", "fix": ""}}}

func differences(from, to int64) []object {
	if from >= lossTo || to <= lossFrom {
		return []object{}
	}
	return []object{
		{"dimension": "ledger part", "name": "server.call", "unit": "us", "inside": 37400, "outside": 8900, "ratio": 4.2, "text": "A request waits 37.4 ms for calls, 4.2 times as long as in the rest"},
		{"dimension": "ledger part", "name": "retrans", "unit": "us", "inside": 10800, "outside": 0, "ratio": 0, "text": "Retransmission takes 10.8 ms of a request, and nothing in the rest"},
		{"dimension": "status", "name": "504", "unit": "share", "inside": 0.004, "outside": 0.0001, "ratio": 40, "text": "0.4 % of the answers are 504, and hardly any in the rest"},
		{"dimension": "peer", "name": "198.51.100.7:3306", "unit": "share", "inside": 0.81, "outside": 0.34, "ratio": 2.4, "text": "81 % of the time goes to calls of 198.51.100.7:3306, instead of 34 %"},
		{"dimension": "stack", "name": "poll_schedule_timeout", "unit": "share", "inside": 0.62, "outside": 0.21, "ratio": 2.9, "text": "Threads of php-fpm8.2 wait in mysqlnd_net_read for 62 % of the time, instead of 21 %"},
	}
}

// stacks is a tree of frames with a name that would do harm if it were markup.
func stacks(compares bool) object {
	frame := func(name, kind string, value float64, children ...object) object {
		f := object{"name": name, "kind": kind, "value": value * 1e9, "children": children}
		if compares {
			f["before"] = value * 1e9 * (0.2 + 1.6*chance(name))
		}
		if children == nil {
			f["self"], f["children"] = value*1e9, []object{}
		}
		return f
	}
	var small []object
	for i := range 14 {
		small = append(small, frame(fmt.Sprintf("zend_do_%02d", i), "native", 0.9))
	}
	return frame("all", "process", 100,
		frame("php-fpm8.2", "process", 61, frame("main", "native", 60, frame("php_execute_script", "native", 58,
			frame("{main}", "php", 57, frame("Shop\\Cart::total", "php", 34, frame("Shop\\Price::of", "php", 22, frame("preg_match", "native", 19, frame("pcre2_match_8", "native", 18))), frame("PDOStatement::execute", "php", 11, frame("mysqlnd_net_read", "native", 10, frame("poll", "kernel", 9)))), frame("Shop\\View::render", "php", 21, small...))))),
		frame("node", "process", 24, frame("node::Start", "native", 24, frame("uv_run", "native", 23, frame("handle /srv/booking/app.js", "node", 17, frame("JSON.parse", "native", 11)), frame("epoll_wait", "kernel", 4)))),
		frame("nginx", "process", 12, frame("ngx_worker_process_cycle", "native", 12, frame("ngx_epoll_process_events", "native", 11, frame("tcp_sendmsg", "kernel", 6)))))
}
