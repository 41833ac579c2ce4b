package rootfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs/hangtest"
	"github.com/slowray/slowray/internal/sense/host"
)

// threads is how many threads this process has.
func threads(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// askAll has file systems in user space asked, as those over the network are.
func askAll(t *testing.T) {
	was := inUserSpace
	inUserSpace = func(*host.Mount) bool { return false }
	t.Cleanup(func() { inUserSpace = was })
}

// TestFileSystemInUserSpace: none is asked anything, whether it answers or not, and
// what lies next to it is read as ever.
func TestFileSystemInUserSpace(t *testing.T) {
	for _, never := range []hangtest.Question{0, hangtest.Lookup, hangtest.GetAttr, hangtest.Read} {
		p := hangtest.Mount(t, never)
		r := At(fmt.Sprintf("/proc/%d/root", p.PID), enough())
		began := time.Now()
		for name, read := range map[string]func(string) error{
			"ReadFile": func(n string) error { _, _, err := r.ReadFile(n, 100); return err },
			"Open":     func(n string) error { _, err := r.Open(n); return err },
			"Stat":     func(n string) error { _, err := r.Stat(n); return err },
			"ReadDir":  func(n string) error { _, err := r.ReadDir(n); return err },
			"Glob":     func(n string) error { _, err := r.Glob(n + "*"); return err },
		} {
			for _, n := range []string{hangtest.Dir + "/file", hangtest.Dir + "/../mnt/none/x"} {
				if err := read(n); !errors.Is(err, ErrUserSpace) {
					t.Errorf("%s(%s): %v", name, n, err)
				}
			}
		}
		if took := time.Since(began); took > time.Second || p.Unanswered() > 0 {
			t.Errorf("it took %s, and was asked %d times", took, p.Unanswered())
		}
		if _, err := r.Stat("/etc/passwd"); err != nil {
			t.Error(err)
		}
	}
}

// A file system that does not answer keeps one thread, and nobody waiting for long;
// what lies next to it is read as ever.
func TestFileSystemThatDoesNotAnswer(t *testing.T) {
	askAll(t)
	for what, never := range map[string]hangtest.Question{"lookup": hangtest.Lookup, "getattr": hangtest.GetAttr, "open": hangtest.Open, "read": hangtest.Read} {
		t.Run(what, func(t *testing.T) {
			p := hangtest.Mount(t, never)
			before := threads(t)
			began := time.Now()
			for range 100 {
				b := budget.New(context.Background(), budget.Limits{Wall: 50 * time.Millisecond})
				r := At(fmt.Sprintf("/proc/%d/root", p.PID), b)
				_, _, err := r.ReadFile(hangtest.Dir+"/file", 100)
				if !errors.Is(err, ErrNoAnswer) {
					t.Fatalf("%v", err)
				}
				if !strings.Contains(err.Error(), hangtest.Dir+"/file: the file system does not answer") {
					t.Errorf("%v", err)
				}
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it was waited for %s", took)
			}
			if more := threads(t) - before; more > 8 {
				t.Errorf("%d threads are stuck", more)
			}
			r := At(fmt.Sprintf("/proc/%d/root", p.PID), enough())
			if text, _, err := r.ReadFile("/etc/hostname", 1000); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a file next to it: %q, %v", text, err)
			}
			if names, err := r.ReadDir("/etc"); err != nil || len(names) == 0 {
				t.Errorf("a directory next to it: %v", err)
			}
			if n := p.Unanswered(); n > 3 {
				t.Errorf("it was asked %d times", n)
			}
		})
	}
}

// One that does answer is read, whoever else reads it.
func TestFileSystemThatAnswers(t *testing.T) {
	askAll(t)
	p := hangtest.Mount(t, 0)
	r := At(fmt.Sprintf("/proc/%d/root", p.PID), enough())
	text, _, err := r.ReadFile(hangtest.Dir+"/file", 100)
	if err != nil || text != hangtest.Text {
		t.Fatalf("%q, %v", text, err)
	}
	f, err := r.Open(hangtest.Dir + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Fstat()
	if err != nil || st.Size != int64(len(hangtest.Text)) {
		t.Errorf("%d bytes, %v", st.Size, err)
	}
	b := make([]byte, 10)
	if n, err := f.ReadAt(b, 1); string(b[:n]) != hangtest.Text[1:] {
		t.Errorf("%q, %v", b[:n], err)
	}
	if _, err := r.Open(hangtest.Dir + "/none"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		gates.Lock()
		left := len(gates.at)
		gates.Unlock()
		if left == 0 {
			break // also of those that were left behind by other tests
		}
		if time.Now().After(end) {
			t.Fatalf("%d gates are left", left)
		}
	}
}

// A file system that comes back is read again.
func TestFileSystemThatComesBack(t *testing.T) {
	o := &op{wait: 20 * time.Millisecond}
	release := make(chan struct{})
	_, err := aside(o, func(o *op) (int, error) {
		if err := o.enter("0:99"); err != nil {
			return 0, err
		}
		<-release
		return 1, nil
	})
	if !errors.Is(err, ErrNoAnswer) {
		t.Fatal(err)
	}
	try := func() error {
		_, err := aside(&op{wait: time.Second}, func(o *op) (int, error) { return 2, o.enter("0:99") })
		return err
	}
	if err := try(); !errors.Is(err, ErrNoAnswer) {
		t.Error("a second one went there:", err)
	}
	close(release)
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		if err := try(); err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal("it is never read again")
		}
	}
}
