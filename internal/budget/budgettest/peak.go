package budgettest

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Used is what a process took.
type Used struct {
	Peak   int64 // bytes of memory at most (VmHWM, proc_pid_status(5))
	CPU    time.Duration
	Wall   time.Duration
	Output string // standard output and error
}

// In the environment of processes that Peak starts: the name of the test, and what
// was made for it.
const (
	childKey = "BUDGETTEST_CHILD"
	argsKey  = "BUDGETTEST_ARGS"
)

// Peak runs f in a process of its own, this test binary again, in which the test
// that calls it comes here again: so that what other tests took does not count,
// and what f must not do to this process, as to end because memory ran out, harms none.
// What f needs, as the names of files, is made by prepare, in this process alone.
// A test calls Peak once. What the process prints is returned.
func Peak(t *testing.T, prepare func() []string, f func(args []string)) Used {
	t.Helper()
	if os.Getenv(childKey) == t.Name() {
		f(strings.Split(os.Getenv(argsKey), "\n"))
		report := os.NewFile(reportFD, "report")
		fmt.Fprint(report, highWater())
		report.Close()
		t.SkipNow()
	}
	args := prepare()
	var parts []string
	for part := range strings.SplitSeq(t.Name(), "/") {
		parts = append(parts, "^"+regexp.QuoteMeta(part)+"$")
	}
	cmd := exec.Command("/proc/self/exe", "-test.run", strings.Join(parts, "/"), "-test.timeout", "5m")
	cmd.Env = append(os.Environ(), childKey+"="+t.Name(), argsKey+"="+strings.Join(args, "\n"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd.ExtraFiles = []*os.File{w}
	began := time.Now()
	out, err := cmd.CombinedOutput()
	w.Close()
	u := Used{Wall: time.Since(began), Output: string(out)}
	if err != nil {
		t.Fatalf("after %v: %v: %.2000s", u.Wall, err, out)
	}
	// Not what wait4(2) tells: that begins with what this process had when it
	// started the other (setmax_mm_hiwater_rss, fs/exec.c).
	if _, err := fmt.Fscan(r, &u.Peak); err != nil {
		t.Fatalf("how much memory it took: %v", err)
	}
	u.CPU = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return u
}

// reportFD is where the other process writes how much memory it took.
const reportFD = 3

// highWater is the most memory that this process had at a time, bytes.
func highWater() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kb int64
	fmt.Sscan(rest, &kb)
	return kb << 10
}
