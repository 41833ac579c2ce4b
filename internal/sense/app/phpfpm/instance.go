package phpfpm

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
)

// DefaultMaxBytes is how much of an instance's log is read.
const DefaultMaxBytes = 64 << 20

// Bounds of what is reported for an instance, and of the children whose pool is remembered.
const (
	maxGaps  = 128
	maxSlows = 64 // slow logs that are followed
	maxSeen  = 16_384
)

// Instance is one running php-fpm master. It is used by one goroutine at a
// time: Discover, then Begin, any number of Sample, then End.
type Instance struct {
	PID      int   // the master
	MaxBytes int64 // bound on the log bytes read by End

	proc     observe.Process
	procRoot string
	listed   []int          // children by the process table
	poolOf   map[int]string // pool of each child of the last round
	seen     map[int]string // pool of each child of any round

	root     rootfs.Root
	rootText string
	confFile string
	files    []string
	cut      bool // the configuration was not read to its end
	pools    []*poolState
	byName   map[string]*poolState
	tail     *logtail.Tail
	logPath  string
	problem  string // why the log cannot be followed
	gaps     []observe.Gap
	losses   []observe.Loss
}

func (in *Instance) gap(subject string, partial bool, format string, args ...any) {
	if len(in.gaps) == maxGaps {
		in.loss("things of php-fpm that could not be read", 1)
		return
	}
	in.gaps = append(in.gaps, observe.Gap{Kind: observe.KindPHPFPM, NetNS: in.proc.NetNS,
		Subject: subject, Because: fmt.Sprintf(format, args...), Partial: partial})
}

func (in *Instance) loss(what string, n int64) {
	if n <= 0 {
		return
	}
	for i := range in.losses {
		if in.losses[i].What == what {
			in.losses[i].Count += n
			return
		}
	}
	in.losses = append(in.losses, observe.Loss{What: what, Count: n})
}

// Begin reads the configuration and opens the log at its present end. It has half of
// the budget for the configuration: of one that is larger nothing is taken but the path
// of its log, for what stands at its end may be what counts. The result says whether
// that was so.
func (in *Instance) Begin(b *budget.Budget) (tooLarge bool) {
	in.byName = map[string]*poolState{}
	in.takeTitle()
	conf := b.Share(2)
	p, ok := in.readConfig(b, conf)
	defer func() { in.root = in.root.With(b) }() // nothing of the files is kept
	if !ok {
		return conf.Own()
	}
	for _, c := range p.pools {
		if in.cut {
			break
		}
		s := &poolState{pool: c.pool(p.prefix)}
		s.max, _ = strconv.Atoi(s.pool.MaxChildren.Value)
		if n := len(in.pools); n < maxSlows {
			in.openSlow(s, c, p.prefix)
		}
		in.pools = append(in.pools, s)
		in.byName[c.name] = s
	}
	if len(in.pools) == 0 && !in.cut {
		in.gap(in.confFile, true, "the configuration of php-fpm (pid %d) names no pool that could be found", in.PID)
	}
	if name := p.global["error_log"].text; name != "" || !in.cut {
		in.openLog(name)
	}
	return conf.Own()
}

// Read says that the configuration could be read.
func (in *Instance) Read() bool {
	return in.confFile != "" && in.byName != nil && len(in.files) > 0 && !in.cut
}

// Close releases an instance that is not followed to its End.
func (in *Instance) Close() {
	if in.tail != nil {
		in.tail.Close()
	}
	for _, s := range in.pools {
		if s.slow != nil {
			s.slow.Close()
		}
	}
}

// readConfig finds and parses the configuration that the title names, within conf.
func (in *Instance) readConfig(all, conf *budget.Budget) (*parser, bool) {
	subject := fmt.Sprintf("pid %d", in.PID)
	root, text, err := prefork.Root(in.procRoot, in.proc, all)
	in.root, in.rootText = root, text
	if err != nil {
		if in.proc.Container != "" {
			in.gap(subject, false, "the root directory of php-fpm (pid %d) in container %s cannot be entered: %s", in.PID, in.proc.Container, rootfs.Plain(err))
			return nil, false
		}
		in.gap(subject, true, "the root directory of php-fpm (pid %d) cannot be entered (%s): its files are taken to be the host's", in.PID, rootfs.Plain(err))
	}
	if in.confFile == "" {
		in.gap(subject, false, "the title of php-fpm (pid %d) does not name its configuration file", in.PID)
		return nil, false
	}
	if !path.IsAbs(in.confFile) {
		in.confFile = path.Join(prefork.Cwd(in.procRoot, in.PID), in.confFile)
	}
	prefix, _ := in.prefixes()
	p := &parser{b: conf, root: root.With(conf), prefix: prefix}
	err = p.readFile(in.confFile)
	in.files = p.files
	for _, pr := range p.problems {
		in.gap(fmt.Sprintf("%s:%d", pr.file, pr.line), true, "php-fpm configuration: %s", logtail.Printable([]byte(pr.text), 512))
	}
	in.loss("php-fpm configuration problems", int64(p.dropped))
	if over := conf.Err(); over != nil {
		in.gap(in.confFile, true, "the configuration of php-fpm (pid %d) was not read to its end: %s", in.PID, over)
		in.cut = true
	} else if err != nil {
		in.gap(in.confFile, false, "the configuration of php-fpm (pid %d) cannot be read: %s", in.PID, rootfs.Plain(err))
		return nil, false
	}
	return p, true
}

// ConfigFiles lists the main file and all that it includes, inside the root, as
// they were when Begin read them.
func (in *Instance) ConfigFiles() []string { return in.files }

// Pools are the pools as Begin read them.
func (in *Instance) Pools() []observe.FPMPool {
	var out []observe.FPMPool
	for _, s := range in.pools {
		out = append(out, s.pool)
	}
	return out
}

// Children lists the children of each pool now, by their titles.
func (in *Instance) Children() map[string][]int {
	pids, _ := prefork.Children(in.procRoot, in.PID)
	out := map[string][]int{}
	for _, pid := range pids {
		if pool := poolInTitle(prefork.Title(in.procRoot, pid)); pool != "" {
			out[pool] = append(out[pool], pid)
		}
	}
	return out
}

// prefixes guesses PHP_PREFIX and PHP_LOCALSTATEDIR, which nothing tells from
// outside, by where the binary lies: distributions use /usr and /var, builds
// from source /usr/local and /usr/local/var.
func (in *Instance) prefixes() (prefix, state string) {
	prefix = "/usr"
	if exe, err := os.Readlink(in.file("exe")); err == nil {
		if dir := path.Dir(path.Dir(strings.TrimSuffix(exe, " (deleted)"))); dir != "/" && dir != "." {
			prefix = dir
		}
	}
	if prefix == "/usr" {
		return prefix, "/var"
	}
	return prefix, path.Join(prefix, "var")
}

func (in *Instance) file(name string) string {
	return filepath.Join(in.procRoot, strconv.Itoa(in.PID), name)
}

const defaultLog = "log/php-fpm.log"

// openLog opens the error log (the only one that is read).
func (in *Instance) openLog(name string) {
	in.logPath = name
	switch {
	case name == "syslog":
		in.problem = "the log goes to syslog, not to a file"
		return
	case strings.Contains(name, "${"):
		in.problem = "the path of the log comes from an environment variable"
		return
	case name == "":
		name = defaultLog
	}
	if !path.IsAbs(name) {
		_, state := in.prefixes()
		name = in.openFile(path.Base(name), path.Join(state, name))
	}
	in.logPath = path.Clean(name)
	tail, err := logtail.Open(in.root, in.logPath)
	in.tail, in.problem = tail, logtail.Reason(err)
	if in.tail != nil {
		in.checkWritten()
	}
}

// checkWritten notes a log that the master does not have open: renamed or
// deleted without telling php-fpm, which goes on writing to the old file.
func (in *Instance) checkWritten() {
	open, err := prefork.OpenFiles(in.procRoot, in.PID)
	if err != nil || len(open) == 0 {
		return
	}
	if !slices.ContainsFunc(open, func(f prefork.File) bool { return in.tail.Is(f.Dev, f.Ino) }) {
		in.gap(in.logPath, true, "%s is not a file that php-fpm (pid %d) has open: it was renamed, deleted or replaced without a reopen", in.logPath, in.PID)
	}
}

// openFile finds a file of that name among the master's open ones: a relative
// path is relative to what was compiled in or given with -p, but the master
// holds its log open. Otherwise it returns the guess.
func (in *Instance) openFile(base, guess string) string {
	open, err := prefork.OpenFiles(in.procRoot, in.PID)
	if err != nil {
		return guess
	}
	var found []string
	for _, f := range open {
		if path.Base(f.Path) == base && !slices.Contains(found, f.Path) {
			found = append(found, f.Path)
		}
	}
	if len(found) == 1 {
		return found[0]
	}
	return guess
}
