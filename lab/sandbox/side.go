package sandbox

import (
	"context"
	"fmt"
	"net/rpc"
	"path/filepath"
	"strings"
	"syscall"
)

// Side is one of the network namespaces of a sandbox.
type Side struct{ rpc *rpc.Client }

// call is one remote call that a cancelled context abandons.
func (s *Side) call(ctx context.Context, method string, args, reply any) error {
	if reply == nil {
		reply = &struct{}{}
	}
	c := s.rpc.Go("Agent."+method, args, reply, make(chan *rpc.Call, 1))
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.Done:
		return c.Error
	}
}

// Proc is a program that was started in a sandbox.
type Proc struct {
	side *Side
	PID  int // as seen inside the sandbox
	name string
}

// Start starts a program.
func (s *Side) Start(ctx context.Context, spec Spec) (*Proc, error) {
	p := &Proc{side: s, name: filepath.Base(spec.Args[0])}
	if err := s.call(ctx, "Start", spec, &p.PID); err != nil {
		return nil, err
	}
	return p, nil
}

// Wait waits for the program's end.
func (p *Proc) Wait(ctx context.Context) (Exit, error) {
	var exit Exit
	err := p.side.call(ctx, "Wait", p.PID, &exit)
	return exit, err
}

// Signal sends the program a signal.
func (p *Proc) Signal(ctx context.Context, sig syscall.Signal) error {
	return p.side.call(ctx, "Signal", SignalArgs{PID: p.PID, Signal: sig}, nil)
}

// Output runs a program to its end and gives what it wrote. A non-zero exit
// status is an error that holds the output.
func (s *Side) Output(ctx context.Context, args ...string) (string, error) {
	var exit Exit
	if err := s.call(ctx, "Run", Spec{Args: args}, &exit); err != nil {
		return "", err
	}
	out := strings.TrimSpace(string(exit.Output))
	if exit.Code != 0 {
		return out, fmt.Errorf("%s: exit %d %s: %s", strings.Join(args, " "), exit.Code, exit.Signal, out)
	}
	return out, nil
}

// Set sets a setting of the network namespace, as "net.core.somaxconn".
func (s *Side) Set(ctx context.Context, key, value string) error {
	var now string
	return s.call(ctx, "Sysctl", SysctlArgs{Key: key, Value: value}, &now)
}

// Get reads a setting of the network namespace.
func (s *Side) Get(ctx context.Context, key string) (string, error) {
	var now string
	err := s.call(ctx, "Sysctl", SysctlArgs{Key: key}, &now)
	return now, err
}

// Listening waits until something listens on the port.
func (s *Side) Listening(ctx context.Context, port int) error {
	return s.call(ctx, "Listening", port, nil)
}

// NetNS is the inode of the network namespace.
func (s *Side) NetNS(ctx context.Context) (uint64, error) {
	var inode uint64
	err := s.call(ctx, "NetNS", struct{}{}, &inode)
	return inode, err
}

// pid is the process id of the agent, as seen inside.
func (s *Side) pid(ctx context.Context) (int, error) {
	var pid int
	err := s.call(ctx, "PID", struct{}{}, &pid)
	return pid, err
}
