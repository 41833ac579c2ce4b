// Package hangtest makes, for tests, a file system that does not answer: one of FUSE,
// of which the server stops answering one kind of question.
//
// In: a test, and the question. Out: a process with a mount namespace of its own in
// which that file system is mounted. Nothing of it is seen outside of that namespace,
// and with the test it ends. It is for tests only: a program that imports it runs as
// the server when the environment says so.
package hangtest

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Question is one that a file system is asked (enum fuse_opcode,
// include/uapi/linux/fuse.h).
type Question uint32

// The questions that may stay without an answer.
const (
	Lookup  Question = 1
	GetAttr Question = 3
	Open    Question = 14
	Read    Question = 15
	initial Question = 26
	release Question = 18
)

// Dir is where the file system is mounted in the namespace of its process. It has
// one regular file, "file", with the text "text".
const Dir = "/mnt"

// Text is what the file holds.
const Text = "text\n"

// Process is a process that sees the file system. It is the server, too: a process
// that waits for a server of its own could not end.
type Process struct {
	PID    int
	unseen atomic.Int64
}

// Unanswered is how many questions stayed without an answer so far.
func (p *Process) Unanswered() int { return int(p.unseen.Load()) }

// server is the variable in the environment of a test that makes it the server.
const server = "SLOWRAY_HANGTEST"

func init() {
	never, err := strconv.Atoi(os.Getenv(server))
	if err != nil {
		return
	}
	dev, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.Mount("hang", Dir, "fuse.hang", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", dev))
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println()
	serve(dev, Question(never))
	os.Exit(0)
}

// Mount starts a process with such a file system. The test is skipped where that is
// not possible.
func Mount(t testing.TB, never Question) *Process {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount")
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env = append(os.Environ(), server+"="+strconv.Itoa(int(never)))
	// Package syscall makes all mounts of the new namespace private.
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Whoever waits for an answer gets an error.
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewReader(out)
	switch said, err := lines.ReadString('\n'); {
	case err != nil:
		t.Fatal(err)
	case said != "\n":
		t.Skipf("FUSE cannot be mounted: %s", said)
	}
	p := &Process{PID: cmd.Process.Pid}
	go func() {
		for {
			if _, err := lines.ReadString('\n'); err != nil {
				return
			}
			p.unseen.Add(1)
		}
	}()
	return p
}

// serve answers until the file system is gone. It says so when it does not answer.
func serve(dev int, never Question) {
	const head = 40 // struct fuse_in_header
	buf := make([]byte, 1<<20)
	ne := binary.NativeEndian
	for {
		n, err := unix.Read(dev, buf)
		if err == unix.EINTR || err == unix.EAGAIN || err == unix.ENOENT {
			continue
		}
		if err != nil || n < head {
			return
		}
		q, unique, node := Question(ne.Uint32(buf[4:])), ne.Uint64(buf[8:]), ne.Uint64(buf[16:])
		if q == never {
			fmt.Println()
			continue
		}
		var out []byte
		code := int32(0)
		switch q {
		case initial:
			out = make([]byte, 64) // struct fuse_init_out
			ne.PutUint32(out, 7)
			ne.PutUint32(out[4:], 31)
			ne.PutUint32(out[20:], 4096) // max_write
		case GetAttr:
			out = append(make([]byte, 16), attr(node)...) // struct fuse_attr_out: not to be remembered
		case Lookup:
			if string(buf[head:n-1]) != "file" {
				code = -int32(unix.ENOENT)
				break
			}
			out = make([]byte, 40) // struct fuse_entry_out
			ne.PutUint64(out, 2)
			out = append(out, attr(2)...)
		case Open:
			out = make([]byte, 16)   // struct fuse_open_out
			ne.PutUint32(out[8:], 1) // FOPEN_DIRECT_IO: every read is asked for
		case Read:
			if at := ne.Uint64(buf[head+8:]); at < uint64(len(Text)) {
				out = []byte(Text)[at:]
			}
		case release:
		case 2, 36, 42: // FORGET, INTERRUPT and BATCH_FORGET have no answer
			continue
		default:
			code = -int32(unix.ENOSYS)
		}
		answer := make([]byte, 16, 16+len(out)) // struct fuse_out_header
		ne.PutUint32(answer, uint32(16+len(out)))
		ne.PutUint32(answer[4:], uint32(code))
		ne.PutUint64(answer[8:], unique)
		if _, err := unix.Write(dev, append(answer, out...)); err != nil && err != unix.ENOENT {
			return
		}
	}
}

// attr is struct fuse_attr of the directory (1) or of the file.
func attr(node uint64) []byte {
	b := make([]byte, 88)
	ne := binary.NativeEndian
	ne.PutUint64(b, node)
	mode, size := uint32(unix.S_IFDIR|0o755), uint64(0)
	if node == 2 {
		mode, size = unix.S_IFREG|0o644, uint64(len(Text))
	}
	ne.PutUint64(b[8:], size)
	ne.PutUint32(b[60:], mode)
	ne.PutUint32(b[64:], 1)
	return b
}
