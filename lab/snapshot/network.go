package snapshot

import (
	"context"
	"os/exec"
	"regexp"
	"strings"
)

// output is what a tool says; "" where it is not there or finds nothing. It runs
// in the namespace of this thread.
func output(ctx context.Context, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return ""
	}
	return string(out)
}

// link finds the name of a device in a line of ip -o link.
var link = regexp.MustCompile(`^\d+: ([^:@]+)[:@]`)

// linkSetting are the settings in such a line; the rest is state.
var linkSetting = regexp.MustCompile(`\b(mtu|qlen|xdp\S*|prog/xdp id) [^\s\\]+|\bprog/xdp\b.*?(tag \S+)`)

// users is how many use a queueing discipline at the moment.
var users = regexp.MustCompile(` refcnt \d+`)

// links reads devices, their queueing disciplines, classes and filters.
func (s *Snapshot) links(ctx context.Context, name string) {
	for line := range strings.Lines(output(ctx, "ip", "-d", "-o", "link", "show")) {
		m := link.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		dev := m[1]
		s.set(strings.Join(linkSetting.FindAllString(line, -1), ", "), name, "link", dev)
		s.lines(name+" qdisc "+dev, users.ReplaceAllString(output(ctx, "tc", "-d", "qdisc", "show", "dev", dev), ""))
		s.lines(name+" class "+dev, output(ctx, "tc", "class", "show", "dev", dev))
		for _, parent := range [][]string{nil, {"ingress"}, {"egress"}} {
			args := append([]string{"filter", "show", "dev", dev}, parent...)
			s.lines(strings.Join(append([]string{name, "filter", dev}, parent...), " "), output(ctx, "tc", args...))
		}
	}
}

// chainCounters are those of a chain in the output of iptables-save.
var chainCounters = regexp.MustCompile(`\[\d+:\d+\]`)

// firewall reads all rules, without counters.
func (s *Snapshot) firewall(ctx context.Context, name string) {
	s.lines(name+" nft", output(ctx, "nft", "-s", "list", "ruleset"))
	for _, tool := range []string{"iptables-legacy-save", "ip6tables-legacy-save"} {
		s.lines(name+" "+tool, chainCounters.ReplaceAllString(output(ctx, tool), ""))
	}
}

// lines is output as one value; comments hold dates and warnings.
func (s *Snapshot) lines(key, text string) {
	var kept []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			kept = append(kept, line)
		}
	}
	s.set(strings.Join(kept, "; "), key)
}

// backlogs reads how many connections may wait at each listening socket, which
// ss(8) calls Send-Q. Programs of others begin and end to listen on the host as
// they like: only those are compared that are there both times.
func (s *Snapshot) backlogs(ctx context.Context, name string, host bool) {
	for _, kind := range []string{"-t", "-x"} {
		for line := range strings.Lines(output(ctx, "ss", "-lnH", kind)) {
			f := strings.Fields(line)
			if kind == "-x" && len(f) > 5 {
				s.setPassing(host, f[3], name, "backlog unix", f[4], f[5]) // with its inode: names may be there twice
			} else if kind == "-t" && len(f) > 3 {
				s.setPassing(host, f[2], name, "backlog", f[3])
			}
		}
	}
}
