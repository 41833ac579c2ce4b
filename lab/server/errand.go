package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/slowray/slowray/lab/sandbox"
)

// Errand is an HTTP server in Python of which a request is a few lines of Python
// (programs/errand.py).
type Errand struct {
	Code  string // defines request(n), and begin() where something is to be done first
	Fault string // … what is run after Code, and so may define them anew

	Restarted bool // it is started again when it ends
}

// Around is what is done to the host around the servers: commands of a shell in the
// sandbox's directory, with fields of Plan in double braces, and settings.
type Around struct {
	Before    string // commands that end before the servers are started
	Alongside string // what runs next to them
	Soon      string // commands that are run once requests come in

	// A setting of the whole host, once requests come in: a file below /proc/sys, and
	// its value, with DIR for the sandbox's directory.
	HostFile, HostValue string
}

func (s *starter) errand() error {
	path, err := s.program("errand.py")
	if err != nil {
		return err
	}
	if err := s.prices(); err != nil {
		return err
	}
	code := filepath.Join(s.box.Dir, "request.py")
	if err := os.WriteFile(code, []byte(s.v.Errand.Code+"\n"+s.v.Errand.Fault+"\n"), 0o644); err != nil {
		return err
	}
	args := []string{python, path, s.v.ServerAddr, strconv.Itoa(s.v.FrontPort), code}
	if s.v.Errand.Restarted {
		args = []string{"sh", "-c", "while :; do " + strings.Join(args, " ") + "; done"}
	}
	if s.v.Pod.Deployment != "" {
		return s.pod(args...)
	}
	return s.run(s.v.FrontPort, "errands", args...)
}

// inDir is commands of a shell in the sandbox's directory.
func (s *starter) inDir(commands string) ([]string, error) {
	text, err := s.filled(commands)
	return []string{"sh", "-ec", "cd " + s.box.Dir + "\n" + text}, err
}

func (s *starter) before() error {
	if s.v.Around.Before == "" {
		return nil
	}
	args, err := s.inDir(s.v.Around.Before)
	if err != nil {
		return err
	}
	if _, err := s.box.Server.Output(s.ctx, args...); err != nil {
		return fmt.Errorf("before: %w", err)
	}
	return nil
}

func (s *starter) around() error {
	if file := s.v.Around.HostFile; file != "" {
		s.soon(func() error {
			return s.box.SetHost(s.ctx, filepath.Join("/proc/sys", file), strings.ReplaceAll(s.v.Around.HostValue, "DIR", s.box.Dir))
		})
	}
	if s.v.Around.Soon != "" {
		args, err := s.inDir(s.v.Around.Soon)
		if err != nil {
			return err
		}
		s.soon(func() error {
			_, err := s.box.Server.Output(s.ctx, args...)
			return err
		})
	}
	if s.v.Around.Alongside == "" {
		return nil
	}
	args, err := s.inDir(s.v.Around.Alongside)
	if err != nil {
		return err
	}
	_, err = s.box.Server.Start(s.ctx, sandbox.Spec{Args: args, Stderr: filepath.Join(s.box.Dir, "alongside.out")})
	return err
}
