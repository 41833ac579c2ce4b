package host

import (
	"bytes"
	"encoding/binary"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/nl"
	"github.com/slowray/slowray/internal/observe"
)

// seed adds the parts of the recorded fixture that a parser reads, and some
// edges.
func seed(f *testing.F, names ...string) {
	f.Helper()
	fs := fixture(f, "web-6.18")
	for _, name := range names {
		b, err := os.ReadFile(fs.Proc + "/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(""))
	f.Add([]byte("\n \t\n: (\x00)\xff 99999999999999999999 -1"))
}

func FuzzStat(f *testing.F) {
	seed(f, "stat")
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseStat(bytes.NewReader(b))
		if err != nil || len(s.cpus) != len(s.seen) || len(s.cpus) > maxCPUs {
			t.Fatal(err, len(s.cpus))
		}
		all, each := statBetween(statSample{cpus: s.cpus[:len(s.cpus)/2], seen: s.seen[:len(s.seen)/2]}, s, 1)
		if all.Total() < 0 || (each != nil && len(each) != len(s.cpus)) {
			t.Fatal(all, len(each))
		}
	})
}

func FuzzTables(f *testing.F) {
	seed(f, "meminfo", "vmstat", "diskstats", "pressure/io", "net/softnet_stat")
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = parseMeminfo(bytes.NewReader(b))
		p, _ := parsePressure(bytes.NewReader(b))
		_ = pressureBetween(p, pressureSample{}).SomeSeconds
		vm, _ := parseVmstat(bytes.NewReader(b))
		vmBetween(nil, vm)
		d, _ := parseDiskstats(bytes.NewReader(b))
		disksBetween(d, FS{Sys: "/nonexistent"}.wholeDisks(d))
		s, _ := parseSoftnet(bytes.NewReader(b))
		softnetBetween(s, s)
	})
}

func FuzzProcess(f *testing.F) {
	seed(f, "4711/stat", "1/limits", "1/io", "1/schedstat", "1/cmdline", "4711/task/4711/syscall")
	f.Fuzz(func(t *testing.T, b []byte) {
		var p ProcSample
		if parsePIDStat(b, &p) && (p.Threads < 0 || p.PPID < 0 || !utf8.ValidString(p.Comm)) {
			t.Fatalf("%+v", p)
		}
		statState(b)
		parseLimits(b)
		parseIO(b)
		_, _, _, _ = parseSchedstat(b)
		parseNSLink(b)
		parseSyscall(b, waitCalls)
		parseWchan(b)
		if c := parseCmdline(bytes.Clone(b)); len(c) > maxCmdline || !utf8.ValidString(c) || strings.Contains(c, "\n") {
			t.Fatalf("%q", c)
		}
	})
}

func FuzzCgroup(f *testing.F) {
	seed(f, "1/cgroup", "4711/cgroup")
	f.Add([]byte("2:cpu,cpuacct:/docker/1\n4:memory:/a\n0::/../b (deleted)\n"))
	f.Add([]byte("41 31 0:38 /.. /sys/fs/cg\\040x rw shared:9 - cgroup2 cgroup2 rw\n32 31 0:29 / /c rw - cgroup cgroup rw,cpu,memory\n"))
	f.Add([]byte("150000 100000\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		g := parseProcCgroup(b)
		n := nameGroups(g)
		if !utf8.ValidString(n.path + n.container + n.unit) {
			t.Fatalf("%+v", n)
		}
		m, _ := parseMountinfo(bytes.NewReader(b))
		for _, ms := range [][]cgroupMount{m.v2, m.cpu, m.memory} {
			for _, path := range []string{g.V2, g.CPU, g.Memory, "/a/b"} {
				lineage(ms, path)
			}
		}
		if q, p := parseCPUMax(b); q < 0 || p < 0 {
			t.Fatal(q, p)
		}
		flatKey(b, "nr_periods")
		(&cgroupScan{}).limit(b)
		ContainerOf(string(b))
		UnitOf(string(b))
	})
}

func FuzzNetstat(f *testing.F) {
	seed(f, "thread-self/net/netstat", "thread-self/net/snmp", "thread-self/net/sockstat", "thread-self/net/stat/nf_conntrack")
	f.Fuzz(func(t *testing.T, b []byte) {
		m := make(map[string]uint64)
		_ = parseNetstat(bytes.NewReader(b), m)
		for k := range m {
			if !utf8.ValidString(k) {
				t.Fatalf("%q", k)
			}
		}
		_ = parseSockstat(bytes.NewReader(b), make(map[string]int64))
		var s ConntrackSample
		_ = parseConntrackStat(bytes.NewReader(b), &s)
	})
}

func FuzzNetlink(f *testing.F) {
	listener := make([]byte, inetDiagMsgSize)
	listener[0], listener[1] = unix.AF_INET, tcpListen
	listener = append(listener, 40, 0, inetDiagSKMeminfo, 0)
	listener = append(listener, make([]byte, 36)...)
	stream := append([]byte{unix.AF_UNIX, unix.SOCK_STREAM, tcpListen, 0}, make([]byte, 12)...)
	stream = append(stream, 9, 0, 0, 0, '/', 'r', 'u', 'n', 0, 0, 0, 0, 12, 0, unixDiagRQLen, 0, 1, 0, 0, 0, 2, 0, 0, 0)
	for _, payload := range [][]byte{listener, stream, {0, 0, 0, 0, 8, 0, ctStatDrop, 0, 0, 0, 0, 1}} {
		msg := make([]byte, unix.NLMSG_HDRLEN)
		binary.NativeEndian.PutUint32(msg, uint32(unix.NLMSG_HDRLEN+len(payload)))
		msg[4], msg[8] = sockDiagByFamily, 1
		f.Add(append(msg, payload...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = nl.Messages(b, func(_ uint32, m nl.Message) (bool, error) {
			payload := m.Payload
			var s SocketSample
			parseSocket(payload, &s)
			parseListener(payload)
			if l, ok := parseUnixListener(payload); ok && !utf8.ValidString(l.Path) {
				t.Fatalf("%q", l.Path)
			}
			parseConntrackCPU(payload, &ConntrackSample{})
			return true, nil
		})
	})
}

func FuzzKmsg(f *testing.F) {
	f.Add([]byte("4,100,5,-;nf_conntrack: nf_conntrack: table full in netns 4026532177, dropping packet"))
	f.Add([]byte("6,1,1,-;TCP: request_sock_TCPv6: Possible SYN flooding on port [::1]:9000. Sending cookies."))
	f.Add([]byte(" SUBSYSTEM=net"))
	f.Add([]byte("3,1,1,c;Out of memory: Killed process 1 (\xff)"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var c lineCounter
		if r, ok := parseKmsg(b); ok {
			c.count(r.text)
		}
		c.count(b)
		for _, l := range c.lines {
			if !utf8.ValidString(l.Example+l.Addr) || len(l.Example) > 256 || l.Port < 0 || l.Port > 65535 || l.Count < 1 {
				t.Fatalf("%+v", l)
			}
		}
		if len(c.lines) > 0 && c.lines[0] == (observe.KernelLine{}) {
			t.Fatal("empty line")
		}
	})
}
