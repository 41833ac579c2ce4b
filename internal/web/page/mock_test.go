package page_test

import (
	"encoding/json"
	"io/fs"
	"math"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/slowray/slowray/internal/language"
	"github.com/slowray/slowray/internal/web/page"
)

// mock answers like internal/web, of the story. What it is given in place of an
// answer is reported instead, by path.
type mock struct {
	mu      sync.Mutex
	instead map[string]any
	stopped int64 // s that have passed since the end of the story
	asked   chan string
	marks   bool // what is the catalogue's stands in ⟦⟧, and what this answers in ⟪⟫
}

func (m *mock) words(words map[string]string) map[string]string {
	if !m.marks {
		return words
	}
	marked := map[string]string{}
	for english, text := range words {
		marked[english] = "⟦" + text + "⟧"
	}
	return marked
}

// prose is a sentence of an answer, and no name.
var prose = regexp.MustCompile(`"((?:[^"\\]|\\.)* (?:[^"\\]|\\.)*)"`)

// stop lets time pass in which nothing comes.
func (m *mock) stop(seconds int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped = seconds
}

// tells changes what is reported in place of answers.
func (m *mock) tells(instead map[string]any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.instead = instead
}

func (m *mock) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kinds := map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
	switch p := r.URL.Path; {
	case p == "/":
		w.Header().Set("Content-Security-Policy", page.Policy)
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		b, _ := fs.ReadFile(page.Files, "index.html")
		w.Write(b)
	case p == "/assets/zh.json":
		pages, err := language.Pages()
		if err != nil {
			panic(err)
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(m.words(pages["zh"]))
	case strings.HasPrefix(p, "/assets/"):
		b, err := fs.ReadFile(page.Files, p[1:])
		if err != nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", kinds[path.Ext(p)])
		w.Write(b)
	case strings.HasPrefix(p, "/api/"):
		m.answer(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (m *mock) answer(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if m.asked != nil {
		select {
		case m.asked <- r.URL.String():
		default:
		}
	}
	var answer any
	m.mu.Lock()
	instead, ok := m.instead[r.URL.Path]
	stopped := m.stopped
	m.mu.Unlock()
	if ok {
		if status, is := instead.(int); is {
			w.WriteHeader(status)
			instead = object{"error": "the store cannot be read: no space left on device"}
		}
		answer = instead
	} else {
		answer = tell(r)
		if status, is := answer.(object); is && r.URL.Path == "/api/status" {
			status["now"] = noon + stopped
		}
	}
	text, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	switch {
	case m.marks:
		text = prose.ReplaceAll(text, []byte(`"⟪$1⟫"`))
	case r.URL.Query().Get("lang") == "zh":
		chinese, err := language.New("zh")
		if err != nil {
			panic(err)
		}
		text = prose.ReplaceAllFunc(text, func(quoted []byte) []byte {
			var english string
			if json.Unmarshal(quoted, &english) != nil {
				return quoted
			}
			b, _ := json.Marshal(chinese.Text(english))
			return b
		})
	}
	w.Write(text)
}

func number(r *http.Request, name string, otherwise int64) int64 {
	f, err := strconv.ParseFloat(r.URL.Query().Get(name), 64)
	if err != nil {
		return otherwise
	}
	return int64(f)
}

func tell(r *http.Request) any {
	q := r.URL.Query()
	from, to := number(r, "from", dawn), number(r, "to", noon)
	chosen := func() (list []*endpoint) {
		for i := range shop {
			if len(q["ep"]) == 0 || slices.Contains(q["ep"], shop[i].key()) {
				list = append(list, &shop[i])
			}
		}
		return list
	}
	switch r.URL.Path {
	case "/api/status":
		return object{"version": "0.7.0", "host": object{"name": "shop-01", "kernel": "6.12.9", "cpus": 8, "boot_id": "x"}, "span": object{"from": dawn, "to": noon}, "now": noon, "recording": true,
			"stats": object{"cost_cpu_share": 0.0042}, "losses": []object{{"what": "requests that are counted and have no record of their own", "count": 48213}}}
	case "/api/endpoints":
		var list []object
		for i := range shop {
			list = append(list, summed(&shop[i], from, to))
		}
		return object{"endpoints": list, "losses": []object{}}
	case "/api/series":
		return series(chosen(), from, to, number(r, "points", 300))
	case "/api/findings":
		return object{"findings": slices.DeleteFunc(findings(), func(f object) bool {
			end, over := f["end"].(int64)
			return f["onset"].(int64) >= to || over && end <= from
		}), "ruled_out": ruledOut, "not_checked": []object{{"cause": "nic-ring-full", "because": "the driver of eth0 (virtio_net) does not tell of its rings"}}, "judged": object{"from": noon - 60, "to": noon}, "losses": []object{}}
	case "/api/requests":
		var list []object
		for _, e := range chosen() {
			if q.Get("paths") != "" && len(q["ep"]) == 0 && q.Get("side") == "" && (e.port == 9000 || e.port == 3306 || e.port == 6379) {
				continue // they belong to a request of nginx
			}
			for _, x := range e.requests(from, to) {
				if hops := hopsOf(x); hops != nil && q.Get("paths") != "" {
					x["hops"] = hops
				}
				if x["total_us"].(float64) >= float64(number(r, "slow_us", 0)) && (q.Get("status") == "" || x["status"] == q.Get("status")) && (q.Get("side") == "" || x["side"] == q.Get("side")) {
					list = append(list, x)
				}
			}
		}
		slices.SortStableFunc(list, func(a, b object) int {
			if q.Get("sort") == "time" {
				return strings.Compare(b["start"].(string), a["start"].(string))
			}
			return int(math.Copysign(1, b["total_us"].(float64)-a["total_us"].(float64)))
		})
		return object{"total_matching": len(list) * 41, "requests": list[:min(len(list), int(number(r, "limit", 100)))], "losses": []object{}}
	case "/api/request":
		for i := range shop {
			t, _ := strconv.ParseInt(strings.SplitN(q.Get("id"), ".", 2)[0], 10, 64)
			for _, x := range shop[i].requests(t, t+1) {
				if x["id"] == q.Get("id") {
					return object{"request": x, "hops": hopsOf(x), "key": shop[i].key(), "wait": object{"chains": []object{chain}}, "stacks": stacks(false), "findings": findings()[:1], "losses": []object{}}
				}
			}
		}
		return object{"request": nil}
	case "/api/difference":
		return object{"rows": differences(from, to), "losses": []object{}}
	case "/api/histogram":
		return histogram(chosen()[0], from, to)
	case "/api/waits":
		return waitGraph
	case "/api/stacks":
		return object{"kind": q.Get("kind"), "unit": "nanoseconds", "window_s": 600, "hz": 97, "compares": q.Has("against_from"), "frames": stacks(q.Has("against_from")), "notes": []string{}, "losses": []object{{"what": "stacks without symbols in libphp.so", "count": 12}}}
	case "/api/drops":
		return drops
	case "/api/proofs":
		return object{"proofs": []object{proof, tuned}, "losses": []object{}}
	}
	return object{"error": "no such thing"}
}

func summed(e *endpoint, from, to int64) object {
	n, sum, errs, p50, p99, s99, rtt, loss := 0.0, map[string]float64{}, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
	step := max((to-from)/120, 1)
	for t := from; t < to; t += step {
		if t < dawn || t >= noon {
			continue
		}
		m := e.at(t)
		n += m.rps * float64(step)
		errs += m.errors * float64(step)
		for k, v := range m.parts {
			sum[k] += v * m.rps * float64(step)
		}
		p50, p99, s99, rtt, loss = p50+m.p50*m.rps*float64(step), max(p99, m.p99), max(s99, m.server99), m.rtt, max(loss, m.loss)
	}
	ledger, total := object{}, 0.0
	for k, v := range sum {
		if _, inner := innerOf(k); !inner {
			total += v
		}
	}
	for k, v := range sum {
		ledger[k] = object{"mean": v / max(n, 1), "share": v / max(total, 1)}
	}
	return object{"key": e.key(), "side": e.side, "netns": 4026531840, "addr": e.addr, "port": e.port, "process": e.process(), "first": max(from, dawn), "last": min(to, noon), "requests": int(n), "rps": n / float64(to-from), "errors": int(errs),
		"total_us": object{"p50": p50 / max(n, 1), "p90": p99 * 0.4, "p99": p99, "max": p99 * 3.1}, "server_us": object{"p50": p50 / max(n, 1) * 0.8, "p99": s99}, "ledger_us": ledger, "rtt_us": rtt, "min_rtt_us": rtt * 0.8, "loss_permille": loss, "retrans": int(loss * n / 1000)}
}

func series(list []*endpoint, from, to, points int64) object {
	step := max((to-from)/max(points, 1), 1)
	from -= from % step
	var times []int64
	for t := from; t < to; t += step {
		times = append(times, t)
	}
	var all []object
	for _, e := range list {
		columns, ledger := map[string][]any{}, map[string][]any{}
		for _, t := range times {
			in, m := t >= dawn && t < noon, e.at(t)
			put := func(to map[string][]any, k string, v float64) {
				if in {
					to[k] = append(to[k], math.Round(v*1000)/1000)
				} else {
					to[k] = append(to[k], nil)
				}
			}
			for k, v := range map[string]float64{"rps": m.rps, "errors": m.errors, "p50_us": m.p50, "p99_us": m.p99, "server_p50_us": m.server50, "server_p99_us": m.server99, "network_us": m.network, "rtt_us": m.rtt, "loss_permille": m.loss} {
				put(columns, k, v)
			}
			for _, k := range []string{"accept_wait", "upload", "recv_wait", "server", "server.cpu", "server.runq", "server.call", "server.blocked.lock", "server.blocked.pipe", "server.blocked.other", "stall", "send_wait", "network", "retrans"} {
				put(ledger, k, m.parts[k])
			}
		}
		one := object{"key": e.key(), "ledger_us": ledger}
		for k, v := range columns {
			one[k] = v
		}
		all = append(all, one)
	}
	return object{"step": step, "t": times, "series": all, "losses": []object{}}
}

func histogram(e *endpoint, from, to int64) object {
	var bounds []float64
	for us := 50.0; us < 4e6; us *= math.Sqrt2 {
		bounds = append(bounds, math.Round(us))
	}
	step := max((to-from)/100, 1)
	var times []int64
	var counts [][]int
	sums := make([]int, len(bounds))
	for t := from; t < to; t += step {
		row := make([]int, len(bounds))
		if t >= dawn && t < noon {
			m := e.at(t)
			for j, us := range bounds {
				d := math.Log(us/m.p50) / 0.45
				n := m.rps * float64(step) * 0.33 * math.Exp(-d*d/2)
				if m.p99 > 20*m.p50 {
					d = math.Log(us/m.p99) / 0.2
					n += m.rps * float64(step) * 0.05 * math.Exp(-d*d/2)
				}
				row[j] = int(n)
				sums[j] += row[j]
			}
		}
		times, counts = append(times, t), append(counts, row)
	}
	var buckets []object
	for j, us := range bounds {
		buckets = append(buckets, object{"from_us": us, "to_us": math.Round(us * math.Sqrt2), "count": sums[j]})
	}
	return object{"buckets": buckets, "heat": object{"t": times, "us": bounds, "counts": counts}, "losses": []object{}}
}

func TestStoryAddsUp(t *testing.T) {
	for i := range shop {
		for _, r := range shop[i].requests(lossFrom, lossFrom+120) {
			sum := 0.0
			for k, v := range r["ledger_us"].(object) {
				if _, inner := innerOf(k); !inner && k != "ack_delay" {
					sum += v.(float64)
				}
			}
			if math.Abs(sum-r["total_us"].(float64)) > 1 {
				t.Fatalf("%s: parts are %g, the total is %g", r["id"], sum, r["total_us"])
			}
		}
	}
}

func httpGet(u *url.URL) *http.Request { return &http.Request{Method: http.MethodGet, URL: u} }
