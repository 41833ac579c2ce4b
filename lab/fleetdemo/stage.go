package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/commandline"
	"github.com/slowray/slowray/internal/osthread"
	"github.com/slowray/slowray/internal/printable"
)

// stage is everything that the demonstration has made, to be taken down again.
type stage struct {
	began    time.Time
	dir      string
	keep     bool
	spaces   map[string]*os.File // network namespaces, by host
	programs []*program
	ends     []func()   // the last first, after the programs
	early    chan error // programs that ended before they were asked to
	doing    *commandline.Stage
	told     time.Time
}

// program is a process that was started.
type program struct {
	name  string
	cmd   *exec.Cmd
	ended chan struct{}
}

// grace is how long programs have to end by themselves, all together, and killed is how
// long what was killed may take: the kernel unloads the recorders' BPF programs meanwhile.
const (
	grace  = 2 * time.Second
	killed = 20 * time.Second
)

func (s *stage) atEnd(f func()) { s.ends = append(s.ends, f) }

// close ends all that was started, at once, and removes what was made.
func (s *stage) close() {
	defer s.hush()
	s.say("ending and removing all")
	s.endPrograms()
	for _, end := range slices.Backward(s.ends) {
		end()
	}
	switch {
	case s.dir == "":
	case s.keep:
		s.hush()
		fmt.Println("left in " + s.dir)
	default:
		if err := removeAll(s.dir); err != nil {
			fmt.Fprintln(os.Stderr, "fleetdemo: left behind:", err)
		}
		s.say("all is ended and removed")
	}
}

// removeAll removes a directory; the shards have tens of thousands of files in theirs, which
// are removed several at a time.
func removeAll(dir string) error {
	tables, _ := filepath.Glob(filepath.Join(dir, "clickhouse", "*", "data", "data", "*", "*")) // the pattern is right
	var done sync.WaitGroup
	for _, t := range tables {
		done.Go(func() { os.RemoveAll(t) }) // what is left of it is reported below
	}
	done.Wait()
	return os.RemoveAll(dir)
}

// endPrograms tells all programs to end, and kills those that do not soon.
func (s *stage) endPrograms() {
	for _, p := range s.programs {
		p.cmd.Process.Signal(syscall.SIGTERM)
	}
	soon := time.After(grace)
	for _, p := range s.programs {
		select {
		case <-p.ended:
		case <-soon:
			soon = closed
		}
	}
	// Also what they have started: each is a group of its own.
	for _, p := range s.programs {
		syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
	late := time.After(killed)
	for _, p := range s.programs {
		select {
		case <-p.ended:
		case <-late:
			fmt.Fprintf(os.Stderr, "fleetdemo: %s (pid %d) was killed and has not ended yet\n", p.name, p.cmd.Process.Pid)
		}
	}
}

// closed is a time that has passed.
var closed = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// dirPrefix begins the names of the demonstration's directories; the process that made
// it follows.
const dirPrefix = "slowray-fleet-demo-"

// sweep removes the directories of demonstrations that were killed. Nothing else of
// them outlives them.
func sweep() {
	list, err := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range list {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), dirPrefix), "-")
		n, err := strconv.Atoi(pid)
		if err != nil || syscall.Kill(n, 0) == nil {
			continue
		}
		var s unix.Stat_t
		if unix.Lstat(dir, &s) == nil && s.Uid == uint32(os.Getuid()) {
			os.RemoveAll(dir)
		}
	}
}

// say tells what happens, and when; until the next call a line below says for how long
// already.
func (s *stage) say(text string) {
	s.hush()
	in, what := text[:len(text)-len(strings.TrimLeft(text, " "))], strings.TrimLeft(text, " ")
	fmt.Print(printable.Table([][]string{{fmt.Sprintf("%4d s%s", int(time.Since(s.began).Seconds()), in), what}}, commandline.Columns(os.Stdout)))
	s.told = time.Now()
	s.doing = commandline.NewTimedStage(os.Stdout, "       "+strings.TrimSpace(text), "Ctrl-C: end and remove all", 0)
	s.doing.Show("       "+strings.TrimSpace(text), -1)
}

// sayEvery is how often what is waited for is said where no line can be drawn anew.
const sayEvery = 5 * time.Second

// waits says what is waited for. It may be called often.
func (s *stage) waits(text string, done float64) {
	switch {
	case s.doing != nil && commandline.Redraws(os.Stdout):
		s.doing.Show("       "+text, done)
	case time.Since(s.told) >= sayEvery:
		s.say("  " + text)
	}
}

// hush takes away the line that says what is being done.
func (s *stage) hush() {
	if s.doing != nil {
		s.doing.Clear()
	}
}

// wait waits, unless something that runs has ended.
func (s *stage) wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-s.early:
		return err
	case <-time.After(d):
		return nil
	}
}

// run runs a program to its end; what it prints is reported when it fails. What it has
// started ends with it when the context does.
func (s *stage) run(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%v: %w: %s", args, err, out)
	}
	return nil
}

// ask runs a program that answers by its exit status, as diff(1) does: 1 is that it
// found something. It must name all of want.
func (s *stage) ask(ctx context.Context, want []string, args ...string) error {
	s.hush()
	var answer bytes.Buffer
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = io.MultiWriter(os.Stdout, &answer), os.Stderr
	if n := commandline.Columns(os.Stdout); n > 0 { // it writes into a pipe
		cmd.Env = append(os.Environ(), "COLUMNS="+strconv.Itoa(n))
	}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return errors.New("nothing was found, though rows were locked")
	case !errors.As(err, &exit) || exit.ExitCode() != 1:
		return fmt.Errorf("%v: %w", args, err)
	}
	for _, w := range want {
		if !strings.Contains(answer.String(), w) {
			return fmt.Errorf("the answer does not name %s", w)
		}
	}
	return nil
}

// start starts a program, in the network namespace of a host if one is named. It is
// ended with the stage; what it prints is in a file of its name.
func (s *stage) start(name, host string, args ...string) error {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), role+"=")
	return s.begin(name, host, cmd)
}

// play starts this program in one of its roles.
func (s *stage) play(as, host, about string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	// Under a name of its own, which is what slowray sees.
	file := filepath.Join(s.dir, as)
	if err := os.Symlink(exe, file); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	cmd := exec.Command(file, about)
	cmd.Env = append(os.Environ(), role+"="+as)
	return s.begin(as, host, cmd)
}

// begin starts a command that ends with this process, whatever ends it.
func (s *stage) begin(name, host string, cmd *exec.Cmd) error {
	log, err := os.Create(filepath.Join(s.dir, name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, syscall.SIGKILL
	p := &program{name: name, cmd: cmd, ended: make(chan struct{})}
	begun := make(chan error)
	// The namespace and Pdeathsig go by thread: this one is in the namespace, and lives as
	// long as the program.
	go osthread.Own(func() error {
		if host != "" {
			if err := unix.Setns(int(s.spaces[host].Fd()), unix.CLONE_NEWNET); err != nil {
				begun <- fmt.Errorf("enter the namespace of %s: %w", host, err)
				return err
			}
		}
		if err := cmd.Start(); err != nil {
			begun <- err
			return err
		}
		begun <- nil
		err := cmd.Wait()
		select {
		case s.early <- fmt.Errorf("%s ended (%v): %s", name, err, s.lastLine(name)):
		default:
		}
		close(p.ended)
		return err
	})
	if err := <-begun; err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	s.programs = append(s.programs, p)
	return nil
}

// pid is a program's process.
func (s *stage) pid(name string) int {
	for _, p := range s.programs {
		if p.name == name {
			return p.cmd.Process.Pid
		}
	}
	return 0
}

// lastLine is the last line that a program has printed.
func (s *stage) lastLine(name string) string {
	text, err := os.ReadFile(filepath.Join(s.dir, name+".log"))
	if err != nil {
		return "it printed nothing"
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(lines[len(lines)-1])
}
