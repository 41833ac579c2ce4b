package bench

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/slowray/slowray/internal/bpf"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
)

// pollEvery is the pace at which the rings are drained, flushEvery that at
// which idle connections are looked at: those of slowray.
const (
	pollEvery  = 20 * time.Millisecond
	flushEvery = time.Second
)

// recorderSpec is what the recorder's process gets.
type recorderSpec struct {
	Options request.Options
	Discard bool // do not sum records up: what is left is the kernel's and the ring's cost
	Deaf    bool // do not even drain the rings
}

// everything records every request at both ends, whatever it costs.
var everything = recorderSpec{Options: request.Options{Budget: -1}}

// recorderReport is what the recorder's process saw and used since it was
// ready, or since its last report.
type recorderReport struct {
	Endpoints    []observe.Endpoint
	Stats        request.Stats // since the start
	CPU          time.Duration // of this process
	LongestFlush time.Duration
	Resident     int64 // bytes
	MapBytes     int64 // of all BPF maps, as the kernel accounts for them
	Programs     []programCost
}

// programCost is the kernel's own account of a BPF program; zero unless its
// statistics are on.
type programCost struct {
	Name string
	Runs uint64
	Time time.Duration
}

// recorded is the number of requests with a record, at all ends of the
// connections to a port.
func (r *recorderReport) recorded(port int, sides ...string) uint64 {
	var sum uint64
	for _, e := range r.Endpoints {
		if e.Port == port && (len(sides) == 0 || e.Side == sides[0]) {
			sum += e.Recorded
		}
	}
	return sum
}

// records is the number of records at all endpoints.
func (r *recorderReport) records() uint64 {
	var sum uint64
	for _, e := range r.Endpoints {
		sum += e.Recorded
	}
	return sum
}

// recorder is the process that records: apart from everything else, as slowray
// is. It says when it is ready, and reports for each line that it is sent.
func recorder() {
	var spec recorderSpec
	if err := json.Unmarshal([]byte(os.Args[1]), &spec); err != nil {
		fail("recorder", err)
	}
	begin := time.Now()
	r, err := request.Start(spec.Options)
	if err != nil {
		fail("start recorder", err)
	}
	fmt.Println(time.Since(begin).Nanoseconds())

	lines := make(chan struct{})
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			lines <- struct{}{}
		}
		close(lines)
	}()
	var table *request.Table
	var each func(*observe.Request)
	var cpu, flush time.Duration
	reset := func() {
		table, cpu, flush = request.NewTable(time.Now()), ownCPU(), 0
		if each = table.Add; spec.Discard {
			each = func(*observe.Request) {}
		}
	}
	reset()
	poll, idle := time.NewTicker(pollEvery), time.NewTicker(flushEvery)
	flushNow := func() {
		begin := time.Now()
		if err := r.Flush(); err != nil {
			fail("flush", err)
		}
		flush = max(flush, time.Since(begin))
	}
	for {
		select {
		case <-poll.C:
			if !spec.Deaf {
				r.Poll(each)
			}
		case <-idle.C:
			flushNow()
		case _, more := <-lines:
			if !more {
				r.Close()
				os.Exit(0)
			}
			flushNow()
			r.Poll(each)
			report := recorderReport{
				CPU: ownCPU() - cpu, LongestFlush: flush, Stats: r.Stats(), Resident: resident(),
				Endpoints: table.Endpoints(time.Now(), r.Counters()),
			}
			for i := range report.Endpoints { // no need of the histograms
				e := &report.Endpoints[i]
				e.Parts, e.Total, e.RTT = nil, observe.Histogram{}, observe.Histogram{}
			}
			report.Programs, report.MapBytes = ownBPF()
			if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
				fail("report", err)
			}
			reset()
		}
	}
}

func ownCPU() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// resident is the memory that this process has in use, bytes. The BPF maps that
// it maps are left out: they are the kernel's, and counted there.
func resident() (bytes int64) {
	text, _ := os.ReadFile("/proc/self/smaps")
	maps := false
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) > 0 && !strings.HasSuffix(fields[0], ":"): // a mapping begins
			maps = strings.Contains(line, "bpf-map")
		case len(fields) > 1 && fields[0] == "Rss:" && !maps:
			kb, _ := strconv.ParseInt(fields[1], 10, 64)
			bytes += kb * 1024
		}
	}
	return bytes
}

// ownBPF finds the programs and maps of this process.
func ownBPF() (programs []programCost, mapBytes int64) {
	ids, _ := bpf.OwnPrograms() // none counts as none
	for _, id := range ids {
		if st, ok := bpf.ProgramStats(id); ok {
			programs = append(programs, programCost{bpf.ProgramName(id), st.RunCount, st.Runtime})
		}
	}
	files, _ := filepath.Glob("/proc/self/fdinfo/*")
	seen := map[string]bool{}
	for _, f := range files {
		text, _ := os.ReadFile(f)
		info := map[string]string{}
		for line := range strings.Lines(string(text)) {
			key, value, _ := strings.Cut(line, ":")
			info[key] = strings.TrimSpace(value)
		}
		if id := info["map_id"]; id != "" && !seen[id] {
			seen[id] = true
			n, _ := strconv.ParseInt(info["memlock"], 10, 64)
			mapBytes += n
		}
	}
	return programs, mapBytes
}

// dialogue is a process of ours that answers one line to one line.
type dialogue struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// converse starts a process with pipes.
func converse(cmd *exec.Cmd, start func(*exec.Cmd) error) (*dialogue, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	return &dialogue{cmd, in, bufio.NewReaderSize(out, 1<<16)}, start(cmd)
}

func (d *dialogue) line() (string, error) {
	line, err := d.out.ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}

func (d *dialogue) ask(what string) (string, error) {
	if _, err := io.WriteString(d.in, what+"\n"); err != nil {
		return "", err
	}
	return d.line()
}

// end closes the pipe, which ends the process.
func (d *dialogue) end() error {
	d.in.Close()
	return d.cmd.Wait()
}

// runningRecorder is a recorder's process.
type runningRecorder struct {
	*dialogue
	attach time.Duration // what Start took
}

func startRecorder(spec recorderSpec) (*runningRecorder, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/proc/self/exe", string(text))
	cmd.Env = append(os.Environ(), "SLOWRAY_BENCH_ROLE=recorder")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	d, err := converse(cmd, (*exec.Cmd).Start)
	if err != nil {
		return nil, err
	}
	line, err := d.line()
	if err != nil {
		return nil, fmt.Errorf("recorder: %w", err)
	}
	ns, err := strconv.ParseInt(line, 10, 64)
	return &runningRecorder{d, time.Duration(ns)}, err
}

func (r *runningRecorder) report() (*recorderReport, error) {
	line, err := r.ask("report")
	if err != nil {
		return nil, fmt.Errorf("recorder: %w", err)
	}
	report := &recorderReport{}
	return report, json.Unmarshal([]byte(line), report)
}

func (r *runningRecorder) stop() (*recorderReport, error) {
	report, err := r.report()
	if err != nil {
		r.end()
		return nil, err
	}
	return report, r.end()
}

// recorderVariant runs a recorder next to the load.
func recorderVariant(name string, spec recorderSpec) variant {
	return variant{name, func() (func() (alongside, error), error) {
		r, err := startRecorder(spec)
		if err != nil {
			return nil, err
		}
		return func() (alongside, error) {
			report, err := r.stop()
			if err != nil {
				return alongside{}, err
			}
			return alongside{cpu: report.CPU, recorder: report}, nil
		}, nil
	}}
}
