package config

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork/proctest"
)

func TestGunicorn(t *testing.T) {
	slow(t)
	needRoot(t)
	bin, port, dir := proctest.Need(t, "gunicorn"), proctest.Port(t), t.TempDir()
	write(t, filepath.Join(dir, "app.py"), "def application(environ, start):\n    start('200 OK', [])\n    return [b'ok']\n")
	conf := filepath.Join(dir, "gunicorn.conf.py")
	write(t, conf, fmt.Sprintf("# gunicorn\nbind = '127.0.0.1:%d'\nworkers = 2\n", port))
	cmd := exec.Command("/usr/bin/python3", bin, "-c", conf, "--chdir", dir, "app:application")
	ask := func() string {
		got, _ := gunicornTalk{cmd.Process.Pid}.get(t.Context(), "workers")
		return got
	}
	proctest.StartUntil(t, cmd, func() bool { return ask() == "2" }) // it listens before it has its workers
	c := func(value string) *cause.Change {
		return &cause.Change{Kind: cause.ChangeSetting, Server: "gunicorn", PID: cmd.Process.Pid, Name: "workers", Value: value}
	}
	cycle(t, c("7"), ask, "2", "7")
	if got, want := Lasting(c("7")).String(), fmt.Sprintf("# workers = 7 in %s:3 (2 there now)", conf); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	s, err := settings{}.Prepare(c("7"))
	if err != nil {
		t.Fatal(err)
	}
	do, undo := settings{}.Commands(c("7"), s)
	if want := fmt.Sprintf("kill -TTIN %d   # 5 times, a moment apart", cmd.Process.Pid); len(do) != 1 || do[0].String() != want || len(undo) != 1 {
		t.Errorf("%q, %q, want %q", do, undo, want)
	}
	_, err = settings{}.Prepare(c("2"))
	refused(t, err, "2 already")
	if s, err = (settings{}).Prepare(c("none")); err != nil {
		t.Fatal(err)
	}
	refused(t, settings{}.Apply(c("none"), s), "no number of workers")
	_, err = gunicornTalk{processOf(cmd.Process.Pid)[1].PID}.get(t.Context(), "workers")
	refused(t, err, "no arbiter")
}
