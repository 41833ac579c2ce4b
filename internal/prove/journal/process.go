package journal

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// self is this process.
func self() Process {
	p, _ := processOf(os.Getpid())
	return p
}

// processOf finds when the process with a PID began: field 22 of
// /proc/PID/stat, proc_pid_stat(5).
func processOf(pid int) (Process, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, err
	}
	// The name of the program, in brackets, may hold anything.
	_, rest, _ := bytes.Cut(data[max(0, bytes.LastIndexByte(data, ')')):], []byte(" "))
	fields := strings.Fields(string(rest))
	const state, startTime = 3, 22
	if len(fields) <= startTime-state {
		return Process{}, fmt.Errorf("/proc/%d/stat: not understood", pid)
	}
	start, err := strconv.ParseUint(fields[startTime-state], 10, 64)
	if err != nil {
		return Process{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return Process{}, fmt.Errorf("process %d has ended", pid)
	}
	return Process{pid, start}, nil
}

// Lives says whether p is still there.
func (p Process) Lives() bool {
	if p.PID <= 0 {
		return false
	}
	now, err := processOf(p.PID)
	return err == nil && now == p
}

// bootID tells boots apart, random(4).
func bootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("journal: boot id: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}
