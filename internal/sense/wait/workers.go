package wait

import (
	"bytes"
	"fmt"
	"os"

	"github.com/slowray/slowray/internal/observe"
)

// maxWorkers bounds the workers of a master that are looked at with it.
const maxWorkers = 256

// workersOf is the processes that serve for a master (nginx, php-fpm, gunicorn, Apache,
// uWSGI, PostgreSQL, Puma), with their own: its children that run the same program by name,
// or that were forked from it and made no exec.
func (l *look) workersOf(master *process) (workers []*process) {
	queue := []*process{master}
	seen := map[int]bool{master.pid: true}
	for ; len(queue) > 0; queue = queue[1:] {
		for _, pid := range l.childrenOf(queue[0]) {
			if seen[pid] {
				continue
			}
			seen[pid] = true
			comm, stack := l.program(pid)
			if comm != queue[0].comm {
				if _, of := l.program(queue[0].pid); stack == "" || stack != of {
					continue
				}
			}
			if len(workers) == maxWorkers {
				l.miss(fmt.Sprintf("only the first %d workers were looked at", maxWorkers))
				return workers
			}
			w := l.process(pid)
			if w.gone || w.threads[0].state == 'Z' {
				continue
			}
			if w.denied {
				l.miss(fmt.Sprintf("the worker with pid %d: not permitted (needs CAP_SYS_PTRACE)", pid))
				continue
			}
			workers, queue = append(workers, w), append(queue, w)
		}
	}
	return workers
}

// program is a process's name, and where its stack begins: exec(2) puts it at random, and
// fork(2) leaves it. That is empty where it may not be seen.
func (l *look) program(pid int) (comm, stack string) {
	b, err := os.ReadFile(fmt.Sprintf("%s/%d/stat", l.fs.Proc, pid))
	begin, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if err != nil || begin < 0 || end < begin {
		return "", ""
	}
	comm = string(b[begin+1 : end])
	const startStack = 28 - 3 // proc_pid_stat(5), counted from the state
	if fields := bytes.Fields(b[end+1:]); len(fields) > startStack && string(fields[startStack]) != "0" {
		stack = string(fields[startStack])
	}
	return comm, stack
}

// include adds the workers of a master to what is looked at.
func (l *look) include(w *observe.Waits, master *process, start []*thread) []*thread {
	for _, p := range l.workersOf(master) {
		w.Workers = append(w.Workers, l.who(p))
		w.Looked += len(p.threads)
		start = append(start, p.threads...)
	}
	return start
}
