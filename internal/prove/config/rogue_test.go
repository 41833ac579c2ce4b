package config

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/safefile/safefiletest"
	"golang.org/x/sys/unix"
)

// A rogue server is a program of an ordinary user that looks like a server: this
// test's own, started with a server's name and titles. Its test of the configuration
// runs the script "during" in its working directory, if there is one; a reload has it
// start other workers.

const user = safefiletest.UID

// A server's children are looked for under its first thread.
func init() {
	if name, _, _ := strings.Cut(os.Args[0], ":"); name == "nginx" || name == "haproxy" {
		runtime.LockOSThread()
	}
}

// rogueMain is what the rogue server does; it does not return then.
func rogueMain() {
	args := os.Args
	switch {
	case args[0] == "sandbox":
		sandboxMain(args[1:])
	case args[0] == "listener":
		l, err := net.Listen("unix", args[1])
		for err == nil {
			_, err = l.Accept()
		}
	case args[0] == "nginx: worker process", args[0] == "haproxy" && len(args) > 1 && args[1] == "worker":
		_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
		time.Sleep(time.Hour)
	case args[0] == "nginx" && len(args) > 1 && args[1] == "-t", args[0] == "haproxy" && len(args) > 1 && args[1] == "-c":
		rogueTest()
	case strings.HasPrefix(args[0], "nginx: master process"):
		rogueMaster(unix.SIGHUP, "nginx: worker process")
	case args[0] == "haproxy":
		rogueMaster(unix.SIGUSR2, "haproxy", "worker")
	default:
		return
	}
	os.Exit(0)
}

func rogueTest() {
	if _, err := os.Stat("during"); err != nil {
		return
	}
	cmd := exec.Command("/bin/sh", "./during")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if cmd.Run() != nil {
		os.Exit(1)
	}
}

func rogueMaster(reload os.Signal, worker ...string) {
	if os.Geteuid() == 0 { // it lends the rights of root: all its IDs become 0
		_ = syscall.Setresuid(0, 0, 0)
		_ = syscall.Setresgid(0, 0, 0)
	}
	asked := make(chan os.Signal, 8)
	signal.Notify(asked, reload)
	for {
		cmd := exec.Command("/proc/self/exe")
		cmd.Args = worker
		if cmd.Start() != nil {
			os.Exit(1)
		}
		<-asked
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// rogue is a running one.
type rogue struct {
	*safefiletest.Stage
	pid  int
	name string
	conf string // its configuration, Dir/conf/NAME.conf
}

const nginxConf = "worker_processes 1;\nevents {\n\tworker_connections 64;\n}\n"
const haproxyConf = "global\n\tmaxconn 64\ndefaults\n\ttimeout client 1s\n"

// startRogue starts one whose program is in bin, or in its own directory.
func startRogue(t *testing.T, name, bin string) *rogue {
	return startRogueBy(t, name, bin, syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}})
}

func startRogueBy(t *testing.T, name, bin string, attr syscall.SysProcAttr) *rogue {
	t.Helper()
	r := &rogue{Stage: safefiletest.NewStage(t, "conf"), name: name}
	r.conf = filepath.Join(r.Dir, "conf", name+".conf")
	if bin == "" {
		bin = filepath.Join(r.Dir, name)
		install(t, bin, 0o755)
	}
	text := nginxConf
	args := []string{"nginx: master process nginx -p " + r.Dir + " -c conf/nginx.conf"}
	if name == "haproxy" {
		text, args = haproxyConf, []string{"haproxy", "-W", "-f", r.conf}
	}
	r.Do(func() {
		_ = os.Mkdir(filepath.Join(r.Dir, "conf"), 0o755)
		_ = os.WriteFile(r.conf, []byte(text), 0o666)
		_ = os.Chmod(r.conf, 0o666)
	})
	cmd := exec.Command(bin)
	cmd.Args, cmd.Dir, cmd.Env = args, r.Dir, []string{"LENT=1"}
	attr.Pdeathsig = syscall.SIGKILL
	cmd.SysProcAttr = &attr
	runtime.LockOSThread() // the signal is for the end of the thread
	t.Cleanup(runtime.UnlockOSThread)
	time.Sleep(30 * time.Millisecond) // the file is older than the server that has read it
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	r.pid = cmd.Process.Pid
	return r
}

// install puts this test's own program somewhere.
func install(t *testing.T, name string, mode os.FileMode) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(name, b, 0o755)
	}
	if err == nil {
		err = os.Chmod(name, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// change is one of its configuration.
func (r *rogue) change() *cause.Change {
	c := &cause.Change{Kind: cause.ChangeConfig, Server: "nginx", PID: r.pid, Name: "worker_connections", Value: "128", Was: "64", Path: r.conf, Line: 3, Text: "worker_connections 64 → 128"}
	if r.name == "haproxy" {
		c.Server, c.Name, c.Line = "haproxy", "maxconn", 2
	}
	return c
}

// during has its test of the configuration run a script, which may say $dir, $conf
// and $out for the directory of the configuration, the file, and root's directory.
func (r *rogue) during(t *testing.T, script string) {
	t.Helper()
	name := filepath.Join(r.Dir, "during")
	if script == "" {
		_ = os.Remove(name)
		return
	}
	script = fmt.Sprintf("dir=%s conf=%s out=%s\n%s\n", filepath.Dir(r.conf), r.conf, filepath.Join(r.Outside, "conf"), script)
	if err := os.WriteFile(name, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
}

// outside has root's files of the same names: as the user's are, or will be.
func (r *rogue) outside(t *testing.T, text string) {
	t.Helper()
	name := filepath.Join(r.Outside, "conf", filepath.Base(r.conf))
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	r.Settle(t)
}

// swaps are what its user puts in the place of his files, in sh(1).
var swaps = map[string]string{
	"the directory becomes a link":            `[ -L $dir ] || { mv $dir $dir.first; ln -s $out $dir; }`,
	"the file becomes a link":                 `[ -L $conf ] || { mv $conf $conf.first; ln -s $out/$(basename $conf) $conf; }`,
	"the file becomes a FIFO":                 `[ -p $conf ] || { mv $conf $conf.first; mkfifo $conf; }`,
	"the directory becomes another":           `[ -d $dir.first ] || { mv $dir $dir.first; mkdir $dir; cp $dir.first/*.conf $dir; }`,
	"the file becomes a device's":             `[ -L $conf ] || { mv $conf $conf.first; ln -s /dev/zero $conf; }`,
	"the file becomes a link into procfs":     `[ -L $conf ] || { mv $conf $conf.first; ln -s /proc/self/environ $conf; }`,
	"the unfinished file is a link":           `for f in $dir/.slowray-*; do [ -f $f ] && { rm $f; ln -s $out/$(basename $conf) $f; }; done; true`,
	"the parent becomes a link":               `[ -L ${dir%/*} ] || { mv ${dir%/*} ${dir%/*}.first; ln -s ${out%/*} ${dir%/*}; }`,
	"the directory is writable for everybody": `chmod 777 $dir`,
	"the file is set-user-ID":                 `chmod 4755 $conf`,
}

// TestUserSwapsDuringTest: a user's server swaps what slowray is about to change,
// while slowray has it test its configuration, before each step. Nothing of root's
// changes, nothing panics, and what is refused is so in one line.
func TestUserSwapsDuringTest(t *testing.T) {
	for name, script := range swaps {
		for _, when := range []string{"prepare", "apply", "undo"} {
			for what, root := range map[string]string{"as it was": nginxConf, "as it is to be": strings.Replace(nginxConf, "64", "128", 1)} {
				if when != "undo" && root != nginxConf {
					continue
				}
				if testing.Short() && when == "prepare" { // nothing is written yet
					continue
				}
				t.Run(name+", "+when+", root's is "+what, func(t *testing.T) {
					t.Parallel()
					r := startRogue(t, "nginx", "")
					r.outside(t, root)
					r.attack(t, script, when)
				})
			}
		}
		t.Run("haproxy: "+name, func(t *testing.T) {
			t.Parallel()
			r := startRogue(t, "haproxy", "")
			r.outside(t, haproxyConf)
			r.attack(t, script, "undo")
		})
	}
}

// attack makes and undoes a change, and has the user swap things during one of its
// steps, and from then on.
func (r *rogue) attack(t *testing.T, script, when string) {
	t.Helper()
	ready(t, r.name, r.pid)
	c := r.change()
	check := func(step string, err error) bool {
		r.Unharmed(t)
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: more than one line: %q", step, err)
		}
		t.Logf("%s: %v", step, err)
		return err == nil
	}
	at := func(step string) {
		if step == when {
			r.during(t, script)
		}
	}
	at("prepare")
	s, err := files{}.Prepare(c)
	if !check("prepare", err) {
		return
	}
	at("apply")
	check("apply", files{}.Apply(c, s))
	at("undo")
	if when == "undo" { // also before it, as by a job of his
		cmd := exec.Command("/bin/sh", filepath.Join(r.Dir, "during"))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
		_ = cmd.Run()
	}
	_, _, _, err = files{}.Holds(c, s)
	check("holds", err)
	for range 2 {
		check("undo", files{}.Undo(c, s))
	}
}

// TestUserSwapsAfterKill: the process that applies is killed, the user swaps, and
// another process undoes, as from the journal.
func TestUserSwapsAfterKill(t *testing.T) {
	moments := []time.Duration{10, 60, 200}
	for name, script := range swaps {
		after := moments[0]
		moments = append(moments[1:], after)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRogue(t, "nginx", "")
			ready(t, "nginx", r.pid)
			r.outside(t, nginxConf)
			c := r.change()
			s, err := files{}.Prepare(c)
			if err != nil {
				t.Fatal(err)
			}
			cmd, _ := job{*c, s}.other(t, "apply")
			time.Sleep(after * time.Millisecond)
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			r.during(t, script)
			for range 3 {
				cmd, out := job{*c, s}.other(t, "undo")
				_ = cmd.Wait()
				if strings.Contains(out.String(), "panic") || strings.Count(out.String(), "\n") > 1 {
					t.Errorf("undo: %s", out)
				}
				r.Unharmed(t)
			}
		})
	}
}
