package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	sockets   = 30_000 // both ends of 15,000 connections
	processes = 500
	groups    = 200   // control groups, with a process each
	rules     = 2_000 // of the firewall
	window    = 10 * time.Second
)

// groupRoots are the hierarchies in which groups are made: version 1, or 2.
func groupRoots() []string {
	var roots []string
	for _, root := range []string{"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/memory"} {
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err == nil {
			roots = append(roots, root)
		}
	}
	if roots == nil {
		return []string{"/sys/fs/cgroup"}
	}
	return roots
}

// intoGroup makes a control group below those of the benchmark and moves a
// process of the world there.
func intoGroup(name string, n, pid int) error {
	for _, root := range groupRoots() {
		dir := filepath.Join(root, name, strconv.Itoa(n))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return err
		}
	}
	return nil
}

// removeGroups removes what intoGroup made, once its processes have ended.
func removeGroups(b *testing.B, name string) {
	for _, root := range groupRoots() {
		top := filepath.Join(root, name)
		for n := range groups {
			dir := filepath.Join(top, strconv.Itoa(n))
			for range 50 {
				if err := os.Remove(dir); !errors.Is(err, syscall.EBUSY) {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
		}
		if err := os.Remove(top); err != nil && !errors.Is(err, fs.ErrNotExist) {
			b.Error(err)
		}
	}
}

// firewall gives the namespace a table with many rules, which what goes over
// loopback need not pass.
func firewall() error {
	var text strings.Builder
	text.WriteString("table inet bench {\n chain input { type filter hook input priority 0; policy accept;\n iif lo accept\n")
	for n := range rules {
		fmt.Fprintf(&text, "ip saddr 192.0.2.%d tcp dport %d drop\n", n%250+1, n+1)
	}
	text.WriteString("}\n}\n")
	nft := exec.Command("nft", "-f", "-")
	nft.Stdin, nft.Stderr = strings.NewReader(text.String()), os.Stderr
	return nft.Run()
}

func TestMain(m *testing.M) {
	switch os.Getenv("SLOWRAY_BENCH_ROLE") {
	case "world":
		world()
	case "client":
		client(os.Args[1])
	case "recorder":
		recorder()
	case "pacer":
		pacer(os.Args[1:])
	case "http2":
		http2Server(os.Args[1])
	case "grpc":
		grpcServer(os.Args[1:])
	case "connections":
		connections(os.Args[1:])
	case "blockers":
		n, _ := strconv.Atoi(os.Args[1])
		blockers(n)
	default:
		code := m.Run()
		printSummary(os.Stdout)
		os.Exit(code)
	}
}

// world is process 1 of a private pid and network namespace: it serves the
// connections, and everything in it ends with it.
func world() {
	if err := exec.Command("ip", "link", "set", "lo", "up").Run(); err != nil {
		fail("bring lo up", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fail("listen", err)
	}
	if err := firewall(); err != nil {
		fail("firewall", err)
	}
	for n := range processes {
		sleep := exec.Command("sleep", "600")
		if err := sleep.Start(); err != nil {
			fail("start sleep", err)
		}
		if n < groups {
			if err := intoGroup(os.Args[1], n, sleep.Process.Pid); err != nil {
				fail("control group", err)
			}
		}
	}
	c := exec.Command("/proc/self/exe", l.Addr().String())
	c.Env = append(os.Environ(), "SLOWRAY_BENCH_ROLE=client")
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		fail("start client", err)
	}
	held := make([]net.Conn, 0, sockets/2)
	for len(held) < sockets/2 {
		conn, err := l.Accept()
		if err != nil {
			fail("accept", err)
		}
		held = append(held, conn)
	}
	fmt.Println("ready")
	// A little traffic, so that there is a service to look at: the first 50
	// connections answer whatever they are asked.
	for _, conn := range held[:50] {
		go echo(conn)
	}
	os.Stdin.Read(make([]byte, 1)) // until the benchmark closes the pipe
	os.Exit(0)
}

func client(addr string) {
	var held []net.Conn
	for len(held) < sockets/2 {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			fail("dial", err)
		}
		held = append(held, conn)
	}
	for _, conn := range held[:50] {
		go func() {
			b := make([]byte, 1)
			for {
				conn.Write(b)
				conn.Read(b)
				time.Sleep(50 * time.Millisecond)
			}
		}()
	}
	select {}
}

func echo(conn net.Conn) {
	b := make([]byte, 1)
	for {
		if _, err := conn.Read(b); err != nil {
			return
		}
		conn.Write(b)
	}
}

func fail(what string, err error) {
	fmt.Fprintln(os.Stderr, what+":", err)
	os.Exit(1)
}

func startWorld(b *testing.B) {
	b.Helper()
	if os.Getuid() != 0 {
		b.Skip("needs root, for namespaces and BPF")
	}
	name := fmt.Sprintf("slowray-bench-%d", os.Getpid())
	b.Cleanup(func() { removeGroups(b, name) }) // after the world has ended
	cmd := exec.Command("/proc/self/exe", name)
	cmd.Env = append(os.Environ(), "SLOWRAY_BENCH_ROLE=world")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	stop, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		stop.Close()
		cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		b.Fatalf("world: %q, %v", line, err)
	}
}

// firstLine notes when something was first written.
type firstLine struct {
	once sync.Once
	at   time.Time
}

func (f *firstLine) Write(p []byte) (int, error) {
	f.once.Do(func() { f.at = time.Now() })
	return len(p), nil
}

// cpuAt is the CPU seconds a process had used at a moment.
type cpuAt struct {
	at  time.Time
	cpu float64
}

// followCPU reads the CPU time of a process every 20 ms until it ends, from
// the schedstat of its threads: to the nanosecond, where stat has ticks.
func followCPU(pid int, out chan<- []cpuAt) {
	var all []cpuAt
	used := map[string]uint64{} // by thread, so that one that ends still counts
	for {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		if len(files) == 0 {
			out <- all
			return
		}
		for _, f := range files {
			text, _ := os.ReadFile(f)
			if first, _, ok := strings.Cut(string(text), " "); ok {
				if n, err := strconv.ParseUint(first, 10, 64); err == nil {
					used[f] = n
				}
			}
		}
		sum := uint64(0)
		for _, n := range used {
			sum += n
		}
		all = append(all, cpuAt{time.Now(), float64(sum) / 1e9})
		time.Sleep(20 * time.Millisecond)
	}
}

// cpuUntil is the CPU time used up to a moment.
func cpuUntil(all []cpuAt, t time.Time) float64 {
	last := 0.0
	for _, s := range all {
		if s.at.After(t) {
			break
		}
		last = s.cpu
	}
	return last
}

// BenchmarkWindow runs slowray once for each iteration, and reports the worst
// figures that matter to whoever waits for it: cpu_% of one CPU inside the
// window, CPU seconds from start to end, seconds from the window's end to the verdict, peak memory, and seconds to
// the first line of progress.
func BenchmarkWindow(b *testing.B) {
	slowray := built(b)
	startWorld(b)
	var cpu, total, verdict, memory, first float64
	for b.Loop() {
		var out bytes.Buffer
		progress := &firstLine{}
		cmd := exec.Command(slowray, "why", "--json", "--for", window.String())
		cmd.Stdout, cmd.Stderr = &out, progress
		begin := time.Now()
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		samples := make(chan []cpuAt, 1)
		go followCPU(cmd.Process.Pid, samples)
		err := cmd.Wait()
		end := time.Now()
		if code := cmd.ProcessState.ExitCode(); err != nil && code != 1 {
			b.Fatalf("slowray: %v", err)
		}
		var report struct {
			Window struct {
				Start   time.Time
				Seconds float64
			}
		}
		if err := json.Unmarshal(out.Bytes(), &report); err != nil {
			b.Fatal(err)
		}
		over := report.Window.Start.Add(time.Duration(report.Window.Seconds * float64(time.Second)))
		use := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		spent := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		followed := <-samples
		cpu = max(cpu, 100*(cpuUntil(followed, over)-cpuUntil(followed, report.Window.Start))/report.Window.Seconds)
		total = max(total, spent.Seconds())
		verdict = max(verdict, end.Sub(over).Seconds())
		memory = max(memory, float64(use.Maxrss)/1024)
		first = max(first, progress.at.Sub(begin).Seconds())
	}
	b.ReportMetric(cpu, "cpu_%")
	b.ReportMetric(total, "cpu_s_in_all")
	b.ReportMetric(verdict, "s_to_verdict")
	b.ReportMetric(memory, "MB_peak")
	b.ReportMetric(first, "s_to_progress")
	b.ReportMetric(0, "ns/op")
	b.Logf("%d sockets, %d processes, %d control groups, %d firewall rules, window %s", sockets, processes, groups, rules, window)
}
