package cause

import (
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/shell"
)

// LeaveOutDead leaves out the commands of a finding that name a process which ended in
// the window: they would do nothing, or be about another one of that number.
func (v *View) LeaveOutDead(f *Finding) {
	v.Step()
	if f.Subject.PID == 0 && len(f.Fix.Commands) == 0 {
		return
	}
	f.Fix.Commands = slices.DeleteFunc(f.Fix.Commands, v.namesDead)
	f.Fix.Persist = slices.DeleteFunc(f.Fix.Persist, v.namesDead)
}

func (v *View) namesDead(c shell.Command) bool {
	line, _, _ := strings.Cut(c.String(), " #")
	for word := range strings.FieldsFuncSeq(line, func(r rune) bool { return r < '0' || r > '9' }) {
		if pid, ok := pidNumber(word); ok {
			if p := v.procs[pid]; p != nil && p.EndedIn && namesProcess(line, word) {
				return true
			}
		}
	}
	return false
}

// pidNumber reads a number that may be one of a process (pid_max is at most 2^22).
func pidNumber(s string) (n int, ok bool) {
	if len(s) == 0 || len(s) > 7 {
		return 0, false
	}
	for _, c := range []byte(s) {
		n = 10*n + int(c-'0')
	}
	return n, n > 1
}

// namesProcess says that a number in a command is that of a process: by the path, the
// option or the program before it. A port is none.
func namesProcess(line, number string) bool {
	for _, before := range []string{"/proc/", "--pid ", "--pid=", "-p ", "--target ", "slowray wait "} {
		if at := strings.Index(line, before+number); at >= 0 && !strings.HasPrefix(strings.TrimLeft(line[at+len(before)+len(number):], " "), ":") {
			return before != "-p " || strings.HasPrefix(line, "renice ") || strings.HasPrefix(line, "taskset ") || strings.HasPrefix(line, "chrt ")
		}
	}
	return strings.HasPrefix(line, "kill ") || strings.HasPrefix(line, "renice ") || strings.HasPrefix(line, "chrt ")
}
