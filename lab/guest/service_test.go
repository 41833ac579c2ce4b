package guest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// roleEnv makes this program a part of a service instead of a test.
const roleEnv = "SLOWRAY_GUEST_ROLE"

func TestMain(m *testing.M) {
	switch role, args := os.Getenv(roleEnv), os.Args[1:]; role {
	case "":
		os.Exit(m.Run())
	case "server":
		serve(args[0], args[1])
	case "client":
		ask(args[0])
	}
}

// works are what a server does for a request. One that fails is answered with an
// error.
var works = map[string]func() error{
	"nothing": func() error { return nil },
	// Computing, for 15 ms of CPU time.
	"compute": func() error {
		for spent := cpuTime(); cpuTime()-spent < 15*time.Millisecond; {
		}
		return nil
	},
	// Memory that is taken and given back, next to 48 MB that are kept.
	"memory": func() error {
		kept()
		return mapped(2<<20, true)
	},
	// Memory that is only promised, to somebody who is not root.
	"map": func() error {
		nobody()
		return mapped(1<<20, false)
	},
	// A look at each page of the 48 MB.
	"sweep": func() error {
		all := kept()
		for n := 0; n < len(all); n += 4096 {
			all[n]++
		}
		return nil
	},
	// A file, on the disk before the answer.
	"store": func() error {
		f, err := os.OpenFile(fmt.Sprintf("/tmp/disk/booking-%d", stores.Add(1)%64), os.O_CREATE|os.O_WRONLY|syscall.O_SYNC, 0o644)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.Write(make([]byte, 4096))
		return err
	},
	"clock": func() error {
		for range 3000 {
			var ts unix.Timespec
			_, _, _ = syscall.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&ts)), 0)
		}
		return nil
	},
}

var (
	stores atomic.Int64
	nobody = sync.OnceFunc(func() { _ = syscall.Setuid(65534) })
	kept   = sync.OnceValue(func() []byte {
		b, err := unix.Mmap(-1, 0, 48<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			fail(err)
		}
		for n := 0; n < len(b); n += 4096 {
			b[n] = 1
		}
		return b
	})
)

// mapped takes memory, and gives it back.
func mapped(size int, touch bool) error {
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	for n := 0; touch && n < len(b); n += 4096 {
		b[n] = 1
	}
	return unix.Munmap(b)
}

func cpuTime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts)
	return time.Duration(ts.Nano())
}

// serve answers requests of HTTP/1.1 on kept connections.
func serve(what, addr string) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		fail(err)
	}
	fmt.Println(l.Addr())
	body := strings.Repeat("x", 8<<10)
	for {
		c, err := l.Accept()
		if err != nil {
			fail(err)
		}
		go func() {
			defer c.Close()
			r := bufio.NewReader(c)
			for {
				if !head(r) {
					return
				}
				status := "200 OK"
				if works[what]() != nil {
					status = "500 Internal Server Error"
				}
				if _, err := fmt.Fprintf(c, "HTTP/1.1 "+status+"\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
					return
				}
			}
		}()
	}
}

// head reads up to the end of a message's head, and its body when the head tells
// how long it is.
func head(r *bufio.Reader) bool {
	length := 0
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return false
		}
		if n, ok := strings.CutPrefix(line, "Content-Length: "); ok {
			length, _ = strconv.Atoi(strings.TrimSpace(n))
		}
		if line == "\r\n" {
			_, err := io.CopyN(io.Discard, r, int64(length))
			return err == nil
		}
	}
}

// ask has four connections ask again and again, with a pause in between.
func ask(addr string) {
	for range 4 {
		go func() {
			for {
				c, err := net.Dial("tcp", addr)
				if err != nil {
					time.Sleep(100 * time.Millisecond)
					continue
				}
				r := bufio.NewReader(c)
				for {
					if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: guest\r\n\r\n"); err != nil || !head(r) {
						break
					}
					time.Sleep(20 * time.Millisecond)
				}
				c.Close()
			}
		}()
	}
	time.Sleep(5 * time.Minute) // the test ends it long before
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// child is a part of a service.
type child struct {
	*exec.Cmd
	out *bufio.Reader
}

// start starts this program in a role, in a network namespace of its own when
// apart.
func start(t *testing.T, apart bool, role string, args ...string) *child {
	t.Helper()
	c := &child{Cmd: exec.Command("/proc/self/exe", args...)}
	c.Env = append(os.Environ(), roleEnv+"="+role)
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if apart {
		c.SysProcAttr.Cloneflags = unix.CLONE_NEWNET
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewReader(out)
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return c
}

// listens is where a server listens.
func (c *child) listens(t *testing.T) (addr string, port int) {
	t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	addr = strings.TrimSpace(line)
	_, digits, _ := net.SplitHostPort(addr)
	port, err = strconv.Atoi(digits)
	if err != nil {
		t.Fatal(err)
	}
	return addr, port
}
