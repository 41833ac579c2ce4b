package cause

import (
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// ChangeKind says what kind of thing a [Change] sets. internal/prove/change and
// internal/prove/config make them; nothing here touches the system.
type ChangeKind string

// The kinds of changes, with the fields of [Change] that each needs.
const (
	// ChangeSysctl sets the sysctl Name, in the network namespace of PID or,
	// where NetNS is 0, on the host.
	ChangeSysctl ChangeKind = "sysctl"
	// ChangeBacklog calls listen(2) again, with Value, on the listening socket
	// at Addr and Port in NetNS, or at the unix socket Path, of PID.
	ChangeBacklog ChangeKind = "backlog"
	// ChangeSocketOption sets option Name (TCP_NODELAY, SO_RCVBUF …) on the
	// sockets of PID: connections to its Port (Side "served"), those it has
	// opened to Addr and Port (Side "called"), or the datagram socket at Port.
	ChangeSocketOption ChangeKind = "socket-option"
	// ChangeRlimit sets the soft limit Name ("nofile", as in prlimit(1)) of PID,
	// and the hard one where that is lower.
	ChangeRlimit ChangeKind = "rlimit"
	// ChangePipeSize sets the capacity in bytes of the pipe at descriptor FD of PID.
	ChangePipeSize ChangeKind = "pipe-size"
	// ChangeCgroup writes Value to the file Name of the control group at Path.
	ChangeCgroup ChangeKind = "cgroup"
	// ChangeQdisc replaces the queueing discipline Name ("root", "parent 1:2")
	// of Interface in NetNS by Value, in the words of tc(8); empty takes it away.
	ChangeQdisc ChangeKind = "qdisc"
	// ChangeFilter takes away the tc filter, or the XDP program, Rule of Interface.
	ChangeFilter ChangeKind = "filter"
	// ChangeRule takes away the firewall rule Rule in NetNS; undoing puts it back
	// where it was.
	ChangeRule ChangeKind = "rule"
	// ChangeMTU sets the MTU of Interface in NetNS.
	ChangeMTU ChangeKind = "mtu"
	// ChangeAffinity lets all threads of PID run on the CPUs of Value, a list as
	// in taskset(1).
	ChangeAffinity ChangeKind = "affinity"
	// ChangeNice sets the nice value of all threads of PID.
	ChangeNice ChangeKind = "nice"
	// ChangeContinue sends SIGCONT to PID, which is stopped.
	ChangeContinue ChangeKind = "continue"
	// ChangeFile writes Value to the file Path of sysfs (a disk's scheduler, the
	// clock source).
	ChangeFile ChangeKind = "file"

	// ChangeConfig sets directive Name to Value at Path and Line of the
	// configuration of the server Server with master PID, and has it read anew.
	// Path is as seen from slowray, through /proc/PID/root where need be. Where
	// Line is 0 the directive is not written yet: it belongs into Section
	// ("events", "www"; empty is the top level) of Path. A Name of two words is
	// an argument of the directive: "limit_req_zone rate=" the one that begins
	// so, "server maxconn" the word after maxconn.
	ChangeConfig ChangeKind = "config"
	// ChangeSetting sets Name to Value in the running server Server with PID,
	// which listens at Port in NetNS or at the unix socket Path, by its own
	// command (CONFIG SET, SET GLOBAL), or by signals to it (gunicorn).
	ChangeSetting ChangeKind = "setting"
)

// Change is one thing that can be set while everything runs and put back. It
// is data: what to set, and where.
type Change struct {
	Kind  ChangeKind `json:"kind"`
	Text  string     `json:"text"` // for people: "nf_conntrack_max 200 → 262144, on the host"
	NetNS uint64     `json:"netns,omitempty"`
	PID   int        `json:"pid,omitempty"`
	// NetNSPath is a file that leads to NetNS, where no process may live in it.
	NetNSPath string `json:"netns_path,omitempty"`

	Name  string `json:"name,omitempty"`
	Value string `json:"value"`
	Was   string `json:"was,omitempty"` // as it was seen; what is put back is read anew

	Path      string `json:"path,omitempty"`
	Line      int    `json:"line,omitempty"`
	Section   string `json:"section,omitempty"`
	FD        int    `json:"fd,omitempty"`
	Side      string `json:"side,omitempty"`
	Addr      string `json:"addr,omitempty"`
	Port      int    `json:"port,omitempty"`
	Interface string `json:"interface,omitempty"`
	Rule      *Rule  `json:"rule,omitempty"`
	Server    string `json:"server,omitempty"` // "nginx", "php-fpm", "apache", "haproxy", "redis", "mariadb"
}

// Rule is a rule of a firewall, a tc filter or an XDP program.
type Rule struct {
	Tool   string `json:"tool"` // "nft", "iptables-nft", "iptables-legacy", "ip6tables-legacy", "tc", "xdp"
	Family string `json:"family,omitempty"`
	Table  string `json:"table,omitempty"`
	Chain  string `json:"chain,omitempty"`
	Handle uint64 `json:"handle,omitempty"`
	Index  int    `json:"index,omitempty"` // place in the chain, from 1
	Text   string `json:"text"`
}

// Hot says that it takes effect at once and that no server has to read its
// configuration anew.
func (c *Change) Hot() bool { return c.Kind != ChangeConfig }

// Target is the service that a change is for where no finding names it: the one
// that was asked for, by port or process, or the only one there is.
type Target struct {
	Service *Service
	Finding *Finding // nil: the cause was not found, and is to be tried all the same
	// Database is one that the service calls, where a cause is to be tried on that:
	// next to it Service and Finding are nil.
	Database *observe.Database
}

// targetNS is the network namespace that t is in.
func (v *View) targetNS(t Target) *observe.NetNS {
	switch {
	case t.Finding != nil && t.Finding.Subject.NetNS != 0:
		return v.Namespace(t.Finding.Subject.NetNS)
	case t.Service != nil:
		return t.Service.NS
	}
	return nil
}

// sysctlChange sets a sysctl in ns; nil is the host.
func sysctlChange(ns *observe.NetNS, name, was, value string) Change {
	c := Change{Kind: ChangeSysctl, Name: name, Was: was, Value: value, Text: name + becomes(was, value)}
	if ns == nil || ns.Host {
		c.Text += ", on the host"
		return c
	}
	c.NetNS, c.PID, c.NetNSPath = ns.Inode, ns.PID, ns.Path
	c.Text += "," + where(ns)
	return c
}

// service is the one that t is about: that of its finding, or the one asked for.
func (v *View) service(t Target) *Service {
	if t.Finding == nil || t.Service != nil {
		return t.Service
	}
	f := t.Finding.Subject
	if path, ok := strings.CutPrefix(f.Addr, "unix:"); ok {
		return v.ServiceAt(f.NetNS, 0, path)
	}
	return v.ServiceOf(f.PID)
}

// Changes gives the changes that c would be proved by on t. A check that knows
// them, because they are its fix, has written them into the finding.
func (c *Cause) Changes(v *View, t Target) []Change {
	switch {
	case c.Try == nil:
		return nil
	case t.Finding != nil && t.Finding.Fix.Changes != nil:
		return t.Finding.Fix.Changes
	}
	return c.Try(v, t)
}
