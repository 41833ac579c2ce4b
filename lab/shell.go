package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/slowray/slowray/lab/sandbox"
	"github.com/slowray/slowray/lab/server"
)

// Shell injects an incident, with its load in the background for Options.Keep,
// and gives a shell in the network namespace of the servers. The shell sees
// the host's processes and files. All is gone when it ends.
func Shell(ctx context.Context, name string, opt Options) (err error) {
	r, err := open(ctx, name, opt)
	if err != nil {
		return err
	}
	defer r.lock.Release()
	p, err := r.inject(ctx, r.opt.Keep)
	if err != nil {
		return err
	}
	defer func() {
		closing := p.box.Close()
		if err = errors.Join(err, closing); closing == nil {
			r.print.printf("The service, its load and its network namespace are gone.\n")
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if p.traffic != nil {
		go p.traffic.boundLogs(ctx, p.box.Dir)
	}
	r.print.heading(r.Incident, r.opt.Seed)
	r.print.step(injectedSet{name: "injected, under load for " + r.opt.Keep.String(), faults: r.Faults})
	r.print.hostWide(r.Injected(r.Faults))
	r.print.howToLook(p.box, p.stack)
	return shell(ctx, p.box)
}

// injected is an incident in place, under load.
type injected struct {
	box     *sandbox.Box
	stack   *server.Stack
	traffic *traffic // nil for an incident without load
}

// inject opens a sandbox, starts the servers with all faults of the incident,
// and puts them under load for a while. The caller closes the box.
func (r *runner) inject(ctx context.Context, lasting time.Duration) (p injected, err error) {
	if p.box, err = sandbox.Open(ctx, r.lock, r.boxOptions(r.Faults, lasting+time.Minute)); err != nil {
		return p, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.box.Close())
		}
	}()
	if p.stack, err = server.Start(ctx, p.box, r.exe, r.Injected(r.Faults), r.plan); err != nil {
		return p, err
	}
	p.traffic, err = r.startLoad(ctx, p.box, r.LoadWith(r.Faults), lasting, 0)
	return p, err
}

// logsMax is the size of all logs at which the load of a shell ends: some
// faults write ten megabytes of errors a second.
const logsMax = 4 << 30

// boundLogs ends the load when its logs have grown too large.
func (t *traffic) boundLogs(ctx context.Context, dir string) {
	for pause(ctx, 5*time.Second) == nil {
		files, _ := filepath.Glob(filepath.Join(dir, "*.log"))
		total := int64(0)
		for _, f := range files {
			if st, err := os.Stat(f); err == nil {
				total += st.Size()
			}
		}
		if total > logsMax {
			t.proc.Signal(ctx, syscall.SIGTERM)
			return
		}
	}
}

// howToLook prints where the servers are.
func (p *printer) howToLook(box *sandbox.Box, s *server.Stack) {
	p.printf("\n  service  %s, port %d\n", s.ServerAddr, s.FrontPort)
	for _, behind := range s.Behind() {
		p.printf("  behind   %s\n", behind)
	}
	for n, line := range insiders(box.PID()) {
		label := "process"
		if n > 0 {
			label = ""
		}
		p.printf("  %-8s %s\n", label, line)
	}
	p.printf("  files    %s\n", box.Dir)
	p.printf("  enter    nsenter --target %d --net\n", box.PID())
	p.printf("  ask      slowray why --port %d\n", s.FrontPort)
	p.printf("  leave    exit: all of it is gone then\n\n")
}

// insiders lists the programs of the sandbox with their pids on the host: one
// line for each name.
func insiders(init int) []string {
	inside, _ := os.Readlink(filepath.Join("/proc", strconv.Itoa(init), "ns/pid"))
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	pids := map[string][]string{}
	var names []string
	for _, dir := range dirs {
		pid := filepath.Base(dir)
		ns, err := os.Readlink(filepath.Join(dir, "ns/pid"))
		if err != nil || ns != inside || pid == strconv.Itoa(init) {
			continue
		}
		comm, _ := os.ReadFile(filepath.Join(dir, "comm"))
		name := strings.TrimSpace(string(comm))
		if pids[name] == nil {
			names = append(names, name)
		}
		pids[name] = append(pids[name], pid)
	}
	var lines []string
	for _, name := range names {
		list, more := pids[name], ""
		if len(list) > 8 {
			more = fmt.Sprintf(" and %d more", len(list)-8)
			list = list[:8]
		}
		lines = append(lines, fmt.Sprintf("%-16s %s%s", name, strings.Join(list, " "), more))
	}
	return lines
}

// shell runs an interactive shell in the servers' network namespace.
func shell(ctx context.Context, box *sandbox.Box) error {
	path := os.Getenv("SHELL")
	if path == "" {
		path = "/bin/sh"
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // the shell ends with the sandbox
		select {
		case <-box.Gone():
			cancel()
		case <-ctx.Done():
		}
	}()
	cmd := exec.CommandContext(ctx, "nsenter", "--target", strconv.Itoa(box.PID()), "--net", "--", path)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// What reports say to paste begins with slowray, which lies next to this program.
	if own, err := os.Executable(); err == nil {
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(own)+string(filepath.ListSeparator)+os.Getenv("PATH"))
	}
	// Pdeathsig goes by thread: the one that starts it must outlive it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) { // the status of the last command typed
		return nil
	}
	return err
}
