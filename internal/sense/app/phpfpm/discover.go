package phpfpm

import (
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork"
)

const (
	masterTitle = "php-fpm: master process"
	poolTitle   = "php-fpm: pool "
)

// Discover finds the running masters among the processes by their title. The
// configuration is read by Begin. procRoot is "/proc" but in tests.
func Discover(procs []observe.Process, procRoot string) []*Instance {
	byPID := map[int]*Instance{}
	var out []*Instance
	for _, p := range procs {
		if p.Kernel || p.EndedIn || !strings.HasPrefix(p.Cmdline, masterTitle) {
			continue
		}
		title := prefork.Title(procRoot, p.PID) // whole, where the table holds 512 bytes
		if !strings.HasPrefix(title, masterTitle) {
			title = p.Cmdline
		}
		in := &Instance{PID: p.PID, MaxBytes: DefaultMaxBytes, proc: p, procRoot: procRoot,
			confFile: configInTitle(title), poolOf: map[int]string{}, seen: map[int]string{}}
		byPID[p.PID] = in
		out = append(out, in)
	}
	for _, p := range procs {
		if in := byPID[p.PPID]; in != nil && !p.EndedIn {
			in.listed = append(in.listed, p.PID)
		}
	}
	// A master that was just forked by a master (an upgrade on SIGUSR2, or a
	// child before it has set its title) is none of its own.
	masters := out[:0]
	for _, in := range out {
		if parent := byPID[in.proc.PPID]; parent != nil && parent.confFile == in.confFile {
			continue
		}
		masters = append(masters, in)
	}
	return masters
}

// configInTitle returns the path in "php-fpm: master process (PATH)", "" when
// the title was cut short: it has only the room of the original arguments and
// environment.
func configInTitle(title string) string {
	_, rest, ok := strings.Cut(title, "(")
	if !ok {
		return ""
	}
	end := strings.LastIndexByte(rest, ')')
	if end < 0 {
		return ""
	}
	return rest[:end]
}

// poolInTitle returns the pool of a child, "" when it is none.
func poolInTitle(title string) string {
	pool, ok := strings.CutPrefix(title, poolTitle)
	if !ok {
		return ""
	}
	return strings.TrimSpace(pool)
}
