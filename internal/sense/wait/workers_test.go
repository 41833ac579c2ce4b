package wait

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/sense/host"
)

// A master is looked at with what it forked, by whatever name, but not with programs that
// it started; a worker alone.
func TestMasterAndWorkers(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "p"), 0o600); err != nil {
		t.Fatal(err)
	}
	const script = `(read x <p; :) & echo $!; (echo "w: worker" >/proc/self/comm; read x <p; :) & echo $!; sleep 25 & echo $!; wait`
	master := exec.Command("sh", "-c", script)
	master.Dir = dir
	master.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	said, err := master.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := master.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Kill(-master.Process.Pid, unix.SIGKILL)
		_ = master.Wait()
	})
	var pids []int
	var text bytes.Buffer
	for len(pids) < 3 {
		if _, err := io.CopyN(&text, said, 1); err != nil {
			t.Fatal(err)
		}
		if pids = nil; strings.HasSuffix(text.String(), "\n") {
			for line := range strings.FieldsSeq(text.String()) {
				pid, _ := strconv.Atoi(line)
				pids = append(pids, pid)
			}
		}
	}
	look := func(pid int) (workers []int, groups [][]int) {
		w, err := NewReader(host.Default()).Look(t.Context(), pid, 10*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range w.Workers {
			workers = append(workers, p.PID)
		}
		for _, c := range w.Chains {
			groups = append(groups, c.Threads)
		}
		if w.Looked != len(workers)+1 {
			t.Errorf("%d threads looked at of %d workers", w.Looked, len(workers))
		}
		return workers, groups
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		workers, groups := look(master.Process.Pid)
		alike := slices.ContainsFunc(groups, func(g []int) bool { return slices.Equal(g, pids[:2]) })
		if slices.Equal(workers, pids[:2]) && alike && name(t, pids[1]) == "w: worker" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("workers %v of %v, threads that wait alike %v", workers, pids, groups)
		}
	}
	if workers, _ := look(pids[0]); len(workers) > 0 {
		t.Errorf("a worker has workers: %v", workers)
	}
}

func name(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}
