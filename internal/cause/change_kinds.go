package cause

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// becomes tells an old value, where it is known, and the new one.
func becomes(was, value string) string {
	if was == "" {
		return " = " + value
	}
	return " " + was + " → " + value
}

// raised is a change of the sysctl name in ns, for the service there, to at
// least want; none where it is that much already, or not known.
func (v *View) raised(ns *observe.NetNS, name string, want uint64) []Change {
	was := v.sysctl(ns, name)
	if n, err := strconv.ParseUint(was, 10, 64); err != nil || n >= want {
		return nil
	}
	return []Change{sysctlChange(ns, name, was, utoa(want))}
}

// switched is a change of the sysctl name in ns to value; none where it has
// that value, or is not known.
func (v *View) switched(ns *observe.NetNS, name, value string) []Change {
	was := v.sysctl(ns, name)
	if was == "" || was == value {
		return nil
	}
	return []Change{sysctlChange(ns, name, was, value)}
}

// widened is a change of a sysctl of several figures, as net.ipv4.tcp_rmem: each
// becomes that of want, where it is less.
func (v *View) widened(ns *observe.NetNS, name, want string) []Change {
	was := strings.Fields(v.sysctl(ns, name))
	figures := strings.Fields(want)
	if len(was) != len(figures) {
		return nil
	}
	for i := range was {
		have, err := strconv.ParseUint(was[i], 10, 64)
		if least, _ := strconv.ParseUint(figures[i], 10, 64); err != nil || have > least {
			figures[i] = was[i]
		}
	}
	if slices.Equal(was, figures) {
		return nil
	}
	return []Change{sysctlChange(ns, name, strings.Join(was, " "), strings.Join(figures, " "))}
}

// configChange sets a directive of a server's configuration, whose files are
// reached by root, to value. Where it is not written yet, it belongs into
// section of the file main.
func configChange(server string, pid int, root string, was observe.Setting, main, section, name, value string) Change {
	c := Change{Kind: ChangeConfig, Server: server, PID: pid, Name: name, Value: value, Was: was.Value, Path: root + was.File, Line: was.Line}
	if was.Line == 0 {
		c.Path, c.Section = root+main, section
	}
	if was.Default {
		c.Was = ""
	}
	c.Text = fmt.Sprintf("%s%s in %s", name, becomes(was.Value, value), c.Path)
	if c.Line > 0 {
		c.Text += fmt.Sprintf(":%d", c.Line)
	}
	return c
}

// groupChange writes value to a file of a control group, given by its full path.
func groupChange(file, was, value string) Change {
	c := Change{Kind: ChangeCgroup, Path: path.Dir(file), Name: path.Base(file), Was: was, Value: value}
	c.Text = fmt.Sprintf("%s of %s%s", c.Name, c.Path, becomes(was, value))
	return c
}

// fileChange writes value to a file of sysfs.
func fileChange(path, was, value string) Change {
	return Change{Kind: ChangeFile, Path: path, Was: was, Value: value, Text: path + becomes(was, value)}
}

// continueChange lets a process that is stopped by a signal run again.
func continueChange(pid int, comm string) Change {
	return Change{Kind: ChangeContinue, PID: pid, Was: "stopped", Value: "running", Text: fmt.Sprintf("let %s (pid %d) run again", comm, pid)}
}

// niceChanges gives processes another nice value. What was put before others on
// purpose is left there.
func niceChanges(procs []*observe.Process, value int) []Change {
	var changes []Change
	for _, p := range procs {
		if p.Nice != value && p.Nice >= 0 {
			changes = append(changes, Change{Kind: ChangeNice, PID: p.PID, Was: itoa(p.Nice), Value: itoa(value),
				Text: fmt.Sprintf("nice value of %s (pid %d)%s", p.Comm, p.PID, becomes(itoa(p.Nice), itoa(value)))})
		}
	}
	return changes
}

// affinityChange lets a process run on all CPUs.
func (v *View) affinityChange(p *observe.Process) Change {
	all := v.allCPUs()
	if p.CPUSet != "" {
		return groupChange(p.CPUSet, p.CPUs, all)
	}
	return Change{Kind: ChangeAffinity, PID: p.PID, Was: p.CPUs, Value: all, Text: fmt.Sprintf("CPUs of %s (pid %d)%s", p.Comm, p.PID, becomes(p.CPUs, all))}
}

// allCPUs is all CPUs of the machine as a list, "0-3".
func (v *View) allCPUs() string {
	if v.Host.CPUs <= 1 {
		return "0"
	}
	return fmt.Sprintf("0-%d", v.Host.CPUs-1)
}

// rlimitChange raises a limit of a process.
func rlimitChange(p *observe.Process, name, was, value string) Change {
	return Change{Kind: ChangeRlimit, PID: p.PID, Name: name, Was: was, Value: value,
		Text: fmt.Sprintf("limit %s of %s (pid %d)%s", name, p.Comm, p.PID, becomes(was, value))}
}

// ruleChange takes a rule of a firewall away; none where that cannot be done, or
// another rule may be meant.
func ruleChange(ns *observe.NetNS, r *observe.FirewallRule) []Change {
	if ns == nil || r.Verdict == "policy drop" || r.Backend == "nft" && r.Handle == 0 || r.Backend != "nft" && r.Number == 0 {
		return nil
	}
	tool := r.Backend
	if r.Backend == "iptables-legacy" && r.Family == "ip6" {
		tool = "ip6tables-legacy"
	}
	return []Change{{Kind: ChangeRule, NetNS: ns.Inode, PID: ns.PID, NetNSPath: ns.Path,
		Rule: &Rule{Tool: tool, Family: r.Family, Table: r.Table, Chain: r.Chain, Handle: r.Handle, Index: r.Number, Text: r.Text},
		Text: "take away rule " + RuleName(r) + where(ns)}}
}

// qdiscChange replaces a queueing discipline; an empty value takes it away, and
// the kernel puts its default there.
func qdiscChange(ns *observe.NetNS, q *observe.Qdisc, value string) Change {
	name := q.Parent
	if name != "root" {
		name = "parent " + q.Parent
	}
	c := Change{Kind: ChangeQdisc, NetNS: ns.Inode, PID: ns.PID, NetNSPath: ns.Path, Interface: q.Interface, Name: name, Was: strings.TrimSpace(q.Kind + " " + q.Text), Value: value}
	c.Text = fmt.Sprintf("take away queueing discipline %s %s on %s%s", q.Kind, q.Handle, q.Interface, where(ns))
	if value != "" {
		c.Text = fmt.Sprintf("%s in the place of queueing discipline %s %s on %s%s", value, q.Kind, q.Handle, q.Interface, where(ns))
	}
	return c
}

// mtuChange sets the MTU of a device.
func mtuChange(ns *observe.NetNS, l *observe.Link, mtu int) Change {
	return Change{Kind: ChangeMTU, NetNS: ns.Inode, PID: ns.PID, NetNSPath: ns.Path, Interface: l.Name, Was: itoa(l.MTU), Value: itoa(mtu),
		Text: fmt.Sprintf("MTU of %s%s%s", l.Name, becomes(itoa(l.MTU), itoa(mtu)), where(ns))}
}

// pipeChange enlarges a pipe. That proves only what waits for it: a reader that
// stands still fills a larger one, too.
func pipeChange(pid int, comm string, fd int) Change {
	return Change{Kind: ChangePipeSize, PID: pid, FD: fd, Value: itoa(largePipe),
		Text: fmt.Sprintf("pipe at descriptor %d of %s (pid %d) to %d bytes: evidence only, it fills again", fd, comm, pid, largePipe)}
}

// largePipe is the most that a pipe is made to hold, as fs.pipe-max-size has it
// by default.
const largePipe = 1 << 20

// setSysctl adds to a fix how to set a sysctl: at once, in a network namespace or
// (nil) on the host, and for good.
func (v *View) setSysctl(fix *Fix, ns *observe.NetNS, name string, value any) {
	set := shell.Line("sysctl -w %s=%s", shell.Sysctl(name), value)
	if ns != nil {
		set = v.in(ns, set)
	}
	fix.Commands = append(fix.Commands, set)
	fix.Persist = append(fix.Persist, v.lastingSysctl(ns, name, value))
}

// lastingSysctl says where a sysctl of a network namespace is set for good. What
// the host's own files set at boot holds for the host's own namespace only.
func (v *View) lastingSysctl(ns *observe.NetNS, name string, value any) shell.Command {
	if ns == nil || ns.Host {
		return LastingSysctl(name, value)
	}
	setting := fmt.Sprintf("%s=%v", name, value)
	switch p := v.procs[ns.PID]; {
	case p != nil && p.Container != "":
		return shell.Line("# for the next container in its place: docker run --sysctl, sysctls in its compose file, securityContext.sysctls of its pod:").Note("%s", setting)
	case ns.Name != "":
		return shell.Line("# in what makes network namespace %s, after ip netns add:", ns.Name).Note("sysctl -w %s", setting)
	}
	return shell.Line("# in what makes the network namespace:").Note("sysctl -w %s", setting)
}

// LastingSysctl is the line that sets a sysctl at each boot (sysctl.d(5)). All of
// them are in one file, each by a line of its own: it is added to, never written anew.
func LastingSysctl(name string, value any) shell.Command {
	setting := fmt.Sprintf("%s = %v", name, value)
	return shell.Line("echo").Then(shell.Line("%s", shell.Sysctl(setting))).Then(shell.Line(">> /etc/sysctl.d/90-slowray.conf"))
}
