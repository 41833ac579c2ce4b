package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
)

func TestClassify(t *testing.T) {
	for _, c := range []struct {
		text string
		want observe.KernelLine
	}{
		{"nf_conntrack: nf_conntrack: table full in netns 4026532177, dropping packet", observe.KernelLine{Kind: "conntrack-table-full", NetNS: 4026532177}},
		{"nf_conntrack: nf_conntrack: table full, dropping packet", observe.KernelLine{Kind: "conntrack-table-full"}},
		{"nf_conntrack: table full, dropping packet.", observe.KernelLine{Kind: "conntrack-table-full"}},
		{"ip_conntrack: table full, dropping packet.", observe.KernelLine{Kind: "conntrack-table-full"}},
		{"TCP: request_sock_TCP: Possible SYN flooding on port 127.0.0.1:9000. Sending cookies.", observe.KernelLine{Kind: "syn-flood", Addr: "127.0.0.1", Port: 9000}},
		{"TCP: request_sock_TCPv6: Possible SYN flooding on port [::1]:9000. Dropping request.", observe.KernelLine{Kind: "syn-flood", Addr: "::1", Port: 9000}},
		{"TCP: request_sock_TCPv6: Possible SYN flooding on port [::]:80. Sending cookies.", observe.KernelLine{Kind: "syn-flood", Addr: "::", Port: 80}},
		{"TCP: request_sock_TCP: Possible SYN flooding on port 80. Sending cookies.  Check SNMP counters.", observe.KernelLine{Kind: "syn-flood", Port: 80}},
		{"possible SYN flooding on port 80. Sending cookies.", observe.KernelLine{Kind: "syn-flood", Port: 80}},
		{"TCP: request_sock_TCP: Possible SYN flooding on port nonsense", observe.KernelLine{Kind: "syn-flood"}},
		{"Out of memory: Killed process 4711 (java) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:0", observe.KernelLine{Kind: "oom-kill"}},
		{"Out of memory: Kill process 4711 (java) score 901 or sacrifice child", observe.KernelLine{Kind: "oom-kill"}},
		{"Out of memory (oom_kill_allocating_task): Killed process 4711 (java)", observe.KernelLine{Kind: "oom-kill"}},
		{"Memory cgroup out of memory: Killed process 4711 (python3) total-vm:1kB", observe.KernelLine{Kind: "memcg-oom-kill"}},
		{"Memory cgroup out of memory: Kill process 4711 (python3) score 1 or sacrifice child", observe.KernelLine{Kind: "memcg-oom-kill"}},
		{"TCP: time wait bucket table overflow", observe.KernelLine{Kind: "time-wait-overflow"}},
		{"TCP: time wait bucket table overflow (CT123)", observe.KernelLine{Kind: "time-wait-overflow"}},
		{"neighbour: arp_cache: neighbor table overflow!", observe.KernelLine{Kind: "neighbour-overflow"}},
		{"Neighbour table overflow.", observe.KernelLine{Kind: "neighbour-overflow"}},
		{"TCP: too many orphaned sockets", observe.KernelLine{Kind: "orphans"}},
		{"TCP: too many of orphaned sockets", observe.KernelLine{Kind: "orphans"}},
		{"TCP: out of memory -- consider tuning tcp_mem", observe.KernelLine{Kind: "tcp-memory"}},
		{"INFO: task jbd2/vda-8:123 blocked for more than 120 seconds.", observe.KernelLine{Kind: "hung-task", Subject: "jbd2/vda-8:123"}},
		{"I/O error, dev sda, sector 2048 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2", observe.KernelLine{Kind: "io-error", Subject: "sda"}},
		{"blk_update_request: I/O error, dev sda, sector 2048", observe.KernelLine{Kind: "io-error", Subject: "sda"}},
		{"Buffer I/O error on dev dm-0, logical block 0, async page read", observe.KernelLine{Kind: "io-error", Subject: "dm-0"}},
		{"critical medium error, dev sdb, sector 1 op 0x0:(READ)", observe.KernelLine{Kind: "io-error", Subject: "sdb"}},
		{"nvme nvme0: I/O tag 12 (a00c) opcode 0x2 (I/O Cmd) QID 3 timeout, aborting", observe.KernelLine{Kind: "io-error", Subject: "nvme0"}},
		{"VFS: file-max limit 1000 reached", observe.KernelLine{Kind: "file-max"}},
		{"EXT4-fs (vda1): Remounting filesystem read-only", observe.KernelLine{Kind: "read-only", Subject: "vda1"}},
		{"BTRFS: error (device sdb1) in btrfs_commit_transaction:2418: errno=-5 IO failure: forced readonly", observe.KernelLine{Kind: "read-only", Subject: "sdb1"}},
		{"XFS (dm-2): Filesystem has been shut down due to log error (0x2).", observe.KernelLine{Kind: "read-only", Subject: "dm-2"}},
		{"EXT4-fs error (device vda1): ext4_lookup:1609: inode #2: comm ls: deleted inode referenced", observe.KernelLine{Kind: "file-system-error", Subject: "vda1"}},
		{"watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [nginx:812]", observe.KernelLine{Kind: "soft-lockup", Subject: "nginx:812"}},
		{"rcu: INFO: rcu_preempt self-detected stall on CPU", observe.KernelLine{Kind: "rcu-stall"}},
		{"rcu: INFO: rcu_sched detected stalls on CPUs/tasks:", observe.KernelLine{Kind: "rcu-stall"}},
		{"clocksource: timekeeping watchdog on CPU0: Marking clocksource 'tsc' as unstable because the skew is too large:", observe.KernelLine{Kind: "clocksource-unstable", Subject: "tsc"}},
		{"nfs: server 10.0.0.9 not responding, still trying", observe.KernelLine{Kind: "nfs-not-responding", Subject: "10.0.0.9"}},
		{"CPU2: Package temperature above threshold, cpu clock throttled (total events = 12)", observe.KernelLine{Kind: "thermal-throttle"}},
		{"php-fpm8.2[4711]: segfault at 0 ip 000055d sp 00007ffc error 4 in php-fpm8.2[55d+1]", observe.KernelLine{Kind: "segfault", Subject: "php-fpm8.2[4711]"}},
		{"traps: node[99] general protection fault ip:7f sp:7f error:0", observe.KernelLine{Kind: "segfault", Subject: "node[99]"}},
		{"audit: type=1400 audit(1.1:9): apparmor=\"DENIED\" operation=\"open\" profile=\"nginx\" name=\"/srv/x\" pid=9 comm=\"nginx\"", observe.KernelLine{Kind: "denied"}},
		{"audit: type=1400 audit(1.1:9): avc:  denied  { read } for  pid=9 comm=\"httpd\"", observe.KernelLine{Kind: "denied"}},
		{"audit: backlog limit exceeded", observe.KernelLine{Kind: "audit-backlog"}},
		{"audit: audit_backlog=65 > audit_backlog_limit=64", observe.KernelLine{Kind: "audit-backlog"}},
		{"bash (4711): drop_caches: 3", observe.KernelLine{Kind: "drop-caches", Subject: "bash (4711)"}},
		{"md/raid1:md0: Disk failure on sdb1, disabling device.", observe.KernelLine{Kind: "raid-failure", Subject: "md0"}},
		{"net_ratelimit: 4420 callbacks suppressed", observe.KernelLine{Kind: "net-ratelimit"}},
	} {
		got, ok := classify([]byte(c.text))
		if d := cmp.Diff(c.want, got); d != "" || !ok {
			t.Errorf("%q: %s", c.text, d)
		}
	}
	for _, text := range []string{
		"", "EXT4-fs (vda): mounted filesystem", "python3 invoked oom-killer: gfp_mask=0xcc0",
		"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/lab,task=python3",
		"oom_reaper: reaped process 4711 (python3)", "virtio_blk virtio1: [vda] new size",
		"INFO: task x:1 is blocked on a mutex likely owned by task y:2.", "nvme nvme0: 2/0/0 default/read/poll queues",
		"neighbour table", "perf: interrupt took too long (2500 > 2483)",
	} {
		if got, ok := classify([]byte(text)); ok {
			t.Errorf("%q taken for %s", text, got.Kind)
		}
	}
}

func TestKmsgDrain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kmsg")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := OpenKmsg(path)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	w, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	lines, lost := k.Drain()
	if lines != nil || lost != 0 {
		t.Errorf("empty log: %v, %d", lines, lost)
	}
	_, _ = w.WriteString(strings.Join([]string{
		"4,100,5,-;nf_conntrack: nf_conntrack: table full in netns 4026532177, dropping packet",
		" SUBSYSTEM=net", " DEVICE=+net:Out of memory: Killed process",
		"4,101,6,-,caller=T12;nf_conntrack: nf_conntrack: table full in netns 4026532177, dropping packet",
		"4,102,7,c;TCP: request_sock_TCP: Possible SYN flooding on port 80. Sending cookies.\xff\x1b",
		"12,103,8,-;Out of memory: Killed process 1 (a forger in user space)",
		"malformed", "x,y;TCP: too many orphaned sockets", ";", "6,104", "6,104,9,-;hello", "",
	}, "\n"))
	lines, lost = k.Drain()
	want := []observe.KernelLine{
		{Kind: "conntrack-table-full", NetNS: 4026532177, Count: 2, Example: "nf_conntrack: nf_conntrack: table full in netns 4026532177, dropping packet"},
		{Kind: "syn-flood", Port: 80, Count: 1, Example: "TCP: request_sock_TCP: Possible SYN flooding on port 80. Sending cookies.??"},
	}
	if d := cmp.Diff(want, lines); d != "" || lost != 0 {
		t.Error(d, lost)
	}
	if k.next != 105 || k.missed(109) != 4 || k.missed(50) != 1 {
		t.Error(k.next, k.missed(109))
	}
}

func TestKmsgManySubjects(t *testing.T) {
	var c lineCounter
	for port := range 2 * maxSubjects {
		c.count([]byte("TCP: request_sock_TCP: Possible SYN flooding on port " + string(appendInt(nil, port+1)) + ". Sending cookies."))
	}
	total := 0
	for _, l := range c.lines {
		total += l.Count
	}
	if len(c.lines) != maxSubjects+1 || total != 2*maxSubjects {
		t.Errorf("%d subjects, %d lines", len(c.lines), total)
	}
}

func TestRealKmsg(t *testing.T) {
	k, err := OpenKmsg("/dev/kmsg")
	if err != nil {
		t.Skip("SKIPPED: kernel log not readable: ", err)
	}
	defer k.Close()
	if lines, lost := k.Drain(); lost != 0 {
		t.Error(lines, lost)
	}
}
