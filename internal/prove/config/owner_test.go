package config

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/safefile/safefiletest"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork/proctest"
	"golang.org/x/sys/unix"
)

// userNginx runs an nginx of an ordinary user, in a directory of his.
func userNginx(t *testing.T) (pid int, conf string) {
	t.Helper()
	bin := proctest.Need(t, "nginx")
	s := safefiletest.NewStage(t)
	port := proctest.Port(t)
	conf = filepath.Join(s.Dir, "etc", "nginx.conf")
	s.Do(func() {
		for _, d := range []string{"tmp", "logs", "etc"} {
			_ = os.Mkdir(filepath.Join(s.Dir, d), 0o755)
		}
		_ = os.WriteFile(conf, fmt.Appendf(nil, "worker_processes 1; error_log logs/error.log; pid nginx.pid;\nevents {\n\tworker_connections 64;\n}\n"+
			"http { %s access_log off;\n server { listen 127.0.0.1:%d; } }\n", temps, port), 0o640)
		_ = unix.Setxattr(conf, "user.test", []byte("kept"), 0)
	})
	time.Sleep(30 * time.Millisecond)
	cmd := exec.Command(bin, "-p", s.Dir, "-c", "etc/nginx.conf", "-e", "logs/start.log", "-g", "daemon off;")
	cmd.Dir, cmd.SysProcAttr = s.Dir, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	proctest.Start(t, cmd, port)
	ready(t, "nginx", cmd.Process.Pid)
	return cmd.Process.Pid, conf
}

func connections(pid int, conf string) *cause.Change {
	return &cause.Change{Kind: cause.ChangeConfig, Server: "nginx", PID: pid, Name: "worker_connections", Value: "128", Was: "64", Path: conf, Line: 3}
}

// TestOwnServerOfUser: what belongs to the user that the server runs as is changed
// and put back as that user.
func TestOwnServerOfUser(t *testing.T) {
	pid, conf := userNginx(t)
	was := take(t, conf)
	c := connections(pid, conf)
	s := prepare(t, c)
	apply(t, c, s)
	now := take(t, conf)
	if !strings.Contains(now.text, "128") || now.uid != user || now.gid != user || now.mode != was.mode || now.acl != "kept" || now.others != "" {
		t.Errorf("the changed file: %+v, was %+v", now, was)
	}
	undo(t, c, s)
	if got := take(t, conf); got != was {
		t.Errorf("after undoing: %+v, want %+v", got, was)
	}

	// In a directory of root's he can write to the file only: so it is done.
	if err := os.Chown(filepath.Dir(conf), 0, 0); err != nil {
		t.Fatal(err)
	}
	inode := inodeOf(t, conf)
	s = prepare(t, c)
	apply(t, c, s)
	undo(t, c, s)
	if got := take(t, conf); got != was || inodeOf(t, conf) != inode {
		t.Errorf("after undoing in place: %+v, want %+v", got, was)
	}

	// His group by now is another one, and what he has made secret since stays so.
	s = prepare(t, c)
	apply(t, c, s)
	if err := errors.Join(os.Chown(conf, user, 4), os.Chmod(conf, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := (files{}).Undo(c, s); err != nil {
		t.Error(err)
	}
	if got := take(t, conf); got.text != was.text || got.mode&0o777 != 0o600 || got.gid != 4 {
		t.Errorf("after undoing: %+v", got)
	}

	// Root's by now: a record does not make it his again.
	if err := os.Chown(conf, 0, 0); err != nil {
		t.Fatal(err)
	}
	root := take(t, conf)
	refused(t, files{}.Undo(c, s), "belongs to user 0")
	if got := take(t, conf); got != root {
		t.Errorf("%+v, was %+v", got, root)
	}
}

// TestOthersCanChangeIt: a path that a third user has a hand in is not followed.
func TestOthersCanChangeIt(t *testing.T) {
	const third = 65533
	pid, conf := userNginx(t)
	dir := filepath.Dir(conf)
	top := filepath.Dir(filepath.Dir(dir)) // as /tmp is
	acl := proctest.Need(t, "setfacl")
	own := func(name string, uid int, mode os.FileMode) func() error {
		return func() error { return errors.Join(os.Chown(name, uid, uid), os.Chmod(name, mode)) }
	}
	for name, x := range map[string]struct {
		make, back func() error
		say        string
	}{
		"a group may write to the directory":     {own(dir, user, 0o775), own(dir, user, 0o755), "others may write to " + dir + " (mode 0775)"},
		"everybody may, and it is sticky":        {own(dir, user, 0o777|os.ModeSticky), own(dir, user, 0o755), "others may write to " + dir + " (mode 1777)"},
		"an access control list lets one write":  {exec.Command(acl, "-m", "u:65533:rwx", dir).Run, exec.Command(acl, "-b", dir).Run, "others may write to " + dir},
		"the directory is a third user's":        {own(dir, third, 0o755), own(dir, user, 0o755), dir + " belongs to user 65533"},
		"the directory above it is":              {own(filepath.Dir(dir), third, 0o755), own(filepath.Dir(dir), user, 0o755), "belongs to user 65533"},
		"the file is a third user's, in his own": {own(conf, third, 0o644), own(conf, user, 0o640), "belongs to user 65534"},
		"the file is root's, in his own":         {own(conf, 0, 0o644), own(conf, user, 0o640), "belongs to user 65534"},
		"the file is a third user's, in root's": {func() error {
			return errors.Join(own(conf, third, 0o644)(), own(dir, 0, 0o755)(), own(filepath.Dir(dir), 0, 0o755)())
		},
			func() error {
				return errors.Join(own(conf, user, 0o640)(), own(dir, user, 0o755)(), own(filepath.Dir(dir), user, 0o755)())
			}, "runs as user 65534"},
		"the file gives rights": {own(conf, user, 0o640|os.ModeSetuid), own(conf, user, 0o640), "mode 4640"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := x.make(); err != nil {
				t.Fatal(err)
			}
			reloadMaster(t, pid) // so that it has read what was changed
			_, err := files{}.Prepare(connections(pid, conf))
			refused(t, err, x.say)
			if err := x.back(); err != nil {
				t.Fatal(err)
			}
		})
	}
	reloadMaster(t, pid)
	c := connections(pid, conf)
	s := prepare(t, c)
	apply(t, c, s)
	undo(t, c, s)
	if st, err := os.Stat(top); err != nil || st.Mode()&os.ModeSticky == 0 {
		t.Errorf("the directory above all is not sticky: %v %v", st, err)
	}
}

// TestRootTestsNothingOfOthers: the test of a server that runs as root is not run
// where somebody else could say what it does.
func TestRootTestsNothingOfOthers(t *testing.T) {
	pid, _, dir := startNginx(t)
	site, conf := filepath.Join(dir, "sites-available", "one"), filepath.Join(dir, "nginx.conf")
	c := connections(pid, conf)
	for name, change := range map[string]func() error{
		"another file is a user's": func() error { return os.Chown(site, user, user) },
		"another file is open":     func() error { return os.Chmod(site, 0o664) },
		"a directory is a user's":  func() error { return os.Chown(filepath.Dir(site), user, user) },
		"a directory is open":      func() error { return os.Chmod(filepath.Dir(site), 0o777) },
		"the link is a user's":     func() error { return os.Lchown(filepath.Join(dir, "sites-enabled", "one"), user, user) },
	} {
		t.Run(name, func(t *testing.T) {
			if err := change(); err != nil {
				t.Fatal(err)
			}
			reload(t, pid)
			_, err := files{}.Prepare(c)
			refused(t, err, "own test of nginx", "would run as root", filepath.Base(filepath.Dir(dir)))
			if err := errors.Join(os.Chown(site, 0, 0), os.Chmod(site, 0o644), os.Chown(filepath.Dir(site), 0, 0), os.Chmod(filepath.Dir(site), 0o755),
				os.Lchown(filepath.Join(dir, "sites-enabled", "one"), 0, 0)); err != nil {
				t.Fatal(err)
			}
		})
	}
	reload(t, pid)
	s := prepare(t, c)

	// Looked at as root's, and a user's by the time of the change.
	if err := os.Chmod(filepath.Dir(site), 0o777); err != nil {
		t.Fatal(err)
	}
	was := take(t, conf)
	refused(t, files{}.Apply(c, s), "would run as root")
	if got := take(t, conf); got != was {
		t.Errorf("%+v, was %+v", got, was)
	}
}

// TestProgramOfUserIsNotRunAsRoot: neither a user's program that root runs, nor one
// of root's that lends its rights, whose arguments and environment are the user's.
func TestProgramOfUserIsNotRunAsRoot(t *testing.T) {
	needRoot(t)
	t.Run("set-user-ID", func(t *testing.T) {
		dir, err := os.MkdirTemp("", "slowray-lent-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		bin := filepath.Join(dir, "nginx")
		install(t, bin, 0o755|os.ModeSetuid|os.ModeSetgid)
		r := startRogue(t, "nginx", bin)
		r.notAsRoot(t, "more rights than who started it has")
	})
	t.Run("a user's", func(t *testing.T) {
		s := safefiletest.NewStage(t)
		bin := filepath.Join(s.Dir, "nginx")
		install(t, bin, 0o755)
		if err := os.Chown(bin, user, user); err != nil {
			t.Fatal(err)
		}
		r := startRogueBy(t, "nginx", bin, syscall.SysProcAttr{})
		r.notAsRoot(t, "would run as root what user 65534 can write to")
	})
}

// notAsRoot makes sure that the server's test is refused, and was not run as root.
func (r *rogue) notAsRoot(t *testing.T, words ...string) {
	t.Helper()
	r.during(t, "id -u >> $(dirname $dir)/ran; env >> $(dirname $dir)/ran")
	c := r.change()
	var err error
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if _, err = (files{}).Prepare(c); err != nil && strings.Contains(err.Error(), words[0]) {
			break
		}
	}
	if b, _ := os.ReadFile(filepath.Join(r.Dir, "ran")); len(b) > 0 {
		t.Errorf("its test was run: %s", b)
	}
	refused(t, err, words...)
}

// TestTestIsAlone: a user's program that slowray runs has no terminal to type into,
// none of slowray's open files, and leaves nothing behind; what it prints is bounded.
func TestTestIsAlone(t *testing.T) {
	r := startRogue(t, "nginx", "")
	ready(t, "nginx", r.pid)
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, secret, "of root")
	leak, err := unix.Open(secret, unix.O_RDONLY, 0) // as a shell hands it to slowray
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(leak)
	r.during(t, `cd $(dirname $dir)
cut -d' ' -f6,7 /proc/self/stat > session
ls -l /proc/self/fd /proc/$PPID/fd > open
grep -E 'Uid|Gid|Groups|CapEff|NoNewPrivs' /proc/self/status > rights
setsid sleep 4711 < /dev/null > /dev/null 2>&1 &
head -c 5000000 /dev/zero
exit 1`)
	_, err = files{}.Prepare(r.change())
	refused(t, err, "refused by the server's own test")
	if len(err.Error()) > 2000 {
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(r.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	own, err := unix.Getsid(0)
	if err != nil {
		t.Fatal(err)
	}
	if f := strings.Fields(read("session")); len(f) != 2 || f[0] == strconv.Itoa(own) || f[1] != "0" {
		t.Errorf("session and terminal: %q, this one's session is %d", f, own)
	}
	if open := read("open"); strings.Contains(open, "secret") || strings.Contains(open, "socket:") {
		t.Errorf("its open files: %s", open)
	}
	for _, want := range []string{"Uid:\t65534\t65534\t65534\t65534\n", "Gid:\t65534\t65534\t65534\t65534\n", "CapEff:\t0000000000000000\n", "NoNewPrivs:\t1\n"} {
		if rights := read("rights"); !strings.Contains(rights, want) {
			t.Errorf("no %q in %q", want, rights)
		}
	}
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, n := range names {
		if b, _ := os.ReadFile(n); string(b) == "sleep\x004711\x00" {
			t.Errorf("left behind: %s", n)
		}
	}
}
