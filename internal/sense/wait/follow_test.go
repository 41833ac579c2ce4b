package wait

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// Numbers of x86-64.
const (
	sysRead    = 0
	sysWrite   = 1
	sysPoll    = 7
	sysFcntl   = 72
	sysFsync   = 74
	sysOpenat  = 257
	sysConnect = 42
	sysSendto  = 44
	sysFutex   = 202
	sysEpoll   = 232
	sysSleep   = 230
	sysWait4   = 61
	sysVfork   = 58
)

func TestRemote(t *testing.T) {
	f := newTree(t)
	f.process(100, 1, "client", "S", syscallLine(sysRead, 3))
	f.fd(100, 3, "socket:[50]", readWrite)
	c := conn(50, "ESTABLISHED", "10.0.0.1:40000", "10.0.0.9:5432")
	c.InfoKnown, c.LastReceived, c.Unanswered = true, 23*time.Second, 2
	f.nets[1] = &fakeSockets{tcp: []host.QueueSample{c}}
	got := f.one(100)
	h := got.Hops[0]
	if got.End != observe.EndRemote || h.Remote != "10.0.0.9:5432" || h.Wants != observe.WantsAnswer || !got.Culprit() ||
		h.QuietNS != int64(23*time.Second) || !strings.Contains(h.Detail, "2 segments") || h.Object != "fd 3 → tcp to 10.0.0.9:5432" {
		t.Error(chainText(got), h)
	}
}

// TestReadyForARequest: who reads from a client that connected to its port is
// ready for work, wherever that client is.
func TestReadyForARequest(t *testing.T) {
	f := newTree(t)
	f.process(100, 1, "server", "S", syscallLine(sysRead, 3))
	f.fd(100, 3, "socket:[50]", readWrite)
	f.nets[1] = &fakeSockets{tcp: []host.QueueSample{
		conn(49, "LISTEN", "0.0.0.0:5432", "0.0.0.0:0"), conn(50, "ESTABLISHED", "10.0.0.1:5432", "10.0.0.9:40000"),
	}}
	got := f.one(100)
	if got.End != observe.EndIdle || got.Culprit() || got.Hops[0].Wants != observe.WantsRequest {
		t.Error(chainText(got))
	}
	// Room in a client's window is another matter.
	if err := os.WriteFile(filepath.Join(f.root, "proc/100/task/100/syscall"), []byte(syscallLine(sysWrite, 3)), 0o644); err != nil {
		t.Fatal(err)
	}
	got = f.one(100)
	if got.End != observe.EndRemote || !got.Culprit() || got.Hops[0].Remote != "10.0.0.9:40000" {
		t.Error(chainText(got))
	}
}

// TestSameAddressesTwice: two namespaces have a connection that could be the
// other end: neither is named.
func TestSameAddressesTwice(t *testing.T) {
	f := newTree(t)
	f.process(100, 1, "client", "S", syscallLine(sysRead, 3))
	f.fd(100, 3, "socket:[50]", readWrite)
	f.process(200, 1, "server", "S", syscallLine(sysSleep, 0, 0, 0))
	f.fd(200, 3, "socket:[60]", readWrite)
	f.inNetwork(200, 2)
	f.nets[1] = &fakeSockets{tcp: []host.QueueSample{conn(50, "ESTABLISHED", "10.0.0.1:40000", "10.0.0.2:80")}}
	f.nets[2] = &fakeSockets{tcp: []host.QueueSample{conn(60, "ESTABLISHED", "10.0.0.2:80", "10.0.0.1:40000")}}
	if got := f.one(100); len(got.Hops) != 2 || got.Hops[1].Process.PID != 200 || got.Hops[1].Process.NetNS != 2 {
		t.Error(chainText(got))
	}
	f.process(300, 1, "other", "S", syscallLine(sysSleep))
	f.fd(300, 3, "socket:[70]", readWrite)
	f.inNetwork(300, 3)
	f.nets[3] = &fakeSockets{tcp: []host.QueueSample{conn(70, "ESTABLISHED", "10.0.0.2:80", "10.0.0.1:40000")}}
	got := f.one(100)
	if len(got.Hops) != 1 || got.End != observe.EndUnseen {
		t.Error(chainText(got))
	}
	// Loopback addresses are those of the own namespace only.
	f.nets[1].tcp[0] = conn(50, "ESTABLISHED", "127.0.0.1:40000", "127.0.0.1:80")
	f.nets[2].tcp[0] = conn(60, "ESTABLISHED", "127.0.0.1:80", "127.0.0.1:40000")
	if got = f.one(100); len(got.Hops) != 1 || got.End != observe.EndNoHolder {
		t.Error(chainText(got))
	}
}

func TestSynSentToRemote(t *testing.T) {
	f := newTree(t)
	f.process(100, 1, "client", "S", syscallLine(sysConnect, 3, 0x7000, 16))
	f.fd(100, 3, "socket:[50]", readWrite)
	c := conn(50, "SYN_SENT", "10.0.0.1:40000", "10.0.0.9:80")
	c.InfoKnown, c.Unanswered = true, 3
	f.nets[1] = &fakeSockets{tcp: []host.QueueSample{c}}
	got := f.one(100)
	if got.End != observe.EndRemote || got.Hops[0].Wants != observe.WantsAccept || !strings.Contains(got.Hops[0].Detail, "sent 4 times") || !got.Culprit() {
		t.Error(chainText(got))
	}
}

func TestUninterruptible(t *testing.T) {
	const mounts = "20 1 254:1 / /data rw - %s %s rw\n"
	for _, c := range []struct {
		name, fs, source, wchan, stack string
		end                            observe.WaitEnd
		text                           string
	}{
		{"disk", "ext4", "/dev/vda1", "io_schedule", "[<0>] io_schedule+0x46/0x70\n[<0>] folio_wait_bit_common+0x1/0x2\n", observe.EndDisk, "disk (io_schedule)"},
		{"journal", "ext4", "/dev/vda1", "0", "[<0>] jbd2_log_wait_commit+0xd/0x1\n[<0>] ext4_sync_file+0x1/0x2\n", observe.EndDisk, "journal"},
		{"nfs", "nfs4", "filer:/export", "rpc_wait_bit_killable", "", observe.EndDisk, "network file system"},
		{"nfs by mount", "nfs4", "filer:/export", "io_schedule", "", observe.EndDisk, "network file system"},
		{"fuse", "fuse.sshfs", "me@there:/", "request_wait_answer", "", observe.EndFuse, "FUSE"},
		{"throttled", "xfs", "/dev/sdb", "balance_dirty_pages", "", observe.EndDisk, "slowed down"},
		{"memory", "ext4", "/dev/vda1", "shrink_lruvec", "", observe.EndKernel, "memory"},
		{"lock", "ext4", "/dev/vda1", "rwsem_down_write_slowpath", "", observe.EndKernel, "lock inside the kernel"},
		{"unknown", "ext4", "/dev/vda1", "some_function", "", observe.EndKernel, "some_function"},
		{"hidden", "ext4", "/dev/vda1", "0", "", observe.EndKernel, "may not be seen"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newTree(t)
			f.process(100, 1, "db", "D", syscallLine(sysFsync, 7))
			f.fd(100, 7, filepath.Join(f.root, "wal"), writeOnly)
			if err := os.WriteFile(filepath.Join(f.root, "wal"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			f.put("100/mountinfo", fmt.Sprintf(mounts, c.fs, c.source))
			f.put("100/task/100/wchan", c.wchan)
			if c.stack != "" {
				f.put("100/task/100/stack", c.stack)
			}
			got := f.one(100)
			if got.End != c.end || !strings.Contains(got.Text, c.text) || !got.Culprit() {
				t.Error(chainText(got))
			}
			if o := got.Hops[0].Object; !strings.Contains(o, "wal ("+c.fs+" on "+c.source+")") {
				t.Error(o)
			}
			if m := got.Hops[0].Mount; m == nil || *m != (observe.WaitMount{Dir: "/data", Root: "/", Type: c.fs, Source: c.source, Device: "254:1"}) {
				t.Errorf("it lies on %+v", m)
			}
		})
	}
}

// TestNamedFile: the mount of a file that is only named is believed where the kernel's stack
// is in a file system of that type: a link on the way may lead elsewhere.
func TestNamedFile(t *testing.T) {
	const mounts = "20 1 0:50 / / rw - overlay overlay rw\n21 20 254:16 /db /data rw - %s /dev/vdb rw\n"
	for _, c := range []struct {
		name, fs, stack string
		known           bool
	}{
		{"in it", "ext4", "[<0>] io_schedule+0x1/0x2\n[<0>] __ext4_find_entry+0x1/0x2\n[<0>] path_openat+0x1/0x2\n", true},
		{"a server", "nfs4", "[<0>] rpc_wait_bit_killable+0x1/0x2\n[<0>] nfs4_proc_lookup+0x1/0x2\n[<0>] nfs_lookup+0x1/0x2\n", true},
		{"in another one", "ext4", "[<0>] io_schedule+0x1/0x2\n[<0>] xfs_dir_lookup+0x1/0x2\n", false},
		{"in none", "ext4", "[<0>] io_schedule+0x1/0x2\n", false},
	} {
		f := newTree(t)
		f.process(100, 1, "app", "D", syscallLine(sysOpenat, 0xffffffffffffff9c, 0x7000))
		f.put("100/mountinfo", fmt.Sprintf(mounts, c.fs))
		f.put("100/task/100/wchan", "io_schedule")
		f.put("100/task/100/stack", c.stack)
		f.memory[100] = map[uint64][]byte{0x7000: append([]byte("/data/fares\x00"), make([]byte, 4096)...)}
		got := f.one(100)
		m := got.Hops[0].Mount
		if (m != nil) != c.known || c.known && (m.Dir != "/data" || m.Root != "/db" || m.Device != "254:16" || !strings.Contains(got.Hops[0].Object, "/data/fares")) {
			t.Errorf("%s: %+v, %s", c.name, m, chainText(got))
		}
	}
}

// TestFuseServerOfMount: of several servers the one that has the file system's
// connection is named, before 6.16 the one that has the mount point as an argument; and of its
// threads the one with a call in hand.
func TestFuseServerOfMount(t *testing.T) {
	const mounts = "20 1 254:1 / / rw - ext4 /dev/vda1 rw\n21 20 0:39 / /mnt/prices rw - fuse.prices prices rw\n"
	for _, newer := range []bool{true, false} {
		f := newTree(t)
		f.process(100, 1, "app", "S", syscallLine(sysOpenat, 0xffffffffffffff9c, 0x7000))
		f.put("100/mountinfo", mounts)
		f.put("100/task/100/wchan", "request_wait_answer")
		f.memory[100] = map[uint64][]byte{0x7000: append([]byte("/mnt/prices/today\x00"), make([]byte, 4096)...)}
		f.process(200, 1, "sshfs", "S", syscallLine(sysEpoll, 4))
		f.fd(200, 3, "/dev/fuse", readWrite)
		f.process(300, 1, "prices", "S", syscallLine(sysFutex, 0x9000, 0, 0))
		f.thread(300, 1, 301, "prices", "S", syscallLine(sysSleep, 0, 0, 0x8000))
		f.thread(300, 1, 302, "prices", "S", syscallLine(0, 3))
		f.fd(300, 3, "/dev/fuse", readWrite)
		f.put("200/cmdline", "sshfs\x00me@there:/\x00/mnt/there\x00")
		f.put("300/cmdline", "prices\x00/mnt/prices\x00")
		if newer {
			for pid, connection := range map[int]int{200: 38, 300: 39} {
				f.put(fmt.Sprintf("%d/fdinfo/3", pid), fmt.Sprintf("pos:\t0\nflags:\t%s\nmnt_id:\t20\nfuse_connection:\t%d\n", readWrite, connection))
			}
		}
		got := f.one(100)
		if len(got.Hops) != 2 || got.Hops[1].Process.PID != 300 || got.Hops[1].TID != 301 || got.End != observe.EndSleep || got.Hops[0].Wants != observe.WantsAnswer ||
			!strings.HasPrefix(got.Hops[0].Object, "/mnt/prices/today (fuse.prices") || !strings.Contains(got.Hops[1].Why, "/mnt/prices") {
			t.Error(newer, chainText(got))
		}
	}
}

// TestMapLockHolder: who seems to have the lock of the memory map.
func TestMapLockHolder(t *testing.T) {
	waits := func(f *tree) {
		f.process(100, 1, "app", "D", syscallLine(9))
		f.put("100/task/100/wchan", "rwsem_down_write_slowpath")
		f.put("100/task/100/stack", "[<0>] vm_mmap_pgoff+0x1/0x2\n[<0>] ksys_mmap_pgoff+0x1/0x2\n")
		f.put("100/mountinfo", "20 1 254:1 / / rw - ext4 /dev/vda1 rw\n")
	}
	of := func(f *tree) *observe.WaitChain {
		for _, c := range f.look(100).Chains {
			if c.Hops[0].TID == 100 {
				return &c
			}
		}
		return nil
	}
	f := newTree(t)
	waits(f)
	f.thread(100, 1, 101, "loader", "R", "running")
	f.thread(100, 1, 102, "other", "D", syscallLine(9))
	f.put("100/task/102/stack", "[<0>] vm_mmap_pgoff+0x1/0x2\n")
	if got := of(f); len(got.Hops) != 2 || got.Hops[1].TID != 101 || got.End != observe.EndRunning || got.Hops[0].Wants != observe.WantsRelease {
		t.Error(chainText(got))
	}
	f = newTree(t)
	waits(f)
	f.thread(100, 1, 101, "computes", "R", "running")
	f.thread(100, 1, 102, "mapper", "D", syscallLine(9))
	f.put("100/task/102/stack", "[<0>] wait_transaction_locked+0x1/0x2\n[<0>] ext4_dirty_inode+0x1/0x2\n[<0>] vm_mmap_pgoff+0x1/0x2\n")
	if got := of(f); len(got.Hops) != 2 || got.Hops[1].TID != 102 || got.Hops[1].Inside != observe.InsideJournal {
		t.Error(chainText(got))
	}
	f = newTree(t)
	waits(f)
	f.process(200, 1, "agent", "R", "running")
	f.fd(200, 3, "/proc/100/smaps", readOnly)
	if got := of(f); len(got.Hops) != 2 || got.Hops[1].Process.PID != 200 {
		t.Error(chainText(got))
	}
}

// TestFuseServer: it is named only when there is no other.
func TestFuseServer(t *testing.T) {
	f := newTree(t)
	f.process(100, 1, "ls", "S", syscallLine(6, 0x7000))
	f.put("100/task/100/wchan", "request_wait_answer")
	f.process(200, 1, "sshfs", "T", "")
	f.fd(200, 3, "/dev/fuse", readWrite)
	got := f.one(100)
	if len(got.Hops) != 2 || got.Hops[1].Process.PID != 200 || got.End != observe.EndStopped || got.Hops[1].How != observe.HowInferred {
		t.Error(chainText(got))
	}
	f.process(300, 1, "rclone", "S", syscallLine(sysEpoll, 4))
	f.fd(300, 3, "/dev/fuse", readWrite)
	if got = f.one(100); len(got.Hops) != 1 || got.End != observe.EndFuse {
		t.Error(chainText(got))
	}
}

func TestTracedEndedKernelAndVfork(t *testing.T) {
	f := newTree(t)
	f.process(100, 1, "app", "t", "")
	f.process(200, 1, "gdb", "S", syscallLine(sysPoll, 0, 0, 0xffffffffffffffff))
	status := filepath.Join(f.root, "proc/100/task/100/status")
	if err := os.WriteFile(status, []byte("Tgid:\t100\nTracerPid:\t200\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	got := f.one(100)
	if got.End != observe.EndTraced || got.Actor != 200 || !strings.Contains(got.Text, "gdb (pid 200)") || !got.Culprit() {
		t.Error(chainText(got))
	}
	f.process(300, 100, "defunct", "Z", "")
	if got = f.one(300); got.End != observe.EndEnded || got.Culprit() || !strings.Contains(got.Text, "parent 100") {
		t.Error(chainText(got))
	}
	f.process(2, 0, "kthreadd", "S", "")
	path := filepath.Join(f.root, "proc/2/task/2/stat")
	if err := os.WriteFile(path, []byte("2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got = f.one(2); got.End != observe.EndIdle || got.Culprit() {
		t.Error(chainText(got))
	}
	f.process(400, 1, "shell", "D", syscallLine(sysVfork))
	f.process(401, 400, "sh", "S", syscallLine(sysSleep))
	f.process(402, 400, "made-last", "T", "")
	if got = f.one(400); len(got.Hops) != 2 || got.Hops[1].Process.PID != 402 || got.Hops[0].Kind != observe.WaitChild {
		t.Error(chainText(got))
	}
}

// TestPipeCircle: a parent that writes to its child, which writes back; each of
// the two has one thread.
func TestPipeCircle(t *testing.T) {
	f := newTree(t)
	f.process(100, 1, "parent", "S", syscallLine(sysWrite, 4))
	f.process(200, 100, "child", "S", syscallLine(sysWrite, 1))
	f.fd(100, 4, "pipe:[11]", writeOnly)
	f.fd(100, 5, "pipe:[12]", readOnly)
	f.fd(200, 0, "pipe:[11]", readOnly)
	f.fd(200, 1, "pipe:[12]", writeOnly)
	got := f.one(100)
	if !got.Deadlock() || len(got.Hops) != 2 || got.BackTo != 0 || !got.Culprit() {
		t.Error(chainText(got))
	}
	// A second thread of the child could read: then it is not sure.
	f.thread(200, 100, 201, "helper", "S", syscallLine(sysFutex, 0x1000, 128, 0))
	f.put("200/task/201/fd/0", "-> pipe:[11]")
	got = f.one(100)
	if got.Deadlock() || got.BackTo != 0 || !strings.Contains(got.Text, "unless another thread") {
		t.Error(chainText(got))
	}
}

// TestParentWaitsForBlockedChild is the deadlock of whoever waits for a child
// before it has read what that writes.
func TestParentWaitsForBlockedChild(t *testing.T) {
	f := newTree(t)
	f.process(100, 1, "parent", "S", syscallLine(sysWait4, 200))
	f.process(200, 100, "child", "S", syscallLine(sysWrite, 1))
	f.fd(100, 5, "pipe:[12]", readOnly)
	f.fd(200, 1, "pipe:[12]", writeOnly)
	got := f.one(100)
	if !got.Deadlock() || len(got.Hops) != 2 || got.Hops[1].How != observe.HowChild {
		t.Error(chainText(got))
	}
}

// TestDatagramSocket: an unconnected sendto names its destination in memory, as
// syslog(3) does.
func TestDatagramSocket(t *testing.T) {
	f := newTree(t)
	f.process(100, 1, "app", "S", syscallLine(sysSendto, 3, 0, 0, 0, 0x7000, 11))
	f.fd(100, 3, "socket:[50]", readWrite)
	name := "\x01\x00/dev/log\x00"
	f.memory[100] = map[uint64][]byte{0x7000: []byte(name)}
	f.process(200, 1, "rsyslogd", "T", "")
	f.fd(200, 3, "socket:[60]", readWrite)
	f.nets[1] = &fakeSockets{unix: []host.UnixSample{{Inode: 50, Type: 2}, {Inode: 60, Type: 2, Name: "/dev/log"}}}
	got := f.one(100)
	if len(got.Hops) != 2 || got.Hops[1].Process.PID != 200 || got.End != observe.EndStopped || got.Hops[0].Object != "fd 3 → unix to /dev/log" {
		t.Error(chainText(got))
	}
}

// TestPollOfSeveral: any of two connections will do, so nobody stands in the
// way; of a connection and what the process wakes itself up with, the
// connection counts.
func TestPollOfSeveral(t *testing.T) {
	f := newTree(t)
	f.process(100, 1, "client", "S", syscallLine(sysPoll, 0x7000, 2, 0xffffffffffffffff))
	f.fd(100, 3, "socket:[50]", readWrite)
	f.fd(100, 4, "socket:[51]", readWrite)
	f.fd(100, 5, "pipe:[7]", readOnly)
	f.fd(100, 6, "pipe:[7]", writeOnly)
	f.words(100, 0x7000, 3, 1, 4, 1)
	f.nets[1] = &fakeSockets{tcp: []host.QueueSample{
		conn(50, "ESTABLISHED", "10.0.0.1:40000", "10.0.0.9:80"), conn(51, "ESTABLISHED", "10.0.0.1:40001", "10.0.0.8:80"),
	}}
	got := f.one(100)
	if got.Culprit() || !strings.Contains(got.Hops[0].Object, "10.0.0.9:80 or fd 4") {
		t.Error(chainText(got))
	}
	f.words(100, 0x7000, 3, 1, 5, 1)
	got = f.one(100)
	if !got.Culprit() || got.Hops[0].Remote != "10.0.0.9:80" {
		t.Error(chainText(got))
	}
}

// TestLongChain: no chain is longer than is reported, whatever the host does.
func TestLongChain(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	f := newTree(t)
	for i := range 80 {
		pid := 100 + i
		f.process(pid, 1, "stage", "S", syscallLine(sysWrite, 1))
		f.fd(pid, 0, fmt.Sprintf("pipe:[%d]", i), readOnly)
		f.fd(pid, 1, fmt.Sprintf("pipe:[%d]", i+1), writeOnly)
	}
	got := f.one(100)
	if len(got.Hops) != maxHops || got.End != observe.EndTooLong || !got.Culprit() {
		t.Error(len(got.Hops), got.End)
	}
}

// TestManyBranches: processes that all hold both ends of one pipe are many ways
// to go, of which a few are gone.
func TestManyBranches(t *testing.T) {
	f := newTree(t)
	for i := range 40 {
		pid := 100 + i
		f.process(pid, 1, "worker", "S", syscallLine(sysWrite, 1))
		f.fd(pid, 0, "pipe:[5]", readOnly)
		f.fd(pid, 1, "pipe:[5]", writeOnly)
	}
	o := f.look(100)
	if len(o.Chains) == 0 || len(o.Chains) > maxBranches || !strings.Contains(o.Chains[0].Cut, "35 more") {
		t.Error(len(o.Chains), o.Chains[0].Cut)
	}
	for i := range o.Chains {
		if o.Chains[i].Deadlock() {
			t.Error("any of 39 processes could read, and it is called a deadlock")
		}
	}
}

// TestTooManyThreads: of a process with more threads than are looked at, that
// is reported.
func TestTooManyThreads(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: makes 2,100 directories (-short)")
	}
	f := newTree(t)
	f.process(100, 1, "java", "S", syscallLine(sysFutex, 0x1000, 128, 0))
	for tid := 101; tid < 2200; tid++ {
		f.thread(100, 1, tid, "pool", "S", syscallLine(sysFutex, 0x1000, 128, 0))
	}
	o := f.look(100)
	if o.Looked != maxThreads || o.Threads != 2100 || len(o.Chains) != 1 || o.Chains[0].Count != maxThreads {
		t.Error(o.Looked, o.Threads, len(o.Chains))
	}
	if len(o.Unseen) != 1 || o.Unseen[0] != "52 of the process's 2100 threads were not looked at" {
		t.Errorf("%q", o.Unseen)
	}
}

// TestHostileNames: no name of a process or file can put control characters
// into the result.
func TestHostileNames(t *testing.T) {
	f := newTree(t)
	const hostile = "a) R 1\x1b]0;x\x07\n\u202e\xff"
	f.process(100, 1, hostile, "S", syscallLine(sysFcntl, 3, setLockWait, 0x7000))
	f.fd(100, 3, filepath.Join(f.root, "f\x1b[2J\nx"), readWrite)
	f.put("locks", "1: POSIX  ADVISORY  WRITE 200 fe:01:77 0 EOF\n1: -> POSIX  ADVISORY  WRITE 100 fe:01:77 0 EOF\n")
	f.process(200, 1, hostile, "T", "")
	got := f.one(100)
	if len(got.Hops) != 2 || got.End != observe.EndStopped || got.Hops[1].How != observe.HowTable {
		t.Error(chainText(got))
	}
	for _, s := range []string{got.Text, got.Hops[0].Comm, got.Hops[0].Object, got.Hops[1].Process.Comm} {
		for _, r := range s {
			if !unicode.IsPrint(r) {
				t.Errorf("%q", s)
			}
		}
	}
}

// TestVanishing: what a target was made of is gone when it is looked at.
func TestVanishing(t *testing.T) {
	f := newTree(t)
	f.put("locks", "1: POSIX  ADVISORY  WRITE 999 fe:01:77 0 EOF\n1: -> POSIX  ADVISORY  WRITE 100 fe:01:77 0 EOF\n")
	f.process(100, 1, "app", "S", syscallLine(sysFcntl, 3, setLockWait, 0x7000))
	got := f.one(100)
	if len(got.Hops) != 1 || got.End != observe.EndGone {
		t.Error(chainText(got))
	}
	// The descriptor of a call can be closed by another thread.
	f.process(300, 1, "app", "S", syscallLine(sysRead, 9))
	if got = f.one(300); got.End != observe.EndUnseen || got.Culprit() {
		t.Error(chainText(got))
	}
	// Nobody is seen at the other end.
	f.process(400, 1, "app", "S", syscallLine(sysWrite, 1))
	f.fd(400, 1, "pipe:[5]", writeOnly)
	if got = f.one(400); got.End != observe.EndNoHolder || !got.Culprit() {
		t.Error(chainText(got))
	}
	// A program of 32 bits: its calls have other numbers.
	f.process(500, 1, "old", "S", "202 0x0 0x0 0x0 0x0 0x0 0x0 0xffffd000 0xf7f00000")
	f.put("500/task/500/wchan", "hrtimer_nanosleep")
	if got = f.one(500); got.End != observe.EndSleep || got.Hops[0].Syscall != "system call 202" {
		t.Error(chainText(got))
	}
}

// TestInnerThreadNumbers: owners are written as the process sees its own
// threads, which in a container are other numbers.
func TestInnerThreadNumbers(t *testing.T) {
	f := newTree(t)
	mutex := []uint32{2, 0, 7, 1, 0, 0, 0, 0, 0, 0}
	f.process(100, 1, "app", "S", syscallLine(sysFutex, 0x7000, 128, 2))
	f.thread(100, 1, 107, "worker", "S", syscallLine(sysSleep))
	f.words(100, 0x7000, mutex...)
	if got := f.look(100); len(got.Chains[0].Hops) != 1 {
		t.Error("thread 7 of the host is not one of this process")
	}
	for tid, inner := range map[int]int{100: 1, 107: 7} {
		path := filepath.Join(f.root, fmt.Sprintf("proc/100/task/%d/status", tid))
		if err := os.WriteFile(path, fmt.Appendf(nil, "Tgid:\t100\nNSpid:\t%d\t%d\n", tid, inner), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got := f.look(100)
	if c := &got.Chains[0]; len(c.Hops) != 2 || c.Hops[1].TID != 107 || c.Hops[1].How != observe.HowOwner {
		t.Error(chainText(c))
	}
}
