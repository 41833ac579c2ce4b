package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/sense/elffile/elfbomb"
)

// beServer makes the test binary a server at this address, whatever it is called and
// however it is started: slowray knows servers by their names and arguments.
const beServer = "SLOWRAY_TEST_BE_SERVER"

// serveTest answers requests, and computes for each, so that its functions are named.
// Those for /call/ADDRESS make it call that address; it fails those for /fail.
func serveTest(at string) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1, MaxIdleConns: 4096}}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", at)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to, ok := strings.CutPrefix(r.URL.Path, "/call/"); ok {
			if resp, err := client.Get("http://" + to + "/"); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			return
		}
		if r.URL.Path == "/fail" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		if r.URL.Path == "/compute" {
			for began := time.Now(); time.Since(began) < time.Millisecond; {
			}
		}
		_, _ = io.WriteString(w, "ok\n")
	}))
	os.Exit(2)
}

// bombs is a host on which several users want slowray to take all memory and time.
type bombs struct {
	t    *testing.T
	dir  string
	port int
}

// serve starts a server with this program, and requests it until the test ends.
func (b *bombs) serve(name, bomb string, rate int, args ...string) (at string) {
	b.t.Helper()
	b.port++
	at = fmt.Sprintf("127.0.0.1:%d", b.port)
	dir := filepath.Join(b.dir, strconv.Itoa(b.port))
	program := filepath.Join(dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := makeProgram(program, bomb); err != nil {
		b.t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), beServer+"="+at)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if rate > 0 {
		b.load(rate, func(int) string { return "http://" + at + "/compute" })
	}
	return at
}

// makeProgram is this program, with the sections of a bomb, or by another name.
func makeProgram(path, name string) error {
	if name == "" {
		return os.Link(os.Args[0], path)
	}
	base, err := os.ReadFile(os.Args[0])
	if err != nil {
		return err
	}
	for _, bomb := range elfbomb.All() {
		if bomb.Name == name {
			return bomb.Write(path, base)
		}
	}
	return fmt.Errorf("no bomb is called %q", name)
}

// load makes so many requests a second until the test ends.
func (b *bombs) load(rate int, url func(n int) string) {
	var clients sync.WaitGroup
	stop := make(chan struct{})
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 4}}
	const each = 4
	for c := range each {
		clients.Go(func() {
			ticker := time.NewTicker(time.Second * each / time.Duration(rate))
			defer ticker.Stop()
			for n := c; ; n += each {
				select {
				case <-stop:
					return
				case <-ticker.C:
				}
				if resp, err := client.Get(url(n)); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}
		})
	}
	b.t.Cleanup(func() {
		close(stop)
		clients.Wait()
		client.CloseIdleConnections()
	})
}

func (b *bombs) file(name, text string) string {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
	return path
}

// plant starts what is hostile.
func (b *bombs) plant(upstreams int) {
	for _, bomb := range []string{"zlib", "zstd", "symbols"} {
		b.serve("app-"+bomb, bomb, 40)
	}
	var doubled strings.Builder
	doubled.WriteString("Define A " + strings.Repeat("x", 14) + "\n")
	for range 28 {
		doubled.WriteString("Define A ${A}${A}\n")
	}
	doubled.WriteString("ErrorLog ${A}\n")
	b.serve("apache2", "", 20, "-f", b.file("doubled.conf", doubled.String()))

	large := b.file("large.conf", strings.Repeat("server_name a.example;\n", 4<<20/23))
	var includes strings.Builder
	includes.WriteString("http {\n")
	for range 5000 {
		includes.WriteString("include " + large + ";\n")
	}
	includes.WriteString("}\n")
	b.serve("nginx", "", 20, "-c", b.file("includes.conf", includes.String()))
	itself := filepath.Join(b.dir, "itself.conf")
	b.serve("nginx", "", 20, "-c", b.file("itself.conf", strings.Repeat("include "+itself+";\n", 100)))
	fifo := filepath.Join(b.dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o644); err != nil {
		b.t.Fatal(err)
	}
	b.serve("nginx", "", 20, "-c", b.file("endless.conf", "include "+fifo+";\ninclude /dev/zero;\n"))
	b.serve("nginx", "", 20, "-c", fifo)
	b.serve("nginx", "", 20, "-c", "/dev/zero")

	// A service that calls many addresses.
	b.port++
	_, port, _ := net.SplitHostPort(b.serveAll())
	gateway := b.serve("gateway", "", 0)
	b.load(600, func(n int) string {
		to := n % upstreams
		return fmt.Sprintf("http://%s/call/127.1.%d.%d:%s", gateway, to/250, 1+to%250, port)
	})
}

// serveAll serves on all addresses of loopback.
func (b *bombs) serveAll() string {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", fmt.Sprintf("0.0.0.0:%d", b.port))
	if err != nil {
		b.t.Fatal(err)
	}
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") }))
	}()
	b.t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// price is what a run of slowray took.
type price struct {
	wall, cpu time.Duration
	delays    delays
	peak      int64 // bytes resident
}

// delays is for how long each thread of slowray could have run, and had no CPU.
type delays map[int]time.Duration

// see looks at the threads of a run of slowray that are there.
func (d delays) see(pid int) {
	for _, p := range processesOf(pid) {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p))
		for _, name := range files {
			text, _ := os.ReadFile(name)
			tid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			if fields := strings.Fields(string(text)); len(fields) == 3 {
				ns, _ := strconv.ParseInt(fields[1], 10, 64)
				d[tid] = time.Duration(ns)
			}
		}
	}
}

// longest is that of one thread: a sum would count a moment once for each that waited.
func (d delays) longest() (most time.Duration) {
	for _, one := range d {
		most = max(most, one)
	}
	return most
}

// runPriced runs slowray until it ends.
func runPriced(t *testing.T, args ...string) (price, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), beSlowray+"=1")
	var out strings.Builder
	cmd.Stdout = &out
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := price{delays: delays{}}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // 1: something was found
		close(done)
	}()
	for {
		select {
		case <-done:
			p.wall, p.cpu = time.Since(began), cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()
			return p, out.String()
		case <-time.After(20 * time.Millisecond):
			p.peak = max(p.peak, highWater(cmd.Process.Pid))
			p.delays.see(cmd.Process.Pid)
		}
	}
}

// processesOf are those of a run of slowray: its front and the process that works.
func processesOf(pid int) []int {
	pids := []int{pid}
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, child := range strings.Fields(string(children)) {
		if n, err := strconv.Atoi(child); err == nil {
			pids = append(pids, n)
		}
	}
	return pids
}

// highWater is the most memory that a run of slowray had resident so far, bytes.
func highWater(pid int) (total int64) {
	for _, p := range processesOf(pid) {
		total += peakOf(p)
	}
	return total
}

func peakOf(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10
		}
	}
	return 0
}

// What slowray may take next to programs that were made to take all. How long it takes
// without them is measured, too: on CPUs that others fill, loading and detaching programs
// alone takes seconds. What a thread waited for a CPU is taken off both: others may come
// and go in between.
const (
	bombsLate = 2 * time.Second // longer than without them
	bombsPeak = 300 << 20
)

// TestBombsAtOnce has slowray watch a host with all that is known to be hostile, and
// 1,500 upstreams.
func TestBombsAtOnce(t *testing.T) {
	if os.Getuid() != 0 || testing.Short() {
		t.Skip("SKIP: needs root and a minute: what slowray takes next to hostile programs is NOT tested")
	}
	const least = 2 * time.Second
	plain, _ := runPriced(t, "why", "--for", least.String())
	usual := plain.wall - least - plain.delays.longest()
	t.Logf("without them: why: %s more than the window and %s without a CPU, %s of CPU, at most %d MB", usual, plain.delays.longest(), plain.cpu, plain.peak>>20)
	b := &bombs{t: t, dir: t.TempDir(), port: 20_400}
	b.plant(1500)
	time.Sleep(4 * time.Second) // all upstreams are connected
	const window = 8 * time.Second
	p, out := runPriced(t, "why", "--for", window.String(), "--all")
	late := p.wall - window - p.delays.longest()
	t.Logf("why: %s more than the window and %s without a CPU, %s of CPU, at most %d MB", late, p.delays.longest(), p.cpu, p.peak>>20)
	if late -= usual; late > bombsLate {
		t.Errorf("why took %s longer than without them, want at most %s", late, bombsLate)
	}
	if p.peak > bombsPeak {
		t.Errorf("why had %d MB resident, want at most %d", p.peak>>20, bombsPeak>>20)
	}
	// Without these nothing hostile was read.
	for _, told := range []string{"nginx", "apache", "budget"} {
		if !strings.Contains(out, told) {
			t.Errorf("the report says nothing of %s:\n%s", told, out)
		}
	}

	began := time.Now()
	l := startRecorder(t, filepath.Join(t.TempDir(), "history"), "--window", window.String())
	started := time.Since(began)
	var peak int64
	without := delays{}
	judged := time.Time{}
	for deadline := time.Now().Add(time.Minute); judged.IsZero() && time.Now().Before(deadline); {
		select {
		case e, ok := <-l.lines:
			if !ok {
				t.Fatal("the recorder ended")
			}
			if e.Event == "window" {
				judged = time.Now()
			}
		case <-time.After(20 * time.Millisecond):
		}
		peak = max(peak, highWater(l.cmd.Process.Pid))
		without.see(l.cmd.Process.Pid)
	}
	_ = l.cmd.Process.Signal(syscall.SIGTERM)
	_ = l.cmd.Wait()
	cpu := l.cmd.ProcessState.UserTime() + l.cmd.ProcessState.SystemTime()
	late = judged.Sub(l.began) - window - without.longest()
	t.Logf("record: began after %s, its first window was judged %s after its end and %s without a CPU, %s of CPU, at most %d MB", started, late, without.longest(), cpu, peak>>20)
	if judged.IsZero() || late-usual > bombsLate {
		t.Errorf("record judged its first window %s late, want at most %s more than %s", late, bombsLate, usual)
	}
	if peak > bombsPeak {
		t.Errorf("record had %d MB resident, want at most %d", peak>>20, bombsPeak>>20)
	}
}
