package change

import (
	"bytes"
	"crypto/sha256"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/slowray/slowray/internal/sense/host"
)

// What a service runs and is configured by has the same version wherever it is the same,
// and another one when either changes.
func TestVersions(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIP: needs root, to see the files as a process does")
	}
	dir := t.TempDir()
	put(t, dir, "a/app.sh", "read line\n")
	put(t, dir, "a/app.yaml", "workers: 4\n")
	put(t, dir, "b/app.sh", "read line\n")
	put(t, dir, "b/app.yaml", "workers: 4\n")
	put(t, dir, "conf/main.conf", "include x\n")
	begin := func(at string) Service {
		cmd := exec.Command("/bin/sh", "app.sh", "--config", filepath.Join(dir, at, "app.yaml"), "gone.yaml", "8080")
		cmd.Dir = filepath.Join(dir, at)
		if _, err := cmd.StdinPipe(); err != nil { // it waits for a line
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return Service{PID: cmd.Process.Pid, Comm: "sh"}
	}
	a, b := begin("a"), begin("b")
	configured := a
	configured.Config = []string{filepath.Join(dir, "conf/main.conf")}
	look := func(list ...Service) []Version {
		t.Helper()
		got := Versions(enough(), host.Default(), list)
		if len(got) != len(list) {
			t.Fatalf("%+v", got)
		}
		return got
	}
	was := look(a, b, configured)
	if was[0].Program != was[1].Program || was[0].Config != was[1].Config || len(was[0].Program) != digits || len(was[0].Config) != digits {
		t.Errorf("the same in two places: %+v", was)
	}
	if was[2].Config == was[0].Config || was[2].Program != was[0].Program {
		t.Errorf("with one file more: %+v", was)
	}
	put(t, dir, "b/app.yaml", "workers: 8\n")
	now := look(b)
	if now[0].Config == was[1].Config || now[0].Program != was[1].Program {
		t.Errorf("another configuration: %+v, was %+v", now[0], was[1])
	}
	put(t, dir, "b/app.sh", "read other\n")
	if later := look(b); later[0].Program == was[1].Program || later[0].Config != now[0].Config {
		t.Errorf("another script: %+v, was %+v", later[0], was[1])
	}
	if got := Versions(enough(), host.Default(), []Service{{PID: 1 << 22}}); len(got) > 0 {
		t.Errorf("of a process that is not there: %+v", got)
	}
}

func TestFilesThatACommandLineNames(t *testing.T) {
	s := Service{Cwd: "/srv", Args: []string{"/bin/app.py", "--config=/etc/app.yaml", "-c", "conf/x.cfg", "-v", "--port=8080", "--x=", "8080", "./run.sh", "-=y.json"}}
	if got, want := s.named(), []string{"/etc/app.yaml", "/srv/conf/x.cfg", "/srv/run.sh", "/srv/y.json"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Of a large file both ends and the size count.
func TestSomeOfALargeFile(t *testing.T) {
	text := bytes.Repeat([]byte("0123456789abcdef"), wholeBytes/8)
	sum := func(text []byte) string {
		s := sha256.New()
		if err := someOf(enough(), s, bytes.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		return short(s)
	}
	first := sum(text)
	for name, change := range map[string]func(){
		"its beginning": func() { text[3]++ }, "its end": func() { text[len(text)-3]++ }, "its size": func() { text = append(text, 'x') },
	} {
		was := sum(text)
		if change(); sum(text) == was {
			t.Errorf("%s counts for nothing", name)
		}
	}
	if first == sum(text) || sum(nil) == sum([]byte{0}) {
		t.Error("sums are equal")
	}
}
