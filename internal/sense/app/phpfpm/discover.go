package phpfpm

import (
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
)

const (
	masterTitle = "php-fpm: master process"
	poolTitle   = "php-fpm: pool "
)

// Discover finds the running masters among the processes by their title. It reads
// nothing: that is for Begin. procRoot is "/proc" but in tests.
func Discover(procs []observe.Process, procRoot string) []*Instance {
	byPID := map[int]*Instance{}
	var out []*Instance
	for _, p := range procs {
		if p.Kernel || p.EndedIn || !strings.HasPrefix(p.Cmdline, masterTitle) {
			continue
		}
		in := &Instance{PID: p.PID, MaxBytes: DefaultMaxBytes, proc: p, procRoot: procRoot,
			confFile: configInTitle(p.Cmdline), poolOf: map[int]string{}, seen: map[int]string{}}
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

// takeTitle reads the title as a whole, where the table of processes holds 512 bytes.
func (in *Instance) takeTitle() {
	if title := prefork.Title(in.procRoot, in.PID); strings.HasPrefix(title, masterTitle) {
		in.confFile = configInTitle(title)
	}
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
	return strings.Clone(rootfs.Clip(strings.TrimSpace(pool)))
}
