package page_test

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"sort"
	"time"
)

// A made-up hour on a made-up host, the same in each run: a shop whose calls to
// its database lose packets for five minutes, and whose log collector stood
// still for three minutes before that.
var (
	noon      = time.Date(2026, 11, 22, 12, 5, 0, 0, time.UTC).Unix()
	dawn      = noon - 3600
	lossFrom  = noon - 660
	lossTo    = noon - 360
	stallFrom = noon - 1500
	stallTo   = noon - 1320
)

type object = map[string]any

// endpoint is how an endpoint of the story does on a good minute.
type endpoint struct {
	side, addr, comm, container, unit string
	port, pid                         int
	rps                               float64
	parts                             map[string]float64 // µs, mean
	loss, stall                       float64            // how much of them it feels
}

var shop = []endpoint{
	{side: "served", addr: "192.0.2.10", port: 443, comm: "nginx", unit: "nginx.service", pid: 1812, rps: 412, loss: 1, stall: 1,
		parts: map[string]float64{"accept_wait": 30, "recv_wait": 35, "server": 9300, "server.cpu": 350, "server.call": 8900, "send_wait": 60, "network": 2100, "stall": 240}},
	{side: "called", addr: "127.0.0.1", port: 9000, comm: "nginx", unit: "nginx.service", pid: 1812, rps: 398, loss: 1, stall: 1,
		parts: map[string]float64{"upload": 12, "recv_wait": 30, "server": 8700, "network": 15}},
	{side: "served", addr: "127.0.0.1", port: 9000, comm: "php-fpm8.2", container: "shop-php", pid: 2210, rps: 398, loss: 1, stall: 1,
		parts: map[string]float64{"accept_wait": 140, "recv_wait": 25, "server": 8400, "server.cpu": 3900, "server.runq": 260, "server.call": 3900, "server.blocked.lock": 90, "server.blocked.pipe": 120, "network": 15}},
	{side: "called", addr: "198.51.100.7", port: 3306, comm: "php-fpm8.2", container: "shop-php", pid: 2210, rps: 1190, loss: 1.6,
		parts: map[string]float64{"upload": 9, "recv_wait": 21, "server": 780, "network": 420}},
	{side: "called", addr: "127.0.0.1", port: 6379, comm: "php-fpm8.2", container: "shop-php", pid: 2210, rps: 2310, parts: map[string]float64{"recv_wait": 20, "server": 80, "network": 6}},
	{side: "served", addr: "127.0.0.1", port: 6379, comm: "redis-server", unit: "redis-server.service", pid: 940, rps: 2310, parts: map[string]float64{"recv_wait": 38, "server": 22, "server.cpu": 22, "network": 6}},
	{side: "served", addr: "192.0.2.10", port: 3000, comm: "node", container: "booking", pid: 3107, rps: 96, stall: 1,
		parts: map[string]float64{"recv_wait": 300, "server": 5200, "server.cpu": 3100, "server.runq": 400, "server.blocked.pipe": 200, "server.blocked.other": 1500, "network": 2000}},
	{side: "called", addr: "203.0.113.44", port: 24224, comm: "containerd-shim", pid: 1500, rps: 11, stall: 4, parts: map[string]float64{"upload": 60, "server": 900, "network": 1300}},
	{side: "served", addr: "192.0.2.10", port: 22, comm: "sshd", unit: "ssh.service", pid: 700, rps: 0.4, parts: map[string]float64{"recv_wait": 90, "server": 4100, "server.cpu": 2900, "server.blocked.other": 1200, "network": 2300}},
}

func (e *endpoint) key() string {
	return fmt.Sprintf("%s|4026531840|%s|%d|%s", e.side, e.addr, e.port, e.comm)
}

// chance is a number from 0 to 1 that belongs to its arguments.
func chance(of ...any) float64 {
	h := fnv.New64a()
	fmt.Fprint(h, of...)
	x := h.Sum64()
	x ^= x >> 29
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 32
	return float64(x%1e6) / 1e6
}

// trouble is how bad the two incidents are at a moment, 0 to 1.
func trouble(t int64) (loss, stall float64) {
	edge := func(from, to int64) float64 {
		return math.Min(1, math.Max(0, math.Min(float64(t-from)/8, float64(to-t)/8)))
	}
	return edge(lossFrom, lossTo), edge(stallFrom, stallTo)
}

// moment is what an endpoint did around a moment.
type moment struct {
	rps, errors, p50, p99, server50, server99, network, rtt, loss float64
	parts                                                         map[string]float64
}

func (e *endpoint) at(t int64) moment {
	loss, stall := trouble(t)
	loss, stall = loss*e.loss, stall*e.stall
	shake := 0.9 + 0.2*chance(e.key(), t)
	wave := 1 + 0.12*math.Sin(float64(t-dawn)/420)
	m := moment{rps: e.rps * shake * wave * (1 - 0.25*math.Min(1, loss)) * (1 - 0.6*math.Min(1, stall)), parts: map[string]float64{}}
	for k, v := range e.parts {
		m.parts[k] = v * (0.92 + 0.16*chance(k, t))
	}
	if loss > 0 {
		extra := 10800 * loss
		if e.port == 3306 {
			m.parts["retrans"] = extra * shake
			m.loss = 31 * shake
		} else {
			m.parts["server"] += extra * 2.6 * shake
			if e.side == "served" {
				m.parts["server.call"] += extra * 2.6 * shake
			}
		}
		m.errors = e.rps * 0.004 * loss
	}
	if stall > 0 {
		m.parts["server"] += 46000 * stall * shake
		if e.comm == "nginx" && e.side == "served" {
			m.parts["server.call"] += 46000 * stall * shake
		} else if e.side == "served" {
			m.parts["server.blocked.pipe"] += 46000 * stall * shake
		}
		m.errors += e.rps * 0.02 * stall
	}
	total := 0.0
	for k, v := range m.parts {
		if _, inner := innerOf(k); !inner {
			total += v
		}
	}
	m.p50, m.p99 = total*0.78, total*2.9*(0.9+0.25*chance("p99", e.key(), t))
	m.server50, m.server99 = m.parts["server"]*0.75, m.parts["server"]*2.8
	if loss > 0 {
		m.p50, m.p99 = e.base()*0.85, 206000+14000*chance("x", t)
		m.server50 = e.parts["server"] * 0.8
		if e.port == 3306 {
			m.server99 = e.parts["server"] * 3
		} else {
			m.server99 = m.p99 - 2600
		}
	}
	m.network, m.rtt = m.parts["network"], m.parts["network"]*0.93
	if m.loss == 0 && e.parts["network"] > 1000 && chance("l", e.key(), t) > 0.93 {
		m.loss = 0.4
	}
	return m
}

func innerOf(part string) (string, bool) {
	if len(part) > 7 && part[:7] == "server." {
		return "server", true
	}
	return part, false
}

func (e *endpoint) base() float64 {
	sum := 0.0
	for k, v := range e.parts {
		if _, inner := innerOf(k); !inner {
			sum += v
		}
	}
	return sum
}

func (e *endpoint) process() object {
	p := object{"pid": e.pid, "comm": e.comm, "cgroup": "/system.slice/" + e.comm}
	if e.container != "" {
		p["container"], p["container_name"] = "9f2c1e77ab01", e.container
	}
	if e.unit != "" {
		p["unit"] = e.unit
	}
	return p
}

// requests are the records that are kept of an endpoint, begun in a time.
func (e *endpoint) requests(from, to int64) []object {
	var list []object
	every := int64(math.Max(1, 20/math.Max(1, e.rps/20)))
	for t := from - from%every; t < to; t += every {
		if t < dawn || t >= noon {
			continue
		}
		m := e.at(t)
		loss, stall := trouble(t)
		ledger, total := object{}, 0.0
		slow := chance("slow", e.key(), t)
		for k, v := range m.parts {
			if k == "retrans" && slow < 0.75 {
				continue
			}
			f := 0.4 + 1.2*chance(k, e.key(), t, "r")
			if k == "server" || k == "server.call" || k == "server.blocked.pipe" {
				f *= 1 + 3*slow*slow
			}
			ledger[k] = math.Round(v*f*1000) / 1000
		}
		retrans := 0
		if loss*e.loss > 0 && slow >= 0.75 {
			retrans = 1
			if e.port == 3306 {
				ledger["retrans"] = 203000 + 9000*slow
			} else if e.side == "served" {
				ledger["server.call"] = 206000 + 12000*slow
			} else {
				ledger["server"] = 206500 + 12000*slow
			}
		}
		if stall*e.stall > 0 && slow >= 0.6 && e.side == "served" {
			part := "server.blocked.pipe"
			if e.comm == "nginx" {
				part = "server.call"
			}
			ledger[part] = 2.1e6 * slow * slow * math.Min(1, e.stall)
		}
		inner := 0.0
		for k, v := range ledger {
			if _, is := innerOf(k); is {
				inner += v.(float64)
			}
		}
		if inner > 0 {
			ledger["server"] = inner
		}
		for k, v := range ledger {
			if _, is := innerOf(k); !is {
				total += v.(float64)
			}
		}
		if chance("d", e.key(), t) > 0.7 {
			ledger["ack_delay"] = 18400.0 * chance("dd", t)
		}
		status, http := "ok", any(nil)
		if e.comm == "nginx" || e.comm == "node" {
			http = 200
			if stall > 0 && slow > 0.9 {
				status, http = "error", 504
			}
		}
		r := object{"id": fmt.Sprintf("%d.%s.%d", t, e.comm, e.port) + e.side[:1], "schema": "slowray.request/1", "side": e.side, "start": time.Unix(t, int64(chance("ns", t, e.port)*1e9)).UTC().Format(time.RFC3339Nano), "netns": 4026531840,
			"addr": e.addr, "port": e.port, "peer_addr": fmt.Sprintf("203.0.113.%d", 3+t%7), "peer_port": 40000 + t%20000, "process": e.process(), "seq": 1 + t%40, "bytes_in": 340 + t%900, "bytes_out": 5200 + t%18000, "retrans": retrans,
			"rtt_us": m.rtt, "min_rtt_us": e.parts["network"] * 0.8, "total_us": total, "ledger_us": ledger, "status": status, "http_status": http, "flags": []string{}}
		if e.side == "called" {
			r["peer_addr"], r["peer_port"], r["addr"], r["port"] = e.addr, e.port, "192.0.2.10", 41000+t%9000
		}
		if retrans > 0 {
			r["flags"] = []string{"slow", "timeout"}
		}
		list = append(list, r)
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i]["total_us"].(float64) > list[j]["total_us"].(float64) })
	return list
}

// hopsOf is what belongs to a request of nginx, as the server joins it: the call of a
// child of PHP-FPM, and that child's call of the database.
func hopsOf(r object) []object {
	led := r["ledger_us"].(object)
	call, ok := led["server.call"].(float64)
	if r["side"] != "served" || !ok || r["process"].(object)["comm"] != "nginx" {
		return nil
	}
	id, began := r["id"].(string), r["start"].(string)
	at, _ := time.Parse(time.RFC3339Nano, began)
	t := at.Unix()
	step := func(e *endpoint, after, total float64, parts object) object {
		own := object{"id": id + "/" + e.key(), "side": e.side, "start": at.Add(time.Duration(after * 1e3)).UTC().Format(time.RFC3339Nano), "addr": e.addr, "port": e.port, "peer_addr": "127.0.0.1", "peer_port": 41000 + t%9000,
			"process": e.process(), "seq": 1, "bytes_in": 900, "bytes_out": 5200, "retrans": 0, "rtt_us": 15, "min_rtt_us": 12, "total_us": total, "ledger_us": parts, "status": "ok", "flags": []string{}, "key": e.key()}
		if e.side == "called" {
			own["peer_addr"], own["peer_port"], own["addr"], own["port"] = e.addr, e.port, "192.0.2.10", 41000+t%9000
		}
		return own
	}
	loss, stall := trouble(t)
	query := min(1200.0, call/2)
	rows := object{"server": query - 420, "network": 420.0}
	if loss > 0 && call > 200000 {
		query = call - 6000
		rows = object{"server": 780.0, "network": 420.0, "retrans": query - 1200}
	}
	inside := object{"recv_wait": 25.0, "server": call - 60, "server.cpu": call - 60 - query, "server.call": query, "network": 15.0}
	if stall > 0 {
		inside["server.cpu"], inside["server.blocked.pipe"] = 3900.0, call-60-query-3900
	}
	return []object{{"depth": 0, "called": nil, "served": maps.Clone(r)},
		{"depth": 1, "called": step(&shop[1], 400, call, object{"upload": 12.0, "server": call - 27, "network": 15.0}), "served": step(&shop[2], 420, call-20, inside)},
		{"depth": 2, "called": step(&shop[3], 2400, query, rows), "served": nil}}
}
