package server

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestProgramsAreClean: the compiler has nothing to say about the services.
func TestProgramsAreClean(t *testing.T) {
	for _, check := range [][]string{
		{"gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-fsyntax-only", "programs/booking.c"},
		{python, "-I", "-c", "compile(open('programs/booking.py').read(), 'booking.py', 'exec')"},
	} {
		if _, err := exec.LookPath(check[0]); err != nil {
			t.Logf("SKIPPED: %v", err)
			continue
		}
		if out, err := exec.Command(check[0], check[1:]...).CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", check, err, out)
		}
	}
}

// TestLogReader: it reads all, at once or in its own time, and ends with the log.
func TestLogReader(t *testing.T) {
	for _, pause := range []time.Duration{0, 30 * time.Millisecond} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		old := os.Stdin
		os.Stdin = r
		done := make(chan error, 1)
		go func() { done <- (&alongsideSpec{LogPause: pause}).readLog() }()
		began := time.Now()
		for range 8 {
			if _, err := w.Write(make([]byte, 32<<10)); err != nil {
				t.Fatal(err)
			}
		}
		w.Close()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the log has ended, and its reader has not")
		}
		if took := time.Since(began); took < 3*pause {
			t.Errorf("a reader that pauses for %v took %v", pause, took)
		}
		os.Stdin = old
		r.Close()
	}
}

func TestImageHasTheProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "image.tar")
	want, _ := programs.ReadFile("programs/booking.py")
	if err := writeImage(path, map[string]string{"app/booking.py": string(want)}); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("tar", "-xOf", path, "app/booking.py").Output()
	if err != nil || string(out) != string(want) {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}

func TestPythonOptions(t *testing.T) {
	got := Python{Workers: 4, Loop: true, Log: 7}.options()
	if want := []string{"--workers", "4", "--log", "7", "--loop"}; len(got) != len(want) || got[0] != want[0] || got[4] != want[4] {
		t.Errorf("got %q, want %q", got, want)
	}
}
