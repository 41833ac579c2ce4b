package lab

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// demoWarmUp is how long the load runs at least before slowray looks.
const demoWarmUp = 3 * time.Second

// Demo injects an incident, puts it under load and lets slowray report on it
// in words. Nothing is measured or judged, and nothing is left behind.
func Demo(ctx context.Context, name string, opt Options) (err error) {
	r, err := open(ctx, name, opt)
	if err != nil {
		return err
	}
	defer r.lock.Release()
	r.opt.Window = cmp.Or(opt.Window, r.opt.Window) // as --help says, also of a quick incident
	warmUp := max(demoWarmUp, r.Lead)
	p, err := r.inject(ctx, warmUp+r.opt.Window+5*time.Second)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.box.Close()) }()
	r.print.heading(r.Incident, r.opt.Seed)
	r.print.step(injectedSet{name: "injected, under load", faults: r.Faults})
	r.print.hostWide(r.Injected(r.Faults))
	if err := pause(ctx, warmUp); err != nil {
		return err
	}
	args := append(r.opt.Slowray[1:len(r.opt.Slowray):len(r.opt.Slowray)],
		"why", "--for", r.opt.Window.String(), "--port", strconv.Itoa(r.plan.FrontPort))
	cmd := exec.CommandContext(ctx, r.opt.Slowray[0], args...)
	cmd.Stdout, cmd.Stderr = r.opt.Out, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// Pdeathsig goes by thread: the one that starts it must outlive it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r.print.printf("\n$ slowray --port %d\n\n", r.plan.FrontPort)
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return nil // it found something
	}
	return err
}
