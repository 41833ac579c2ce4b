package nginx

import (
	"path"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork"
)

// Discover finds the running instances among the processes: masters by their
// title, and single processes (master_process off), which set none. It reads nothing:
// that is for Begin. procRoot is "/proc" but in tests.
func Discover(procs []observe.Process, procRoot string) []*Instance {
	masters := map[int]bool{}
	var out []*Instance
	for _, p := range procs {
		if p.Kernel || p.EndedIn {
			continue
		}
		if _, ok := masterArgs(p.Cmdline); !ok {
			continue
		}
		masters[p.PID] = true
		out = append(out, newInstance(p, procRoot))
	}
	for _, p := range procs {
		if p.Kernel || p.EndedIn || masters[p.PID] || masters[p.PPID] || !isNginxName(p.Name()) || hasTitle(p.Cmdline) {
			continue
		}
		argv := strings.Fields(p.Cmdline) // the first 512 bytes
		if len(argv) == 0 || p.Program == "" && !isNginxName(path.Base(argv[0])) {
			continue
		}
		if _, serves := parseArgv(argv[1:]); !serves {
			continue
		}
		in := newInstance(p, procRoot)
		in.single = true
		in.workers = []int{p.PID}
		out = append(out, in)
	}
	byPID := map[int]*Instance{}
	for _, in := range out {
		byPID[in.PID] = in
	}
	for _, p := range procs {
		if in := byPID[p.PPID]; in != nil && !p.EndedIn {
			in.listed = append(in.listed, p.PID)
		}
	}
	return out
}

// takeTitle reads what the process was started with: as a whole, where the table of
// processes holds 512 bytes of it.
func (in *Instance) takeTitle() {
	if in.single {
		argv := prefork.Args(in.procRoot, in.PID)
		if len(argv) == 0 {
			argv = strings.Fields(in.proc.Cmdline)
		}
		in.args, _ = parseArgv(argv[min(len(argv), 1):])
		return
	}
	args, ok := masterArgs(prefork.Title(in.procRoot, in.PID))
	if !ok {
		args, _ = masterArgs(in.proc.Cmdline)
	}
	in.args = parseTitleArgs(args)
}

const masterMark = ": master process"

// masterArgs returns the command line inside a master's title:
// "nginx: master process nginx -c /x/nginx.conf", and Angie's
// "angie: master process v1.4.0 #1 [angie -c /x/angie.conf]".
func masterArgs(title string) (string, bool) {
	name, rest, ok := strings.Cut(title, masterMark)
	if !ok || !isNginxName(name) {
		return "", false
	}
	rest = strings.TrimSpace(rest)
	if strings.HasPrefix(rest, "v") {
		if _, inside, ok := strings.Cut(rest, " ["); ok {
			return strings.TrimSuffix(inside, "]"), true
		}
	}
	return rest, true
}

// hasTitle recognises a process that has set a title: no command line.
func hasTitle(cmdline string) bool {
	name, _, ok := strings.Cut(cmdline, ": ")
	return ok && isNginxName(name)
}

var names = []string{"nginx", "openresty", "tengine", "angie", "freenginx", "nginx-debug"}

func isNginxName(s string) bool { return slices.Contains(names, s) }

// role tells what a child is by its title.
type role int

const (
	roleOther role = iota // cache manager, cache loader, a new master during an upgrade
	roleWorker
	roleLeaving // a worker of an older configuration that finishes its connections
)

func roleOf(title string) role {
	name, rest, ok := strings.Cut(title, ": ")
	if !ok || !isNginxName(name) || !strings.HasPrefix(rest, "worker process") {
		return roleOther
	}
	if strings.Contains(rest, "is shutting down") {
		return roleLeaving
	}
	return roleWorker
}

// arguments are the options nginx was started with.
type arguments struct {
	conf, prefix, global, errorLog string
}

func (a *arguments) set(option byte, value string) {
	switch option {
	case 'c':
		a.conf = value
	case 'p':
		a.prefix = value
	case 'g':
		a.global = value
	case 'e':
		a.errorLog = value
	}
}

const valueOptions = "cpge"

// parseArgv reads an argument vector (ngx_get_options: options may be glued
// to each other and to their value). False: the process does not serve (-t,
// -v, -s …).
func parseArgv(argv []string) (a arguments, serves bool) {
	for i := 0; i < len(argv); i++ {
		arg, ok := strings.CutPrefix(argv[i], "-")
		if !ok {
			continue
		}
		for len(arg) > 0 {
			c := arg[0]
			arg = arg[1:]
			if strings.IndexByte(valueOptions, c) >= 0 {
				if arg == "" && i+1 < len(argv) {
					i++
					arg = argv[i]
				}
				a.set(c, arg)
				break
			}
			if strings.IndexByte("tTvVsh?", c) >= 0 {
				return a, false
			}
		}
	}
	return a, true
}

// parseTitleArgs reads the command line in a master's title. The title is the
// arguments joined by spaces, so a value with spaces ("daemon off;") reaches
// to the next word that is an option.
func parseTitleArgs(line string) arguments {
	var a arguments
	words := strings.Split(line, " ")
	for i := 1; i < len(words); i++ {
		if !isValueOption(words[i]) {
			continue
		}
		option := words[i][1]
		value := words[i][2:]
		for i+1 < len(words) && !isOption(words[i+1]) {
			i++
			if value != "" {
				value += " "
			}
			value += words[i]
		}
		a.set(option, unquote(strings.TrimSpace(value)))
	}
	return a
}

func isValueOption(w string) bool {
	return len(w) >= 2 && w[0] == '-' && strings.IndexByte(valueOptions, w[1]) >= 0
}

func isOption(w string) bool {
	return isValueOption(w) || len(w) == 2 && w[0] == '-' && strings.IndexByte("qtTvVsh?", w[1]) >= 0
}

func unquote(s string) string {
	if len(s) >= 2 && (s[0] == '\'' || s[0] == '"') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}
