package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/slowray/slowray/lab/grammar"
	"github.com/slowray/slowray/lab/sandbox"
	"github.com/slowray/slowray/lab/server"
)

const (
	// benchMargin is how much longer than slowray's window the load lasts.
	benchMargin = 600 * time.Millisecond
	fixSettles  = 700 * time.Millisecond  // from a fix to the measurement of what it did
	fixWindow   = 2500 * time.Millisecond // of that
	fixLimit    = 5 * time.Second         // for a command of a fix
	fixProof    = 75 * time.Second        // for slowray prove, where it makes the change
	proofEnds   = 25 * time.Second        // for it to put back what it changed; the load lasts as long
)

// tried is what came of a fix.
type tried struct {
	by    string // what was run, or why nothing
	proof string // verdict of slowray prove
	works *bool  // its word; nil where the service is measured again
}

// benchLook has slowray look at the draw under its load, makes the fix that it prints
// first, and measures the service once more.
func (r *runner) benchLook(ctx context.Context) (look benchLook, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	box, err := sandbox.Open(ctx, r.lock, r.boxOptions(r.Faults, 4*time.Minute))
	if err != nil {
		return look, err
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	stack, err := server.Start(ctx, box, r.exe, r.Injected(r.Faults), r.plan)
	if err != nil {
		return look, err
	}
	t := &trial{runner: r, faults: r.Faults, window: r.opt.Window, warm: max(watchWarm, r.Lead), after: benchMargin}
	t.watch = func(ctx context.Context, box *sandbox.Box) error {
		var err error
		look.report, err = r.slowray(ctx, box)
		return err
	}
	if look.sample, err = t.observe(ctx, box, stack, t.warm+t.window+t.after); err != nil {
		return look, err
	}
	look.hops = findHops(box)
	look.report.netns = 0 // where a finding may be is judged by benchLook.about
	look.within = map[uint64]bool{0: true}
	for _, side := range []*sandbox.Side{box.Server, box.Client, box.Backend} {
		if side == nil {
			continue
		}
		inode, err := side.NetNS(ctx)
		if err != nil {
			return look, err
		}
		look.within[inode] = true
	}
	if strings.Contains(r.Injected(r.Faults).Packets.AtServer, "netns add "+grammar.Gateway) {
		said, err := box.Server.Output(ctx, "stat", "-Lc", "%i", "/run/netns/"+grammar.Gateway)
		if err != nil {
			return look, err
		}
		inode, err := strconv.ParseUint(said, 10, 64)
		if err != nil {
			return look, err
		}
		look.within[inode] = true
	}
	if r.Control || look.report.Problem != "" || len(look.report.Findings) == 0 {
		return look, nil
	}
	if look.fix, err = r.tryFix(ctx, box, look.report); err != nil || look.fix.by == "" || look.fix.works != nil {
		return look, err
	}
	if strings.HasPrefix(look.fix.by, "#") { // nothing was run
		return look, nil
	}
	if err := pause(ctx, fixSettles); err != nil {
		return look, err
	}
	again := &trial{runner: r, faults: r.Faults, window: fixWindow, warm: fixSettles, after: fixSettles / 2}
	fixed, err := again.observe(ctx, box, stack, again.warm+again.window+again.after)
	look.fixed = &fixed
	return look, err
}

// pids finds what may be a process in a command.
var pids = regexp.MustCompile(`(?:^|[\s/=-])(\d{2,7})(?:[\s;/]|$)`)

// ours says whether a command can only change what is in the sandbox: it names one of
// its processes or files, and no program that reaches further.
func ours(box *sandbox.Box, line string) bool {
	for _, word := range strings.Fields(line) {
		if slices.Contains([]string{"systemctl", "service", "apt", "apt-get", "reboot", "docker", "rm", "dd", "mkfs", "ssh", "tee", "perf", "strace", "tcpdump", "watch", "top"}, filepath.Base(word)) {
			return false
		}
	}
	if strings.Contains(line, filepath.Base(box.Dir)) {
		return true
	}
	inside := below(parents(), box.PID())
	found := false
	for _, m := range pids.FindAllStringSubmatch(line, -1) {
		pid, err := strconv.Atoi(m[1])
		if err != nil {
			continue
		}
		if inside[pid] {
			found = true
		} else if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil && strings.Contains(line, "kill") {
			return false // somebody else's
		}
	}
	return found
}

// parents gives the parent of each process of the host.
func parents() map[int]int {
	of := map[int]int{}
	for _, pid := range processes() {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		var state string
		var ppid int
		if _, err := fmt.Sscan(string(stat[bytes.LastIndexByte(stat, ')')+1:]), &state, &ppid); err == nil {
			of[pid] = ppid
		}
	}
	return of
}

// below gives all processes below one, in whatever namespaces, and itself; of is their
// parents.
func below(of map[int]int, init int) map[int]bool {
	all := map[int]bool{init: true}
	for grown := true; grown; {
		grown = false
		for pid, parent := range of {
			if all[parent] && !all[pid] {
				all[pid], grown = true, true
			}
		}
	}
	return all
}

// looks are commands that only show something: no fix.
var looks = []string{"ss", "cat", "journalctl", "ps", "ls", "df", "du", "findmnt", "lsof", "grep", "slowray", "curl", "dig", "ping", "jstack", "py-spy", "conntrack", "stat", "gdb", "head", "tail", "ipcs", "less", "tracepath", "mtr", "traceroute", "nstat", "ethtool", "top", "jcmd"}

// onlyShows finds commands that do no more than that, whatever their program could do.
var onlyShows = regexp.MustCompile(`\b(ip|tc) -s\b|\b(show|list|status)\b|["']SELECT (pid|\*|[a-z_]+,)|\bSHOW\b|\bEXPLAIN\b|\bSLOWLOG GET\b|\bkill -QUIT\b|\bprlimit --pid \d+ --[a-z]+$`)

// program is the word of a command that says what it does: in nsenter … ss -ltn it is ss.
func program(line string) string {
	words := strings.Fields(line)
	for n := 0; n < len(words); n++ {
		word := filepath.Base(words[n])
		switch {
		case word == "nsenter" || word == "sudo" || word == "env" || word == "ip" && n+3 < len(words) && words[n+1] == "netns" && words[n+2] == "exec":
			if word == "ip" {
				n += 3
			}
			for n+1 < len(words) && strings.HasPrefix(words[n+1], "-") {
				n++
				if words[n] == "-t" || words[n] == "--target" {
					n++
				}
			}
		default:
			return word
		}
	}
	return ""
}

// tryFix runs the commands of the first finding of role cause, or has slowray make the
// change where the commands are not to be pasted as they are.
func (r *runner) tryFix(ctx context.Context, box *sandbox.Box, report *Report) (tried, error) {
	at := slices.IndexFunc(report.Findings, func(f Finding) bool { return f.Role == "cause" })
	if at < 0 {
		return tried{by: "# no finding of role cause"}, nil
	}
	fix := report.whole.Findings[at].Fix
	var ran []string
	for _, c := range fix.Commands {
		if c.IsNote() && len(fix.Changes) > 0 { // it asks for an edit
			return r.tryChange(ctx, box, report.Findings[at].Cause)
		}
		line := c.String()
		command, _, _ := strings.Cut(line, "   # ")
		if c.IsNote() || slices.Contains(looks, program(command)) || onlyShows.MatchString(command) {
			continue
		}
		if value, ok := hostConntrack(command); ok {
			if err := box.SetHost(ctx, "/proc/sys/net/netfilter/nf_conntrack_max", value); err != nil {
				return tried{}, err
			}
			ran = append(ran, command)
			continue
		}
		if !ours(box, command) {
			continue
		}
		limit, cancel := context.WithTimeout(ctx, fixLimit)
		cmd := exec.CommandContext(limit, "sh", "-c", command)
		cmd.Stdin = strings.NewReader(server.DatabasePassword + "\n") // as who pastes it would type where it asks
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		said, err := cmd.CombinedOutput()
		cancel()
		if err != nil {
			command += fmt.Sprintf(" # %v: %.200s", err, bytes.TrimSpace(said))
		}
		ran = append(ran, command)
	}
	if len(ran) > 0 {
		return tried{by: strings.Join(ran, "\n")}, nil
	}
	if len(fix.Changes) == 0 {
		return tried{by: "# " + fix.Text}, nil
	}
	return r.tryChange(ctx, box, report.Findings[at].Cause)
}

// hostConntrack is the value of the one setting of the host that the lab changes.
func hostConntrack(command string) (string, bool) {
	_, after, _ := strings.Cut(command, "net.netfilter.nf_conntrack_max=")
	value, _, _ := strings.Cut(after, " ")
	return value, value != ""
}

// tryChange has slowray prove make the change, under load, and takes its word.
func (r *runner) tryChange(ctx context.Context, box *sandbox.Box, cause string) (tried, error) {
	ctx, cancel := context.WithTimeout(ctx, fixProof+2*proofEnds)
	defer cancel()
	traffic, err := r.startLoad(ctx, box, r.LoadWith(r.Faults), fixProof+proofEnds, 0)
	if err != nil {
		return tried{}, err
	}
	if err := pause(ctx, quickWatchWarm); err != nil {
		return tried{}, err
	}
	said, err := r.proves(ctx, cause, box.Dir, fixProof)
	if err != nil {
		return tried{}, err
	}
	if err := traffic.proc.Signal(ctx, syscall.SIGKILL); err != nil {
		return tried{}, err
	}
	t := tried{by: "# slowray prove " + cause + " --apply", proof: said.Result.Verdict}
	if said.Result.Verdict == "" || said.problem != "" { // no verdict, or not in time
		t.by += ": " + said.problem
		return t, nil
	}
	works := said.Result.Verdict == verdictProved
	if !works {
		t.by += ": " + said.Result.Why
	}
	t.works = &works
	return t, nil
}
