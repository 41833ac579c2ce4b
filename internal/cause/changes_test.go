package cause

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

var update = flag.Bool("update", false, "write testdata/changes.txt anew")

// changesFile has, for each fixture in which a cause is found, and for each
// service of the healthy one, what it would be proved by.
const changesFile = "testdata/changes.txt"

func allFiring() []fires {
	return slices.Concat(firing, firingOnRequests, firingOnWaits, firingOnCPU, firingOnTransport, firingOnNames, firingOnLocks, firingOnLacks(), firingOnKernelWaits(), firingOnDatabases, firingOnKernelWork(), firingOnMachine(), ownFiring)
}

// TestChanges: what is proposed to prove a cause is what is written down.
func TestChanges(t *testing.T) {
	var b strings.Builder
	for _, c := range Catalogue() {
		if c.Try == nil {
			continue
		}
		fmt.Fprintf(&b, "%s\n", c.ID)
		for _, f := range allFiring() {
			if f.cause.ID != c.ID {
				continue
			}
			o := usual()
			f.inject(o)
			v := NewView(o)
			for i, found := range f.cause.Judge(v).Findings {
				s := found.Subject
				changes := c.Changes(v, Target{Finding: &found, Service: v.ServiceAt(s.NetNS, s.Port, s.Path)})
				for _, change := range changes {
					sound(t, f.name, &change)
				}
				if i == 0 {
					list(&b, "found: "+f.name, changes)
				}
			}
		}
		v := NewView(usual())
		for _, s := range v.Services {
			list(&b, "not found, on "+s.Name(), c.Changes(v, Target{Service: s}))
		}
		for _, d := range []observe.Database{
			{Kind: "redis", PID: 9001, Ports: []int{6379}, MaxConnections: observe.Setting{Value: "10000"}},
			{Kind: "mariadb", PID: 9002, Ports: []int{3306}, MaxConnections: observe.Setting{Value: "151"}},
		} {
			changes := c.Changes(v, Target{Database: &d})
			if slices.ContainsFunc(changes, func(c Change) bool { return c.PID == d.PID }) {
				list(&b, "not found, on the "+d.Kind+" that is called", changes)
			}
		}
	}
	if *update {
		if err := os.WriteFile(changesFile, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(changesFile)
	if err != nil {
		t.Fatal(err)
	}
	got, wanted := strings.Split(b.String(), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(got), len(wanted)) {
		if i >= len(got) || i >= len(wanted) || got[i] != wanted[i] {
			t.Fatalf("line %d of %s is not what is proposed (go test ./internal/cause -run TestChanges -update writes it anew):\ngot  %q\nwant %q",
				i+1, changesFile, strings.Join(got[min(i, len(got)):min(i+1, len(got))], ""), strings.Join(wanted[min(i, len(wanted)):min(i+1, len(wanted))], ""))
		}
	}
}

// usual is the healthy fixture with all the knobs of Linux 6.18 that changes are
// made of.
func usual() *observe.Observation {
	o := healthy()
	for name, value := range map[string]string{
		"net.ipv4.tcp_wmem": "4096 16384 4194304", "net.ipv4.tcp_rmem": "4096 131072 6291456", "net.ipv4.tcp_mtu_probing": "0",
		"net.ipv4.tcp_slow_start_after_idle": "1", "net.ipv4.tcp_abort_on_overflow": "0", "net.ipv4.tcp_max_tw_buckets": "131072",
		"net.ipv4.tcp_syncookies": "1", "net.ipv4.tcp_max_syn_backlog": "1024", "net.ipv4.tcp_early_retrans": "3", "net.ipv4.tcp_recovery": "1",
		"net.ipv4.tcp_sack": "1", "net.ipv4.conf.all.rp_filter": "0", "net.unix.max_dgram_qlen": "512",
	} {
		ns(o).Sysctl[name] = value
	}
	for name, value := range map[string]string{
		"net.core.netdev_max_backlog": "1000", "net.ipv4.tcp_max_orphans": "131072", "net.ipv4.tcp_mem": "283761 378348 567522",
		"net.ipv4.neigh.default.gc_thresh2": "512", "net.ipv4.neigh.default.gc_thresh3": "1024", "fs.nr_open": "1048576",
		"fs.aio-nr": "0", "fs.aio-max-nr": "65536", "vm.max_map_count": "65530", "vm.dirty_ratio": "20", "vm.dirty_bytes": "0",
		"fs.inotify.max_user_watches": "65536", "fs.inotify.max_user_instances": "128",
	} {
		o.Sysctl[name] = value
	}
	return o
}

// starred are causes whose fix is made at once and taken back. Those with a
// reason cannot be tried.
var starred = map[ID]string{
	"cpu-saturated": "", "cpu-quota-throttled": "", "low-cpu-weight": "", "affinity-too-narrow": "", "slow-clocksource": "", "process-stopped": "",
	"time-wait-port-search": "", "container-oom-killed": "", "memory-high-throttled": "", "direct-reclaim-stall": "", "memory-pressure": "", "swap-thrash": "", "compaction-stall": "", "cgroup-io-throttled": "",
	"dirty-throttled": "", "writeback-throttled": "", "softnet-backlog-overflow": "", "qdisc-drop": "", "tc-ingress-drop": "", "xdp-drop": "",
	"firewall-drop": "", "conntrack-full": "", "mtu-mismatch": "", "pmtu-blackhole": "", "rp-filter-drop": "", "neighbour-table-full": "",
	"accept-queue-overflow": "", "syn-queue-overflow": "", "syn-flood": "", "abort-on-overflow": "", "ephemeral-ports-exhausted": "",
	"time-wait-bucket-overflow": "", "send-buffer-limited": "", "tcp-memory-pressure": "", "nagle-delayed-ack": "", "slow-start-after-idle": "",
	"udp-receive-buffer-overflow": "", "fd-limit": "", "file-max": "", "pids-limit": "", "inotify-limit": "", "aio-limit": "", "max-map-count": "",
	"mariadb-connections-exhausted": "", "redis-aof-fsync": "", "blocked-on-pipe": "", "log-collector-stalled": "", "unix-socket-backlog": "",

	"softirq-saturated":     "a rule would have to be made, against a flood whose source is most often forged",
	"disk-saturated":        "the process that writes most would have to be stopped, and it is somebody's",
	"filesystem-read-only":  "a damaged file system is not to be written to before it was checked",
	"log-flooding":          "the log level is the application's own",
	"slow-receiver":         "who does not read is most often elsewhere; stopped on this host it is process-stopped",
	"dns-timeout":           "resolv.conf is read by each process when it likes, and belongs to the network's configuration",
	"sysv-ipc-limit":        "the limits are those of an IPC namespace, which no change enters",
	"unix-datagram-blocked": "max_dgram_qlen holds for sockets that are made after it",
	"audit-backlog":         "the audit daemon is how a host is watched: its rules are not changed for a trial",
	"blocked-on-file-lock":  "the holder of the lock would have to be ended, and it is somebody's",
	"slow-console":          "whoever shows the terminal has stopped it",
}

// TestStarred: what can be made at once, and taken back, can be tried.
func TestStarred(t *testing.T) {
	provable := 0
	known := map[ID]*Cause{}
	for _, c := range Catalogue() {
		known[c.ID] = &c
		if c.Try != nil {
			provable++
		}
	}
	for id, reason := range starred {
		switch c := known[id]; {
		case c == nil:
			t.Errorf("%s is not in the catalogue", id)
		case c.Try == nil && reason == "":
			t.Errorf("%s cannot be tried, and no reason is given", id)
		case c.Try != nil && reason != "":
			t.Errorf("%s can be tried, although %s", id, reason)
		}
	}
	for _, id := range []ID{"fin-timeout", "client-aborts", "syn-cookies-sent"} {
		if c := known[id]; c == nil || c.Try != nil {
			t.Errorf("%s: a decoy, or what follows from something else, is not to be tried", id)
		}
	}
	if provable < 40 {
		t.Errorf("%d causes can be tried, want 40", provable)
	}
}

// TestNothingIsLowered: a change for a service on which nothing was found lowers
// no limit.
func TestNothingIsLowered(t *testing.T) {
	v := NewView(usual())
	for _, c := range Catalogue() {
		for _, s := range v.Services {
			for _, change := range c.Changes(v, Target{Service: s}) {
				was, err1 := strconv.ParseUint(change.Was, 10, 64)
				value, err2 := strconv.ParseUint(change.Value, 10, 64)
				if err1 == nil && err2 == nil && value < was && change.Kind != ChangeSysctl {
					t.Errorf("%s: %s", c.ID, change.Text)
				}
			}
		}
	}
}

// TestMemoryBoundsChanges: no more children, and no higher limit, than memory
// allows.
func TestMemoryBoundsChanges(t *testing.T) {
	o := usual()
	o.Use.Memory.AvailableBytes = 40 << 20
	o.Cgroups = []observe.Cgroup{{Path: "/x", Version: 2, PIDs: []int{fpmMaster}, MemoryLimitBytes: 1 << 30, MemoryUsedBytes: 1 << 30, MemoryFile: "/sys/fs/cgroup/x/memory.max"}}
	v := NewView(o)
	for _, c := range []*Cause{&phpFPMChildrenExhausted, &pageCacheThrash} {
		for _, s := range v.Services {
			if changes := c.Changes(v, Target{Service: s}); len(changes) > 0 {
				t.Errorf("%s: %s, with 40 MB available", c.ID, changes[0].Text)
			}
		}
	}
}

func list(b *strings.Builder, of string, changes []Change) {
	fmt.Fprintf(b, "  %s\n", of)
	for i := range changes {
		fmt.Fprintf(b, "    %s: %s\n", changes[i].Kind, changes[i].Text)
	}
	if len(changes) == 0 {
		b.WriteString("    nothing to try\n")
	}
}

// sound checks that a change has what its kind needs.
func sound(t *testing.T, of string, c *Change) {
	t.Helper()
	missing := ""
	need := func(ok bool, what string) {
		if !ok {
			missing += " " + what
		}
	}
	need(c.Text != "" && !strings.ContainsAny(c.Text, "\n"), "text")
	need(c.Value != c.Was || c.Value == "", "another value")
	switch c.Kind {
	case ChangeSysctl:
		need(c.Name != "" && c.Value != "", "name and value")
		need((c.NetNS == 0) == (c.PID == 0 && c.NetNSPath == ""), "namespace with a process in it, or a path to it")
	case ChangeBacklog:
		need(c.PID != 0 && (c.Path != "" || c.Port != 0 && c.NetNS != 0), "socket")
	case ChangeSocketOption:
		need(c.PID != 0 && c.Name != "" && c.Value != "" && (c.Side == "" || c.Side == "served" || c.Side == "called"), "socket and option")
	case ChangeRlimit:
		need(c.PID != 0 && c.Name != "" && c.Value != "", "process and limit")
	case ChangePipeSize:
		need(c.PID != 0 && c.FD >= 0 && c.Value != "", "pipe")
	case ChangeCgroup:
		need(strings.HasPrefix(c.Path, "/") && c.Name != "" && !strings.Contains(c.Name, "/") && c.Value != "", "file of a group")
	case ChangeQdisc:
		need(c.Interface != "" && c.NetNS != 0 && c.Name != "", "queueing discipline")
	case ChangeFilter:
		need(c.Interface != "" && c.NetNS != 0 && c.Rule != nil, "filter")
	case ChangeRule:
		need(c.NetNS != 0 && c.Rule != nil && c.Rule.Tool != "" && c.Rule.Text != "", "rule")
	case ChangeMTU:
		need(c.Interface != "" && c.NetNS != 0 && c.Value != "", "interface")
	case ChangeAffinity, ChangeNice, ChangeContinue:
		need(c.PID != 0 && c.Value != "", "process")
	case ChangeFile:
		need(strings.HasPrefix(c.Path, "/") && c.Value != "", "file")
	case ChangeConfig:
		need(c.PID != 0 && c.Server != "" && c.Name != "" && c.Value != "" && strings.HasPrefix(c.Path, "/"), "directive")
	case ChangeSetting:
		need(c.PID != 0 && c.Server != "" && c.Name != "" && c.Value != "" && (c.Port != 0 || c.Path != "" || c.Server == "gunicorn"), "setting") // by signals
	default:
		t.Errorf("%s: no such kind of change: %q", of, c.Kind)
	}
	if missing != "" {
		t.Errorf("%s: %s lacks%s: %+v", of, c.Kind, missing, c)
	}
}
