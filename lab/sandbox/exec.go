package sandbox

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// RoleEnv names the environment variable by which an executable that calls
// [Main] knows that it is part of a sandbox.
const RoleEnv = "SLOWRAY_LAB_ROLE"

const (
	roleInit  = "init"
	roleAgent = "agent"
	roleExec  = "exec"
	specEnv   = "SLOWRAY_LAB_SPEC"
	exeEnv    = "SLOWRAY_LAB_EXE"
)

func execEnv(spec Spec) []string {
	data, _ := json.Marshal(spec) // strings and numbers only
	return []string{RoleEnv + "=" + roleExec, specEnv + "=" + string(data)}
}

// Main runs the part of the sandbox that this process is, if it is one, and
// then does not return. Call it first in main.
func Main() {
	switch os.Getenv(RoleEnv) {
	case roleInit:
		exit(initMain())
	case roleAgent:
		exit(agentMain())
	case roleExec:
		exit(execMain())
	}
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// execMain sets limits, niceness and group of this process and becomes the
// program. All of that on one thread: niceness belongs to a thread.
func execMain() error {
	runtime.LockOSThread()
	var spec Spec
	if err := json.Unmarshal([]byte(os.Getenv(specEnv)), &spec); err != nil {
		return fmt.Errorf("exec: %w", err)
	}
	groups := spec.Cgroups
	if spec.Cgroup != "" {
		groups = append(groups, spec.Cgroup)
	}
	for _, dir := range groups {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
			return fmt.Errorf("exec: %w", err)
		}
	}
	// Through the syscall package, which then does not put back at exec the
	// limit that the Go runtime found when it started.
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		return fmt.Errorf("exec: file limit: %w", err)
	}
	lim.Cur = lim.Max
	if spec.NoFile > 0 {
		lim.Cur = min(spec.NoFile, lim.Max)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		return fmt.Errorf("exec: file limit: %w", err)
	}
	if spec.Nice > 0 {
		if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, spec.Nice); err != nil {
			return fmt.Errorf("exec: nice: %w", err)
		}
	}
	env := append(cleanEnv(), spec.Env...)
	if err := syscall.Exec(spec.Args[0], spec.Args, env); err != nil {
		return fmt.Errorf("exec %s: %w", spec.Args[0], err)
	}
	return nil
}

// cleanEnv is the environment without the sandbox's own variables.
func cleanEnv() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "SLOWRAY_LAB_") {
			env = append(env, kv)
		}
	}
	return env
}
