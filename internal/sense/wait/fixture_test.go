package wait

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// tree is a /proc made by a test.
type tree struct {
	t      testing.TB
	root   string
	memory map[int]map[uint64][]byte // by process and address
	nets   map[uint64]*fakeSockets   // by network namespace
	netns  map[int]uint64
}

// fakeSockets is the sockets of a namespace.
type fakeSockets struct {
	tcp  []host.QueueSample
	unix []host.UnixSample
	err  error
}

func (f *fakeSockets) Queues(visit func(*host.QueueSample)) error {
	for i := range f.tcp {
		visit(&f.tcp[i])
	}
	return f.err
}
func (f *fakeSockets) UnixSockets() ([]host.UnixSample, error) { return f.unix, f.err }
func (f *fakeSockets) Close() error                            { return nil }

func newTree(t testing.TB) *tree {
	f := &tree{t: t, root: t.TempDir(), memory: map[int]map[uint64][]byte{}, nets: map[uint64]*fakeSockets{}, netns: map[int]uint64{}}
	f.put("sys/kernel/osrelease", "6.18.0\n")
	return f
}

func (f *tree) put(name, content string) {
	f.t.Helper()
	path := filepath.Join(f.root, "proc", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		f.t.Fatal(err)
	}
	var err error
	if target, ok := strings.CutPrefix(content, "-> "); ok {
		err = os.Symlink(target, path)
	} else {
		err = os.WriteFile(path, []byte(content), 0o644)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// process adds a process of one thread.
func (f *tree) process(pid, ppid int, comm, state, syscall string) {
	f.thread(pid, ppid, pid, comm, state, syscall)
	f.put(fmt.Sprintf("%d/stat", pid), statLine(pid, ppid, comm, state))
	f.put(fmt.Sprintf("%d/status", pid), fmt.Sprintf("Name:\t%s\nTgid:\t%d\nNSpid:\t%d\n", "x", pid, pid))
	f.inNetwork(pid, 1)
}

func (f *tree) thread(pid, ppid, tid int, comm, state, syscall string) {
	dir := fmt.Sprintf("%d/task/%d/", pid, tid)
	f.put(dir+"stat", statLine(tid, ppid, comm, state))
	f.put(dir+"status", fmt.Sprintf("Name:\tx\nTgid:\t%d\nNSpid:\t%d\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t1\n", pid, tid))
	f.put(dir+"schedstat", "100 200 6\n")
	if syscall != "" {
		f.put(dir+"syscall", syscall+"\n")
	}
}

func statLine(pid, ppid int, comm, state string) string {
	return fmt.Sprintf("%d (%s) %s %d 0 0 0 0 4194304 %s\n", pid, comm, state, ppid, strings.Repeat("0 ", 40))
}

func (f *tree) inNetwork(pid int, inode uint64) {
	f.netns[pid] = inode
	path := filepath.Join(f.root, "proc", strconv.Itoa(pid), "ns/net")
	_ = os.Remove(path)
	f.put(fmt.Sprintf("%d/ns/net", pid), fmt.Sprintf("-> net:[%d]", inode))
}

// fd adds an open file to a process and all its threads.
func (f *tree) fd(pid, fd int, link, flags string) {
	f.put(fmt.Sprintf("%d/fd/%d", pid, fd), "-> "+link)
	f.put(fmt.Sprintf("%d/fdinfo/%d", pid, fd), "pos:\t0\nflags:\t"+flags+"\nmnt_id:\t20\n")
	tasks, err := numbersIn(filepath.Join(f.root, "proc", strconv.Itoa(pid), "task"))
	if err != nil {
		f.t.Fatal(err)
	}
	for _, tid := range tasks {
		f.put(fmt.Sprintf("%d/task/%d/fd/%d", pid, tid, fd), "-> "+link)
	}
}

// words puts 32-bit numbers into the memory of a process.
func (f *tree) words(pid int, addr uint64, words ...uint32) {
	var b []byte
	for _, w := range words {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	if f.memory[pid] == nil {
		f.memory[pid] = map[uint64][]byte{}
	}
	f.memory[pid][addr] = b
}

func (f *tree) readMemory(pid int, addr uint64, into []byte) (int, error) {
	for at, b := range f.memory[pid] {
		if addr >= at && addr+uint64(len(into)) <= at+uint64(len(b)) {
			return copy(into, b[addr-at:]), nil
		}
	}
	return 0, os.ErrInvalid
}

func (f *tree) reader() *Reader {
	return &Reader{
		fs: host.FS{Proc: filepath.Join(f.root, "proc"), Sys: filepath.Join(f.root, "sys")},
		open: func(pid int) (sockets, error) {
			if s := f.nets[f.netns[pid]]; s != nil {
				return s, nil
			}
			return &fakeSockets{}, nil
		},
		memory: f.readMemory, arch: "amd64",
	}
}

func (f *tree) look(pid int) *observe.Waits {
	f.t.Helper()
	o, err := f.reader().Look(context.Background(), pid, time.Millisecond)
	if err != nil {
		f.t.Fatal(err)
	}
	return o
}

// one is the only chain of a process.
func (f *tree) one(pid int) *observe.WaitChain {
	f.t.Helper()
	o := f.look(pid)
	if len(o.Chains) != 1 {
		for i := range o.Chains {
			f.t.Log(chainText(&o.Chains[i]))
		}
		f.t.Fatalf("%d chains, want one; unseen %q", len(o.Chains), o.Unseen)
	}
	return &o.Chains[0]
}

const (
	readOnly  = "0100000"
	writeOnly = "0100001"
	readWrite = "0100002"

	stackEnd = " 0x7ffc00000000 0x7f0000000000" // SP and PC of a 64-bit program
)

// syscall is a line of /proc/PID/syscall.
func syscallLine(nr int, args ...uint64) string {
	s := strconv.Itoa(nr)
	for i := range 6 {
		a := uint64(0)
		if i < len(args) {
			a = args[i]
		}
		s += fmt.Sprintf(" 0x%x", a)
	}
	return s + stackEnd
}

// conn is a TCP socket of a fake namespace.
func conn(inode uint64, state, from, to string) host.QueueSample {
	a, b := netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)
	return host.QueueSample{SocketSample: host.SocketSample{State: state, Inode: inode,
		Src: a.Addr(), SrcPort: a.Port(), Dst: b.Addr(), DstPort: b.Port()}}
}
