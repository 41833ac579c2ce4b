package wait

import (
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/sense/host"
)

func TestParseStat(t *testing.T) {
	s, ok := parseStat([]byte("12 (a) R 1 (b)) S 7 0 0 0 -1 2129984 0\n"))
	if !ok || s.state != 'S' || s.ppid != 7 || !s.kernel || s.comm != "a) R 1 (b)" {
		t.Errorf("%+v %v", s, ok)
	}
	for _, bad := range []string{"", "12", "12 (x", "12 (x)", "12 (x) ", "12 (x) SS 1", ") ("} {
		if _, ok := parseStat([]byte(bad)); ok {
			t.Errorf("%q is taken for a stat file", bad)
		}
	}
}

func TestParseSyscall(t *testing.T) {
	c := parseSyscall([]byte("202 0x7f00 0x80 0xffffffff80000002 0x0 0x5 0x6 0x7ffc00000000 0x7f0000000000\n"))
	if !c.known || c.nr != 202 || c.args != [6]uint64{0x7f00, 0x80, 0xffffffff80000002, 0, 5, 6} || c.foreign {
		t.Errorf("%+v", c)
	}
	for line, want := range map[string]inCall{
		"running\n":               {known: true, running: true},
		"-1 0x7ffc00 0x7f\n":      {known: true, outside: true},
		"":                        {},
		"garbage":                 {},
		"99999999999999999999 0x": {},
	} {
		if got := parseSyscall([]byte(line)); got != want {
			t.Errorf("%q: %+v", line, got)
		}
	}
}

func TestParseUsage(t *testing.T) {
	if u, ok := parseSchedstat([]byte("10 20 3\n")); !ok || u != (usage{switches: 3, run: 10, delay: 20}) {
		t.Error(u, ok)
	}
	// A kernel that does not count.
	if _, ok := parseSchedstat([]byte("0 0 0\n")); ok {
		t.Error("zeros are taken for counts")
	}
	if u, ok := parseSwitches([]byte("Name:\tx\nvoluntary_ctxt_switches:\t4\nnonvoluntary_ctxt_switches:\t3\n")); !ok || u.switches != 7 {
		t.Error(u, ok)
	}
}

func TestParseLocks(t *testing.T) {
	got := parseLocks([]byte(`1: POSIX  ADVISORY  WRITE 1234 fe:01:5678 0 EOF
1: -> POSIX  ADVISORY  READ 1235 fe:01:5678 0 99
1:  -> POSIX  ADVISORY  READ 1236 fe:01:5678 0 99
2: OFDLCK ADVISORY  WRITE -1 00:2d:9 0 EOF
x: nonsense
3: FLOCK
`))
	want := []fileLock{
		{id: 1, kind: "POSIX", mode: "WRITE", pid: 1234, file: "fe:01:5678", from: "0", through: "EOF"},
		{id: 1, waits: true, kind: "POSIX", mode: "READ", pid: 1235, file: "fe:01:5678", from: "0", through: "99"},
		{id: 1, waits: true, kind: "POSIX", mode: "READ", pid: 1236, file: "fe:01:5678", from: "0", through: "99"},
		{id: 2, kind: "OFDLCK", mode: "WRITE", pid: -1, file: "00:2d:9", from: "0", through: "EOF"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

func TestParseStackAndKinds(t *testing.T) {
	stack := parseStack([]byte("[<0>] jbd2_log_wait_commit+0xd2/0x120\n[<0>] ext4_sync_file+0x1/0x2\nnonsense\n"))
	if !slices.Equal(stack, []string{"jbd2_log_wait_commit", "ext4_sync_file"}) {
		t.Error(stack)
	}
	for function, want := range map[string]inside{
		"rpc_wait_bit_killable": insideNetworkFS, "request_wait_answer": insideFuse, "balance_dirty_pages": insideThrottle,
		"io_schedule": insideDisk, "folio_wait_bit_common": insideDisk, "rwsem_down_read_slowpath": insideLock,
		"wait_for_vfork_done": insideVfork, "hrtimer_nanosleep": insideTimer, "futex_wait_queue": insideFutex,
		"ep_poll": insidePoll, "anon_pipe_read": insideUnknown,
	} {
		if got, _ := insideOf([]string{function}); got != want {
			t.Errorf("%s: %d, want %d", function, got, want)
		}
	}
}

func TestInsideWhat(t *testing.T) {
	for stack, want := range map[string]observe.WaitInside{
		"io_schedule folio_wait_bit_common do_swap_page handle_mm_fault": observe.InsideSwap,
		"balance_dirty_pages balance_dirty_pages_ratelimited":            observe.InsideDirty,
		"rq_qos_wait wbt_wait __rq_qos_throttle blk_mq_submit_bio":       observe.InsideWriteback,
		"io_schedule rq_qos_wait iolatency_throttle":                     observe.InsideDisk,
		"jbd2_log_wait_commit ext4_sync_file":                            observe.InsideJournal,
		"rwsem_down_write_slowpath down_write_killable vm_mmap_pgoff":    observe.InsideMapLock,
		"rwsem_down_read_slowpath lock_mm_and_find_vma exc_page_fault":   observe.InsideMapLock,
		"rwsem_down_write_slowpath open_last_lookups path_openat":        observe.InsideDirectory,
		"rwsem_down_write_slowpath ext4_buffered_write_iter vfs_write":   observe.InsideFileLock,
		"ext4_buffered_write_iter vfs_write ksys_pwrite64":               observe.InsideFileLock,
		"folio_wait_bit_common ext4_buffered_write_iter vfs_write":       observe.InsideDisk,
		"open_last_lookups path_openat do_filp_open":                     observe.InsideDirectory,
		"vm_mmap_pgoff ksys_mmap_pgoff do_syscall_64":                    observe.InsideMapLock,
		"percpu_rwsem_wait mnt_want_write open_last_lookups":             observe.InsideFrozen,
		"mutex_lock something_else":                                      observe.InsideLock,
		"compact_zone try_to_compact_pages":                              observe.InsideCompaction,
		"shrink_lruvec try_to_free_pages":                                observe.InsideReclaim,
		"wait_for_random_bytes __do_sys_getrandom":                       observe.InsideRandom,
		"dump_emit elf_core_dump vfs_coredump":                           observe.InsideCoreDump,
		"rpc_wait_bit_killable nfs_file_read":                            observe.InsideNetworkFS,
		"request_wait_answer fuse_simple_request":                        observe.InsideFuse,
		"anon_pipe_read": "",
	} {
		functions := strings.Fields(stack)
		kind, _ := insideOf(functions)
		if got := insideWhat(kind, functions); got != want {
			t.Errorf("%s: %q, want %q", stack, got, want)
		}
	}
}

func TestAccess(t *testing.T) {
	for flags, want := range map[string][2]bool{
		"0100000": {true, false}, "0100001": {false, true}, "02100002": {true, true}, "010000000": {true, false}, "9": {}, "": {},
	} {
		r, w := accessOf([]byte("pos:\t0\nflags:\t" + flags + "\n"))
		if r != want[0] || w != want[1] {
			t.Errorf("%q: %v %v", flags, r, w)
		}
	}
}

func TestUDPTable(t *testing.T) {
	const table = `   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
 1000: 0100007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 77 2 0000000000000000 0
 1001: 0100007F:A001 0100007F:0035 01 00000000:00000000 00:00000000 00000000     0        0 78 2 0000000000000000 0
`
	s, ok := findUDP([]byte(table), func(s udpSocket) bool { return s.inode == 78 })
	if !ok || s.remote != netip.MustParseAddrPort("127.0.0.1:53") || s.local.Port() != 0xa001 {
		t.Error(s, ok)
	}
	six, ok := host.HexAddrPort([]byte("00000000000000000000000001000000:0050"))
	if !ok || six != netip.MustParseAddrPort("[::1]:80") {
		t.Error(six, ok)
	}
}

// TestCallNumbers checks the tables with the numbers that this machine has.
func TestCallNumbers(t *testing.T) {
	table := callsOf(runtime.GOARCH)
	if table == nil {
		t.Skip("SKIPPED: no table for " + runtime.GOARCH)
	}
	for nr, name := range map[uint64]string{
		unix.SYS_READ: "read", unix.SYS_WRITE: "write", unix.SYS_READV: "readv", unix.SYS_WRITEV: "writev",
		unix.SYS_RECVFROM: "recvfrom", unix.SYS_RECVMSG: "recvmsg", unix.SYS_SENDTO: "sendto", unix.SYS_SENDMSG: "sendmsg",
		unix.SYS_SPLICE: "splice", unix.SYS_TEE: "tee", unix.SYS_SENDFILE: "sendfile", unix.SYS_CONNECT: "connect",
		unix.SYS_ACCEPT: "accept", unix.SYS_ACCEPT4: "accept4", unix.SYS_PPOLL: "ppoll", unix.SYS_PSELECT6: "pselect6",
		unix.SYS_EPOLL_PWAIT: "epoll_pwait", unix.SYS_EPOLL_PWAIT2: "epoll_pwait2", unix.SYS_FUTEX: "futex",
		unix.SYS_FUTEX_WAITV: "futex_waitv", unix.SYS_FLOCK: "flock", unix.SYS_FCNTL: "fcntl", unix.SYS_WAIT4: "wait4",
		unix.SYS_WAITID: "waitid", unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fdatasync", unix.SYS_MSYNC: "msync",
		unix.SYS_IO_GETEVENTS: "io_getevents", unix.SYS_IO_URING_ENTER: "io_uring_enter", unix.SYS_NANOSLEEP: "nanosleep",
		unix.SYS_CLOCK_NANOSLEEP: "clock_nanosleep", unix.SYS_RESTART_SYSCALL: "restart_syscall", unix.SYS_OPENAT: "openat",
		unix.SYS_CLONE: "clone", unix.SYS_CLONE3: "clone3", unix.SYS_STATX: "statx", unix.SYS_GETDENTS64: "getdents64",
	} {
		if table[nr].name != name {
			t.Errorf("%d is %q, want %q", nr, table[nr].name, name)
		}
	}
	for _, arch := range []string{"amd64", "arm64"} {
		names := map[string]bool{}
		for nr, c := range callsOf(arch) {
			if names[c.name] || c.name == "" {
				t.Errorf("%s: %d: %q is there twice", arch, nr, c.name)
			}
			names[c.name] = true
		}
	}
}

// FuzzParse: no contents of a file make a parser panic.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"1 (a) S 1 0 0 0 0 0\n", "202 0x1 0x2", "1: -> POSIX  ADVISORY  WRITE 1 a:b:1 0 EOF", "[<0>] f+0x1/0x2\n",
		"flags:\t0100\n", "1: 0100007F:0035 0:0 07 0:0 00:0 0 0 0 77 2"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, ok := parseStat(b); ok && (!utf8.ValidString(s.comm) || len(s.comm) > maxComm) {
			t.Errorf("%q", s.comm)
		}
		parseSyscall(b)
		parseSchedstat(b)
		parseSwitches(b)
		parseLocks(b)
		insideOf(parseStack(b))
		accessOf(b)
		findUDP(b, func(udpSocket) bool { return false })
		if s := printable.Name(b, 10); len(s) > 10 || !utf8.ValidString(s) {
			t.Errorf("%q", s)
		}
	})
}
