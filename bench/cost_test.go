package bench

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// costSettle is how long a command runs before its cost is measured: then it has loaded its
// programs, and found how much it may do.
const costSettle = 3 * time.Second

// costCommand is a command of slowray as a user starts it, with its default flags.
type costCommand struct {
	name string
	args func(dir string, port int) []string
}

var costCommands = []costCommand{
	{"record", func(dir string, _ int) []string { return []string{"record", "--listen=off", "--dir=" + dir} }},
	{"why", func(string, int) []string { return []string{"why", "--for=1h"} }},
	{"top", func(string, int) []string { return []string{"top"} }},
	{"requests --side served --port", func(_ string, port int) []string {
		return []string{"requests", "--side=served", "--port=" + strconv.Itoa(port)}
	}},
}

// start begins the command, on a terminal where it wants one, and gives what ends it, which
// tells the CPU time that it took since then, and its process.
func (c costCommand) start(b *testing.B, slowray string, port int) (stop func() (time.Duration, error), pid int, err error) {
	dir := b.TempDir()
	args := append([]string{slowray}, c.args(dir, port)...)
	if c.name == "top" { // it draws only on a terminal
		args = []string{"script", "--quiet", "--command", strings.Join(args, " "), "/dev/null"}
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Env = append(os.Environ(), "TERM=xterm")
	var said strings.Builder
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, 0, err
	}
	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return nil, 0, fmt.Errorf("%s ended: %w: %s", c.name, err, said.String())
	case <-time.After(costSettle):
	}
	pids := append(children(cmd.Process.Pid), cmd.Process.Pid)
	used := cpuOf(pids...)
	return func() (time.Duration, error) {
		used = cpuOf(pids...) - used
		if c.name == "top" {
			io.WriteString(in, "q")
		} else {
			cmd.Process.Signal(syscall.SIGINT)
		}
		select {
		case <-ended: // why ends with 1 where it found something
			return used, nil
		case <-time.After(20 * time.Second):
			cmd.Process.Kill()
			<-ended
			return used, fmt.Errorf("%s did not end", c.name)
		}
	}, cmd.Process.Pid, nil
}

// pacedLoad is a load at a fixed rate: what it costs depends on nothing but what each
// request costs.
type pacedLoad struct {
	name string
	port int
	rate int // requests a second
	run  func(d time.Duration) (paced, error)
}

// paced is what came of a load at a fixed rate.
type paced struct {
	requests uint64
	p99      time.Duration // of the answers, from when a request was sent: timers are late by more
}

// pacer is the process that asks at a fixed rate, whatever comes back how late: kind,
// address, rate, connections, length.
func pacer(args []string) {
	rate, _ := strconv.Atoi(args[2])
	conns, _ := strconv.Atoi(args[3])
	length, err := time.ParseDuration(args[4])
	if err != nil {
		fail("pacer", err)
	}
	ask := map[string]func(string) (func() error, error){"http": asksOf("GET / HTTP/1.1\r\nHost: h\r\n\r\n"), "redis": asksOf("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"), "http2": asksHTTP2()}[args[0]]
	var all sync.WaitGroup
	took := make([][]time.Duration, conns)
	asks := make([]func() error, conns)
	for n := range conns {
		all.Go(func() {
			one, err := ask(args[1])
			if err != nil {
				fail("pacer", err)
			}
			asks[n] = one
		})
	}
	all.Wait() // it takes longer than the load may be late
	began := time.Now()
	for n, one := range asks {
		all.Go(func() {
			every := time.Second * time.Duration(conns) / time.Duration(rate)
			for due := began.Add(every * time.Duration(n) / time.Duration(conns)); due.Sub(began) < length; due = due.Add(every) {
				time.Sleep(time.Until(due))
				sent := time.Now()
				if err := one(); err != nil {
					fail("pacer", err)
				}
				took[n] = append(took[n], time.Since(sent))
			}
		})
	}
	all.Wait()
	every := slices.Sorted(slices.Values(slices.Concat(took...)))
	fmt.Println(len(every), every[len(every)*99/100].Nanoseconds())
	os.Exit(0)
}

// asksOf asks the same again and again on a connection; the answer is always as long.
func asksOf(text string) func(addr string) (func() error, error) {
	return func(addr string) (func() error, error) {
		conn, err := net.Dial("tcp4", addr)
		if err != nil {
			return nil, err
		}
		// The first answer may come in pieces and late; the second is as all others.
		answer, n := make([]byte, 64<<10), 0
		for range 2 {
			if _, err := io.WriteString(conn, text); err != nil {
				return nil, err
			}
			for n = 0; ; {
				conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
				more, err := conn.Read(answer[n:])
				if n += more; errors.Is(err, os.ErrDeadlineExceeded) {
					break
				} else if err != nil {
					return nil, err
				}
			}
		}
		conn.SetReadDeadline(time.Time{})
		return func() error {
			if _, err := io.WriteString(conn, text); err != nil {
				return err
			}
			_, err := io.ReadFull(conn, answer[:n])
			return err
		}, nil
	}
}

// asksHTTP2 asks over a single connection of HTTP/2 without TLS.
func asksHTTP2() func(addr string) (func() error, error) {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: &protocols}}
	return func(addr string) (func() error, error) {
		return func() error {
			resp, err := client.Get("http://" + addr + "/")
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			_, err = io.Copy(io.Discard, resp.Body)
			return err
		}, nil
	}
}

// http2Server answers over HTTP/2 without TLS.
func http2Server(addr string) {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	server := http.Server{Addr: addr, Protocols: &protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "hello world\n")
	})}
	fail("serve", server.ListenAndServe())
}

// pace makes a load of a kind against a port of the stage.
func (s *stage) pace(name, kind string, port, rate, conns int) pacedLoad {
	return pacedLoad{name, port, rate, func(d time.Duration) (paced, error) {
		return s.pacer(kind, port, rate, conns, d)
	}}
}

func (s *stage) pacer(kind string, port, rate, conns int, d time.Duration) (came paced, err error) {
	cmd := s.command("/proc/self/exe", kind, fmt.Sprintf("127.0.0.1:%d", port), strconv.Itoa(rate), strconv.Itoa(conns), d.String())
	cmd.Env = append(os.Environ(), "SLOWRAY_BENCH_ROLE=pacer")
	var out, said strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := s.start(cmd); err != nil {
		return came, err
	}
	if err := cmd.Wait(); err != nil {
		return came, fmt.Errorf("pacer: %w: %s", err, said.String())
	}
	_, err = fmt.Sscan(out.String(), &came.requests, &came.p99)
	return came, err
}

// pacedDatabase is MariaDB at a fixed rate of point selects.
func pacedDatabase(d *database, rate int) pacedLoad {
	return pacedLoad{"MariaDB, point selects", d.port, rate, func(length time.Duration) (paced, error) {
		text, _, err := d.output(d.sysbench("--rate="+strconv.Itoa(rate), "--percentile=99", fmt.Sprintf("--time=%.0f", max(1, length.Seconds())), "run")...)
		if err != nil {
			return paced{}, err
		}
		n, err := after(text, "total:")
		if err != nil {
			return paced{}, err
		}
		ms, err := after(text, "99th percentile:")
		return paced{uint64(n), time.Duration(ms * float64(time.Millisecond))}, err
	}}
}

// commandVariants are the commands next to a load at full speed, and programs that do
// nothing at the hooks of record.
func commandVariants(b *testing.B, port int) (all []variant) {
	slowray, err := filepath.Abs("../bin/slowray")
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range costCommands {
		all = append(all, variant{strings.Fields(c.name)[0], func() (func() (alongside, error), error) {
			stop, _, err := c.start(b, slowray, port)
			if err != nil {
				return nil, err
			}
			return func() (alongside, error) {
				used, err := stop()
				return alongside{cpu: used}, err
			}, nil
		}})
	}
	return append(all, variant{"hooks", func() (func() (alongside, error), error) {
		var probes []*emptyProbe
		end := func() (_ alongside, err error) {
			for _, p := range probes {
				err = errors.Join(err, p.Close())
			}
			return alongside{}, err
		}
		for _, at := range recordHooks {
			p, err := attachEmpty(at)
			if err != nil {
				_, closing := end()
				return nil, errors.Join(err, closing)
			}
			probes = append(probes, p)
		}
		return end, nil
	}})
}

// hostRan is for how long the host's CPUs have not been idle since some moment: of idle
// time /proc/stat tells what the kernel's clock says (get_idle_time, fs/proc/stat.c), while
// the ticks that its other columns count miss what runs between them, as loads do that a
// timer paces.
func hostRan(since time.Time) time.Duration {
	host := hostCPU()
	return time.Since(since)*time.Duration(runtime.NumCPU()) - (host.all - host.busy)
}

// costOf is what a command adds to the CPU time of each request, µs: of everything that
// ran on the host, in blocks without it, with it twice, and without it. p99 is how many
// times as long the slowest hundredth of requests take at least.
func costOf(b *testing.B, p plan, slowray string, c costCommand, l pacedLoad) (added, bare, p99 sample) {
	b.Helper()
	began := time.Now()
	block := func() (cost, p99 float64) {
		before := hostRan(began)
		came, err := l.run(p.length)
		if err != nil || came.requests == 0 {
			b.Fatalf("%s: %d requests: %v", l.name, came.requests, err)
		}
		return float64(hostRan(began)-before) / 1e3 / float64(came.requests), came.p99.Seconds()
	}
	block() // warm
	for range p.rounds {
		unlock, err := p.hold()
		if err != nil {
			b.Fatal(err)
		}
		first, early := block()
		stop, _, err := c.start(b, slowray, l.port)
		if err != nil {
			b.Fatal(err)
		}
		with, slow := block()
		more, slower := block()
		with = (with + more) / 2
		if _, err := stop(); err != nil {
			b.Fatal(err)
		}
		last, late := block()
		unlock()
		bare = append(bare, (first+last)/2)
		added = append(added, with-(first+last)/2)
		p99 = append(p99, (slow+slower)/(early+late))
		progress(b, fmt.Sprintf("%s at %d/s: %.1f µs, %s %+.2f µs, p99 × %.3f (%.2f ms)", l.name, l.rate, bare[len(bare)-1], c.name, added[len(added)-1], p99[len(p99)-1], 500*(early+late)))
	}
	return added, bare, p99
}

// bootstrap is the median of a sample and the interval in which it lies in 95 of 100 samples
// drawn from it. The mean would be that of the blocks in which others took the machine.
func bootstrap(s sample, seed uint64) (median, low, high float64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	medians := make(sample, 2000)
	drawn := make(sample, len(s))
	for n := range medians {
		for i := range drawn {
			drawn[i] = s[rng.IntN(len(s))]
		}
		medians[n] = drawn.median()
	}
	medians = medians.sorted()
	return s.median(), medians[len(medians)*25/1000], medians[len(medians)*975/1000]
}

// BenchmarkCost measures what each command costs at a fixed rate, both ends of each request
// on this host.
func BenchmarkCost(b *testing.B) {
	p := newPlan(b, 20)
	if os.Getenv("SLOWRAY_BENCH_SECONDS") == "" {
		p.length = 4 * time.Second
	}
	slowray := built(b)
	s := newStage(b)
	s.pinned = true
	var loads []pacedLoad
	add := func(name string, make func() pacedLoad) {
		if only := os.Getenv("SLOWRAY_BENCH_LOADS"); only == "" || slices.Contains(strings.Split(only, ","), name) {
			loads = append(loads, make())
		}
	}
	add("nginx", func() pacedLoad {
		web := newWebServer(s, 50, `return 200 "hello world\n";`)
		return s.pace("nginx, 12 bytes", "http", web.port, 20_000, 20)
	})
	add("mariadb", func() pacedLoad { return pacedDatabase(newDatabase(s), 8_000) })
	add("redis", func() pacedLoad {
		port := s.ports(1)[0]
		s.server(port, "redis-server", "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--dir", s.dir)
		return s.pace("Redis, GET", "redis", port, 20_000, 20)
	})
	add("http2", func() pacedLoad {
		port := s.ports(1)[0]
		cmd := "/proc/" + strconv.Itoa(os.Getpid()) + "/exe"
		os.Setenv("SLOWRAY_BENCH_ROLE", "http2")
		defer os.Unsetenv("SLOWRAY_BENCH_ROLE")
		s.server(port, cmd, fmt.Sprintf("127.0.0.1:%d", port))
		return s.pace("Go, HTTP/2", "http2", port, 4_000, 8)
	})
	commands := slices.DeleteFunc(slices.Clone(costCommands), func(c costCommand) bool {
		return p.only != nil && !slices.Contains(p.only, strings.Fields(c.name)[0])
	})
	var rows []string
	for b.Loop() {
		for _, l := range loads {
			for _, c := range commands {
				added, bare, p99 := costOf(b, p, slowray, c, l)
				median, low, high := bootstrap(added, p.seed)
				slower, least, most := bootstrap(p99, p.seed)
				rows = append(rows, fmt.Sprintf("| %s, %s/s | %.1f | `%s` | **%+.2f** (%+.2f to %+.2f) | × %.3f (%.3f to %.3f) | %d |",
					l.name, thousands(l.rate), bare.median(), c.name, median, low, high, slower, least, most, len(added)))
				reportFigures(b, l.name+" at "+thousands(l.rate)+"/s", figure{name: "µs of CPU added to a request, " + c.name, format: "%.2f", sample: added},
					figure{name: "p99, times that without, " + c.name, format: "%.3f", sample: p99})
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	keepTable(b, "cost", "| load | µs of CPU for a request, bare | next to it | µs added: median (95 %) | p99, times that without | pairs |\n|---|---|---|---|---|---|", rows)
}

func thousands(n int) string {
	text := strconv.Itoa(n)
	if len(text) > 3 {
		text = text[:len(text)-3] + "," + text[len(text)-3:]
	}
	return text
}

// keepTable puts a table into docs/cost.md, between the marks of its name, where
// SLOWRAY_BENCH_KEEP=1 asks for it.
func keepTable(b *testing.B, name, head string, rows []string) {
	b.Helper()
	if os.Getenv("SLOWRAY_BENCH_KEEP") != "1" || len(rows) == 0 {
		return
	}
	file := filepath.Join("..", "docs", "cost.md")
	text, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	begin, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->\n"
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		b.Fatalf("%s has no place for the table %q", file, name)
	}
	if err := os.WriteFile(file, []byte(before+begin+head+"\n"+strings.Join(rows, "\n")+"\n"+end+after), 0o644); err != nil {
		b.Fatal(err)
	}
}
