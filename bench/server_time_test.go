package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"
)

const (
	blockedThreads = 2_000 // of the processes that `slowray wait` looks at
	waitProcesses  = 20
	profileFor     = 10 * time.Second
	profileHz      = 99
)

// blockers is a process with many threads, each blocked in a read of a pipe
// that the process itself holds the other end of.
func blockers(n int) {
	for range n {
		var p [2]int
		if err := syscall.Pipe(p[:]); err != nil {
			fail("pipe", err)
		}
		go func() {
			runtime.LockOSThread()
			syscall.Read(p[0], make([]byte, 1))
		}()
	}
	for {
		tasks, _ := os.ReadDir("/proc/self/task")
		if len(tasks) >= n {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println("ready")
	os.Stdin.Read(make([]byte, 1)) // until the benchmark closes the pipe
	os.Exit(0)
}

// built is the program that make build made.
func built(b *testing.B) string {
	b.Helper()
	if os.Getuid() != 0 {
		b.Skip("needs root")
	}
	slowray, err := filepath.Abs("../bin/slowray")
	if err != nil {
		b.Fatal(err)
	}
	if _, err := os.Stat(slowray); err != nil {
		b.Skip("bin/slowray is not built: make build")
	}
	return slowray
}

// startRole starts this program again in a role, and waits until it is ready.
func startRole(b *testing.B, role string, args ...string) *exec.Cmd {
	b.Helper()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), "SLOWRAY_BENCH_ROLE="+role)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
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
	if n, err := out.Read(make([]byte, 16)); err != nil || n == 0 {
		b.Fatalf("%s did not get ready: %v", role, err)
	}
	return cmd
}

// exitCode is the exit status of a program that ran.
func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

// BenchmarkWait asks what a process with 100 blocked threads waits for, on a
// host that has 2,000 of them: the time beyond the pause between its two looks.
// Target: 100 ms.
func BenchmarkWait(b *testing.B) {
	slowray := built(b)
	var pid int
	for range waitProcesses {
		pid = startRole(b, "blockers", strconv.Itoa(blockedThreads/waitProcesses)).Process.Pid
	}
	const pause = 200 * time.Millisecond
	var worst time.Duration
	for b.Loop() {
		begin := time.Now()
		out, err := exec.Command(slowray, "wait", strconv.Itoa(pid), "--for", pause.String()).CombinedOutput()
		took := time.Since(begin) - pause
		if code := exitCode(err); code < 0 || code > 1 || !bytes.Contains(out, []byte("threads")) { // 1: it found something
			b.Fatalf("slowray wait: %v\n%s", err, out)
		}
		worst = max(worst, took)
	}
	b.ReportMetric(float64(worst)/1e6, "ms_beyond_the_pause")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkProfile records the stacks of the whole host at 99 Hz, while a
// process of each CPU computes: cpu_% of one CPU that the recording takes while
// it lasts, and CPU seconds in all, with the file that it writes. Target: 1 %.
func BenchmarkProfile(b *testing.B) {
	for _, load := range []struct {
		name string
		argv []string
	}{
		{"Native", []string{"sha256sum", "/dev/zero"}},
		{"Python", []string{"python3", "-c", "def f(n):\n  return sum(i*i for i in range(n))\nwhile True: f(1000)"}},
	} {
		b.Run(load.name, func(b *testing.B) {
			slowray := built(b)
			if _, err := exec.LookPath(load.argv[0]); err != nil {
				b.Skip(err)
			}
			for range runtime.NumCPU() {
				c := exec.Command(load.argv[0], load.argv[1:]...)
				c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
				if err := c.Start(); err != nil {
					b.Fatal(err)
				}
				defer func() {
					c.Process.Kill()
					c.Wait()
				}()
			}
			var share, total float64
			for b.Loop() {
				var out bytes.Buffer
				cmd := exec.Command(slowray, "flame", "--hz", strconv.Itoa(profileHz), "--for", profileFor.String(), "-o", filepath.Join(b.TempDir(), "stacks.pb.gz"))
				cmd.Stdout, cmd.Stderr = &out, &out
				if err := cmd.Start(); err != nil {
					b.Fatal(err)
				}
				samples := make(chan []cpuAt, 1)
				go followCPU(cmd.Process.Pid, samples)
				if err := cmd.Wait(); err != nil {
					b.Fatalf("slowray flame: %v\n%s", err, out.String())
				}
				all := <-samples
				// It begins with loading programs and ends with writing:
				// the middle of it is recording and nothing else.
				from, to := all[0].at.Add(2*time.Second), all[0].at.Add(profileFor-time.Second)
				share = max(share, 100*(cpuUntil(all, to)-cpuUntil(all, from))/to.Sub(from).Seconds())
				total = max(total, (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds())
			}
			b.ReportMetric(share, "cpu_%")
			b.ReportMetric(total, "cpu_s_in_all")
			b.ReportMetric(0, "ns/op")
		})
	}
}
