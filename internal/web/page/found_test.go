package page_test

import "strings"

// findings are what the story's server found. Their facts, figures, units, sources
// and subjects are as long as those of real findings: a page that is made for
// short ones cannot be read with a real history.
func findings() []object {
	return []object{
		{"cause": "firewall-drop", "title": "A firewall rule drops packets that requests wait for", "role": "cause", "verdict": "proved", "onset": lossFrom, "end": lossTo, "windows": 30, "share": 0.83, "of": "slow time", "key": shop[3].key(),
			"text":    "9,482 segments to 198.51.100.7:3306 were dropped here; 71,436 requests came in: who sent them waits 200 ms and more until it retransmits them",
			"subject": object{"kind": "rule", "comm": "php-fpm8.2", "pid": 2210, "addr": "198.51.100.7", "port": 3306, "rule": "iptables OUTPUT #3: -m statistic --mode random --probability 0.03 -j DROP"},
			"evidence": []object{
				{"fact": "the rule, at output", "value": "table ip filter chain OUTPUT handle 7: -p tcp --dport 3306 -m statistic --mode random --probability 0.03000000003 -j DROP", "source": "iptables (nf_tables)"},
				{"fact": "counter of the rule", "value": 9482, "unit": "packets", "source": "iptables (nf_tables)"},
				{"fact": "packets that the packet filter dropped of this service and of its calls", "value": 9482, "limit": 9518, "unit": "packets, of those that died on this host", "source": "skb:kfree_skb, NETFILTER_DROP"},
				{"fact": "requests that waited while a segment of theirs was retransmitted", "value": 2114, "limit": 71436, "unit": "requests of over 25 ms", "source": "request records"},
				{"fact": "of the slowest requests sending again, mean", "value": 203.402, "limit": 214.113, "unit": "ms", "source": "request records"}},
			"fix": object{"text": "Take this rule away, or narrow it, if it is not meant for these packets; and where it is loaded from at boot.", "commands": []string{"iptables -D OUTPUT 3"}, "persist": []string{"edit /etc/iptables/rules.v4"}}, "prove": object{"command": "slowray prove firewall-drop --apply", "hot": true}},
		{"cause": "blocked-on-pipe", "title": "Requests block on a pipe containerd-shim does not read", "role": "cause", "verdict": "supported", "onset": stallFrom, "end": stallTo, "windows": 18, "share": 0.61, "of": "slow time", "key": shop[2].key(),
			"text":    "145 slow requests of php-fpm8.2 (pid 2210) on :9000 took 190 s in all, 116 s of it held up by this; 12 of them had no answer when the window ended",
			"subject": object{"kind": "process", "comm": "php-fpm8.2", "pid": 2210, "container": "shop-php-7d9c8bd5f6-x2b4q_production"},
			"evidence": []object{
				{"fact": "slow requests, each by the part of its time that it lost to this", "value": 115.733, "limit": 145, "unit": "requests of over 25 ms", "source": "request records, and looks at the threads"},
				{"fact": "of all threads together", "value": 43.771, "limit": 60.005, "unit": "s of the window", "source": "/proc/PID/task/TID, every 976 ms"},
				{"fact": "CPU idle meanwhile", "value": 0.552, "unit": "share", "source": "/proc/stat"},
				{"fact": "stack of thread 2231", "value": "write ← php_stdiop_write ← _php_stream_write ← zif_error_log ← Shop\\Log::add Log.php:41 ← Shop\\Cart::total Cart.php:118 ← {main} index.php:12", "source": "stacks in the process's memory"}},
			"fix": object{"text": "Let fluent-bit (pid 1122) go on.", "commands": []string{"docker update --log-opt mode=non-blocking shop-php", "slowray wait 2210   # what its threads wait for, to the last hop"}}},
		{"cause": "slow-dependency", "title": "A dependency answers slowly", "role": "consequence", "consequence_of": "firewall-drop", "verdict": "supported", "onset": lossFrom, "end": lossTo, "windows": 30, "share": 0.924, "of": "the time in which nginx answers requests", "key": shop[0].key(),
			"text":    "calls to 127.0.0.1:9000 take 149 ms (p99 315 ms); nginx makes 0.966 of them for a request",
			"subject": object{"kind": "destination", "comm": "nginx", "pid": 1812, "addr": "127.0.0.1", "port": 9000},
			"evidence": []object{
				{"fact": "call latency, p50 and p99", "value": "149 ms, 315 ms", "source": "request records"},
				{"fact": "time of all calls", "value": 15.446, "limit": 16.719, "unit": "s in which nginx was busy with requests", "source": "request records"},
				{"fact": "calls", "value": 1637, "unit": "calls for 2,181 requests", "source": "request records"},
				{"fact": "of the slowest calls", "value": "the slowest 1 % of 1,637 calls to 127.0.0.1:9000 take 287 ms: server over 99.9 %", "source": "request records"},
				{"fact": "at the other end, on this host", "value": "the slowest 1 % of 1,637 requests on :9000 take 287 ms: server 52 %, accept_wait 47 %", "source": "request records"}},
			"fix": object{"text": "Find what makes php-fpm8.2 (pid 2210) answer slowly: it runs on this host.", "commands": []string{"slowray why --pid 2210"}}},
		{"cause": "php-fpm-children-exhausted", "title": "All php-fpm children are busy (pm.max_children)", "role": "consequence", "consequence_of": "blocked-on-pipe", "verdict": "supported", "onset": stallFrom + 20, "end": stallTo, "windows": 16, "share": 0.4, "of": "slow time", "key": shop[2].key(),
			"text": "40 of 40 children of php-fpm are busy; they wait for a pipe.", "subject": object{"kind": "pool", "comm": "php-fpm8.2", "pid": 2210, "path": "/etc/php/8.2/fpm/pool.d/shop.example.org-production.conf"},
			"evidence": []object{{"fact": "workers taken, mean", "value": 39.6, "limit": 40, "unit": "workers", "source": "request records; limit: pm.max_children 40, /etc/php/8.2/fpm/pool.d/shop.example.org-production.conf"}}, "fix": object{"text": "Fix what they wait for.", "commands": []string{}}},
		{"cause": "cpu-quota-throttled", "title": "The CPU quota throttles the service", "role": "cause", "verdict": "supported", "onset": noon - 200, "end": nil, "windows": 18, "share": 0.07, "of": "slow time", "key": shop[6].key(),
			"text": "a request on :3000: 108 ms on average, about 7.6 ms of it held back by the quota, in 12 % of its periods", "subject": object{"kind": "cgroup", "comm": "node", "pid": 3107, "container": "booking", "path": "/system.slice/docker-9f2c1e77ab01" + strings.Repeat("5e", 26) + ".scope"},
			"evidence": []object{{"fact": "throttled periods", "value": 0.12, "unit": "share of the periods", "source": "cpu.stat"}, {"fact": "time that its threads could run and the quota held them back", "value": 0.093, "limit": 1, "unit": "share", "source": "/proc/PID/schedstat, cpu.stat"}},
			"fix":      object{"text": "Raise the quota from 1 to 2 CPUs.", "commands": []string{"docker update --cpus 2 booking"}}},
	}
}
