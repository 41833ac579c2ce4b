package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/lab/sandbox"
)

// AlongsideRole is the role of the programs next to a service: what reads its log,
// holds its lock, or is the mail host that it calls.
const AlongsideRole = "alongside"

// alongsideSpec is one such program: the first field that is set says which.
type alongsideSpec struct {
	Lock string        // a file whose lock it takes, over and over
	Held time.Duration // … for so long
	Free time.Duration // … and leaves it to others for so long; 0 = lockFree

	Mail string        // an address where it greets whoever says something
	Late time.Duration // … after so long

	Collect string        // an address where it takes logs
	Every   time.Duration // … and stops reading, once in this time; 0 = never
	Reads   time.Duration // … after so long

	Report *reportSpec // what it asks a database

	TimeWait int // connections to itself that it leaves in TIME_WAIT; then it ends

	Syslog string // a unix datagram socket where it takes lines, one in LogPause

	Jobs int    // busy loops that it starts, as cron starts jobs: through a shell
	Job  string // … the program that they are

	Terminal string // a link that it makes to a terminal of its own, which it shows to nobody

	Export string // a file that it writes, past the cache, again and again

	Datagrams string // a unix socket where it takes datagrams
	Unread    bool   // … and reads none

	LogPause time.Duration // what it reads from standard input it takes all at once, after so long
}

// own gives the program of that name, and the environment it needs.
func (s *starter) own(name string, spec alongsideSpec) (path string, env []string, err error) {
	path = filepath.Join(s.box.Dir, name)
	if err := os.Symlink(s.exe, path); err != nil && !os.IsExist(err) {
		return "", nil, err
	}
	data, err := json.Marshal(spec)
	return path, []string{sandbox.RoleEnv + "=" + AlongsideRole, appEnv + "=" + string(data), "GOMAXPROCS=1"}, err
}

func (s *starter) alongside(side *sandbox.Side, name string, spec alongsideSpec) error {
	path, env, err := s.own(name, spec)
	if err != nil {
		return err
	}
	_, err = side.Start(s.ctx, sandbox.Spec{Args: []string{path}, Env: env, Stderr: path + ".out"})
	return err
}

// soonAfter is how long after the servers have been started something happens
// to them: the load has begun by then.
const soonAfter = 500 * time.Millisecond

// soon does something to the servers when they serve.
func (s *starter) soon(do func() error) {
	time.AfterFunc(soonAfter, func() {
		if s.ctx.Err() == nil {
			do() // should it fail, the fault does no harm, which is measured
		}
	})
}

func (b *alongsideSpec) serve() error {
	switch {
	case b.Lock != "":
		return b.holdLock()
	case b.Mail != "":
		return b.greet()
	case b.Collect != "":
		return b.collect()
	case b.Datagrams != "":
		return b.takeDatagrams()
	case b.Report != nil:
		return b.Report.serve()
	case b.TimeWait > 0:
		return b.leaveTimeWait()
	case b.Syslog != "":
		return b.takeLines()
	case b.Jobs > 0:
		return b.startJobs()
	case b.Export != "":
		return b.export()
	case b.Terminal != "":
		return b.showTerminal()
	default:
		return b.readLog()
	}
}

// lockFree is how long the lock is left to others.
const lockFree = 20 * time.Millisecond

func (b *alongsideSpec) holdLock() error {
	f, err := os.OpenFile(b.Lock, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	free := lockFree
	if b.Free > 0 {
		free = b.Free
		time.Sleep(free / 3)
	}
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		time.Sleep(b.Held)
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_UN); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		time.Sleep(free)
	}
}

// listenTCP calls serve for each connection.
func listenTCP(addr string, serve func(*net.TCPConn)) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go serve(conn.(*net.TCPConn))
	}
}

func (b *alongsideSpec) greet() error {
	return listenTCP(b.Mail, func(conn *net.TCPConn) {
		defer conn.Close()
		if _, err := conn.Read(make([]byte, 256)); err == nil {
			time.Sleep(b.Late)
			fmt.Fprint(conn, "250 mail.example.com\r\n")
		}
	})
}

// collectorBuffer is the collector's SO_RCVBUF, bytes: what has been sent to it
// and not been read is soon too much.
const collectorBuffer = 32 << 10

func (b *alongsideSpec) collect() error {
	began := time.Now()
	return listenTCP(b.Collect, func(conn *net.TCPConn) {
		defer conn.Close()
		conn.SetReadBuffer(collectorBuffer)
		buf := make([]byte, 64<<10)
		for {
			if b.Every > 0 {
				if into := time.Since(began) % b.Every; into > b.Reads {
					time.Sleep(b.Every - into)
				}
			}
			if _, err := conn.Read(buf); err != nil {
				return
			}
		}
	})
}

func (b *alongsideSpec) leaveTimeWait() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	for range b.TimeWait {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return err
		}
		other, err := l.Accept()
		if err != nil {
			return err
		}
		conn.Close() // who closes first has it
		other.Close()
	}
	return nil
}

// takeLines reads datagrams, as the daemon of the system's log does.
func (b *alongsideSpec) takeLines() error {
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: b.Syslog, Net: "unixgram"})
	if err != nil {
		return err
	}
	if err := os.Chmod(b.Syslog, 0o666); err != nil {
		return err
	}
	line := make([]byte, 8<<10)
	for {
		if _, err := conn.Read(line); err != nil {
			return fmt.Errorf("log: %w", err)
		}
		time.Sleep(b.LogPause)
	}
}

// startJobs is the daemon that starts programs at given times: now.
func (b *alongsideSpec) startJobs() error {
	line := ""
	for range b.Jobs {
		line += b.Job + " & "
	}
	cmd := exec.Command("/bin/sh", "-c", line+"wait")
	cmd.Env = []string{sandbox.RoleEnv + "=" + BurnRole, "GOMAXPROCS=1"}
	return cmd.Run()
}

// showTerminal is the program behind a terminal, as a terminal server is.
func (b *alongsideSpec) showTerminal() error {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return fmt.Errorf("terminal: unlock: %w", err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		return fmt.Errorf("terminal: %w", err)
	}
	name := fmt.Sprintf("/dev/pts/%d", number)
	slave, err := os.OpenFile(name, os.O_RDWR|syscall.O_NOCTTY, 0) // so that it stays
	if err != nil {
		return err
	}
	defer slave.Close()
	if err := os.Symlink(name, b.Terminal); err != nil {
		return err
	}
	text := make([]byte, 64<<10)
	for {
		time.Sleep(b.LogPause)
		if _, err := master.Read(text); err != nil {
			return fmt.Errorf("terminal: %w", err)
		}
	}
}

// readLog reads what a service logs. A reader that pauses takes all that the
// pipe holds, and then nothing for a while.
func (b *alongsideSpec) readLog() error {
	const pipe = 64 << 10
	buf := make([]byte, pipe)
	for {
		if b.LogPause > 0 {
			time.Sleep(b.LogPause)
		}
		if _, err := os.Stdin.Read(buf); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("log: %w", err)
		}
	}
}
