package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/slowray/slowray/lab/netns"
)

// stage is everything that the demonstration has made, to be taken down again.
type stage struct {
	began time.Time
	dir   string
	keep  bool
	ends  []func()   // the last first
	early chan error // programs that ended before they were told to
}

func (s *stage) atEnd(f func()) { s.ends = append(s.ends, f) }

func (s *stage) close() {
	for _, end := range slices.Backward(s.ends) {
		end()
	}
	switch {
	case s.keep:
		fmt.Println("left in " + s.dir)
	case s.dir != "":
		os.RemoveAll(s.dir)
	}
}

// say tells what happens, and when.
func (s *stage) say(text string) {
	fmt.Printf("%4d s  %s\n", int(time.Since(s.began).Seconds()), text)
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

// run runs a program to its end; what it prints is told when it fails.
func (s *stage) run(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%v: %w: %s", args, err, out)
	}
	return nil
}

// ask runs a program that answers by its exit status, as diff(1) does: 1 is that it
// found something.
func (s *stage) ask(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return errors.New("nothing was found, though rows were locked")
	case errors.As(err, &exit) && exit.ExitCode() == 1:
		return nil
	}
	return fmt.Errorf("%v: %w", args, err)
}

// start starts a program, in the network namespace of a host if one is named. It is
// ended with the stage; what it prints is in a file of its name.
func (s *stage) start(name, host string, args ...string) error {
	if host != "" {
		args = append([]string{"ip", "netns", "exec", space(host)}, args...)
	}
	log, err := os.Create(filepath.Join(s.dir, name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, append(os.Environ(), role+"=")
	return s.begin(name, cmd)
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
	cmd := exec.Command("ip", "netns", "exec", space(host), file, about)
	cmd.Env = append(os.Environ(), role+"="+as)
	log, err := os.Create(filepath.Join(s.dir, as+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	return s.begin(as, cmd)
}

// begin starts a command that ends with this process, whatever ends it.
func (s *stage) begin(name string, cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := cmd.Wait()
		select {
		case s.early <- fmt.Errorf("%s ended (%v): %s", name, err, s.lastLine(name)):
		default:
		}
	}()
	s.atEnd(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-ended
		}
	})
	return nil
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

// forward makes a listener inside the namespace of a host that leads to the same
// port of this machine's loopback.
func (s *stage) forward(host, addr string) error {
	ns, err := os.Open("/run/netns/" + space(host))
	if err != nil {
		return err
	}
	defer ns.Close()
	var l net.Listener
	if err := netns.Do(ns, func() (err error) {
		l, err = net.Listen("tcp", addr)
		return err
	}); err != nil {
		return err
	}
	s.atEnd(func() { l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go pass(in, addr)
		}
	}()
	return nil
}

// pass takes a connection to where addr is outside.
func pass(in net.Conn, addr string) {
	defer in.Close()
	out, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer out.Close()
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{out, in}, {in, out}} {
		go func() {
			io.Copy(way[0], way[1])
			way[0].(*net.TCPConn).CloseWrite()
			done <- struct{}{}
		}()
	}
	<-done
	<-done
}
