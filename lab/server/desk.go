package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/slowray/slowray/lab/sandbox"
)

// Desk is an HTTP server in C that needs something of the host for each request
// (programs/desk.c), and answers with an error where it does not get that. The
// zero value answers at once.
type Desk struct {
	Work time.Duration // a request takes

	Store      string // file system that a request writes a file to: "ext4" on a disk of its own, "tmpfs"; "" = none
	Full       bool   // … on which no byte is left
	NearlyFull bool   // … on which 97 % are used
	NoInodes   bool   // … on which no inode is left
	ReadOnly   bool   // … that becomes read-only once it serves

	ReportKB   int // a request writes so much to one of a few files there, and keeps it
	DirtyBytes int // … of which so many may be written and not on the disk yet; 0 = as on the host

	Console      bool          // a request writes a line to a terminal
	ConsolePause time.Duration // … whose program takes what there is only after so long

	Map  bool // a request maps memory
	Maps int  // … and the process has so many mappings already

	HeapMB   int  // it has so much memory in use
	HeapMaps int  // … in so many mappings
	Touch    int  // … of which a request changes so many pages, here and there
	Forks    bool // … and starts a program again and again, with fork(2)
	LoadMB   int  // a thread maps a table of so many MB, with all its pages, and unmaps it, again and again
	Loads    int  // … so many threads; 0 = 1

	Watch   bool // a request makes an inotify instance
	Watches int  // … and the user has so many already

	Open   bool // a request reads a file
	Denied bool // … that the server's user may not read

	Opens int // a request opens and closes a file so many times

	Append    bool // a request writes to the end of a file
	FileLimit int  // … that may not grow beyond so many bytes; 0 = as it likes

	Segment  bool // a request makes a set of semaphores
	Segments int  // … and there are so many already

	Syslog      bool          // a request sends a line to the system's log
	SyslogPause time.Duration // … which reads a line only after so long

	Calls  int  // system calls that a request makes
	Traced bool // the server runs under strace
	Aside  bool // strace watches another program, which makes system calls all the time
}

// deskUser serves where limits are those of a user: nobody else has it.
const deskUser = 64321

// desk starts the server, and what it needs.
func (s *starter) desk() error {
	exe := filepath.Join(s.box.Dir, "booking-desk")
	source, err := s.program("desk.c")
	if err != nil {
		return err
	}
	if _, err := s.box.Server.Output(s.ctx, "gcc", "-std=gnu11", "-O1", "-g", "-pthread", "-o", exe, source); err != nil {
		return fmt.Errorf("desk.c: %w", err)
	}
	for _, step := range []func() error{s.deskStore, s.deskFiles, s.deskLog} {
		if err := step(); err != nil {
			return err
		}
	}
	args := append([]string{exe, s.v.ServerAddr, strconv.Itoa(s.v.FrontPort), strconv.Itoa(s.v.AppBacklog)}, s.deskOptions()...)
	if s.v.Desk.Traced {
		args = append([]string{"strace", "-f", "-qq", "-o", os.DevNull}, args...)
	}
	if err := s.runAt(s.box.Server, s.v.FrontPort, "booking-desk", args...); err != nil {
		return err
	}
	if s.v.Desk.Aside {
		out := filepath.Join(s.box.Dir, "aside.out")
		_, err = s.box.Server.Start(s.ctx, sandbox.Spec{Stderr: out, Nice: 19,
			Args: []string{"/usr/bin/strace", "-f", "-qq", "-o", os.DevNull, "sh", "-c", "while :; do cat /etc/hostname > /dev/null; sleep 0.02; done"}})
	}
	return err
}

func (s *starter) deskPath(name string) string { return filepath.Join(s.box.Dir, "desk", name) }

func (s *starter) deskOptions() []string {
	d := s.v.Desk
	var options []string
	number := func(name string, value int) {
		if value != 0 {
			options = append(options, name, strconv.Itoa(value))
		}
	}
	name := func(option string, on bool, path string) {
		if on {
			options = append(options, option, s.deskPath(path))
		}
	}
	set := func(on bool) int {
		if on {
			return 1
		}
		return 0
	}
	number("--work-us", int(d.Work.Microseconds()))
	name("--store", d.Store != "", "store")
	number("--map", set(d.Map))
	number("--maps-held", d.Maps)
	number("--heap-mb", d.HeapMB)
	number("--heap-maps", d.HeapMaps)
	number("--touch", d.Touch)
	number("--forks", set(d.Forks))
	number("--load-mb", d.LoadMB)
	number("--loads", d.Loads)
	number("--watch", set(d.Watch))
	number("--watches-held", d.Watches)
	name("--open", d.Open, "prices")
	name("--append", d.Append, "bookings")
	number("--file-limit", d.FileLimit)
	number("--segment", set(d.Segment))
	number("--segments-held", d.Segments)
	name("--syslog", d.Syslog, "dev/log")
	name("--console", d.Console, "tty")
	number("--report-kb", d.ReportKB)
	number("--opens", d.Opens)
	name("--look-in", d.Opens > 0, "prices")
	number("--calls", d.Calls)
	if d.Watch || d.Open {
		number("--uid", deskUser)
	}
	return options
}

// deskStore mounts the file system that the server writes to, in the sandbox's
// own mount namespace: with it the loop device goes too.
func (s *starter) deskStore() error {
	d := s.v.Desk
	if err := os.MkdirAll(s.deskPath("store"), 0o755); err != nil || d.Store == "" {
		return err
	}
	dir, image := s.deskPath("store"), s.deskPath("disk.img")
	size, inodes := "16M", "-N 256 "
	if d.ReportKB > 0 {
		size, inodes = "200M", ""
	}
	script := "mount -t tmpfs -o size=" + size + " desk " + dir
	if d.Store == "ext4" {
		script = "truncate -s " + size + " " + image + " && mkfs.ext4 -q -m 0 " + inodes + image + " && mount -o loop " + image + " " + dir
	}
	fill := "dd if=/dev/zero of=" + dir + "/old-log bs=16k %s 2>/dev/null"
	switch {
	case d.DirtyBytes > 0: // of this device alone
		script += fmt.Sprintf("; bdi=/sys/class/bdi/$(mountpoint -d %s); echo %d > $bdi/max_bytes && echo 1 > $bdi/strict_limit", dir, d.DirtyBytes)
	case d.Full:
		script += "; " + fmt.Sprintf(fill, "") + "; dd if=/dev/zero of=" + dir + "/older-log bs=1k 2>/dev/null; true"
	case d.NearlyFull:
		script += "; " + fmt.Sprintf(fill, "") + "; truncate -s -400k " + dir + "/old-log; sync -f " + dir
	case d.NoInodes:
		script += "; n=0; while touch " + dir + "/session-$n; do n=$((n+1)); done 2>/dev/null; true"
	}
	if _, err := s.box.Server.Output(s.ctx, "sh", "-c", script); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if d.ReadOnly {
		s.soon(func() error {
			_, err := s.box.Server.Output(s.ctx, "sh", "-c", "until mount -o remount,ro "+dir+" 2>/dev/null; do sleep 0.01; done")
			return err
		})
	}
	return nil
}

// deskFiles makes the files that the server reads and writes.
func (s *starter) deskFiles() error {
	mode := os.FileMode(0o644)
	if s.v.Desk.Denied {
		mode = 0o600
	}
	return os.WriteFile(s.deskPath("prices"), []byte(strings.Repeat("LHR 120\n", 100)), mode)
}

// deskLog starts what reads the system's log, or a terminal.
func (s *starter) deskLog() error {
	d := s.v.Desk
	wait := func(file string) error {
		_, err := s.box.Server.Output(s.ctx, "timeout", "5", "sh", "-c", "until [ -e "+file+" ]; do sleep 0.05; done")
		return err
	}
	if d.Syslog {
		// As in a service's own root directory: that of the host belongs to it.
		if err := os.MkdirAll(s.deskPath("dev"), 0o755); err != nil {
			return err
		}
		if err := s.alongside(s.box.Server, "log-daemon", alongsideSpec{Syslog: s.deskPath("dev/log"), LogPause: d.SyslogPause}); err != nil {
			return err
		}
		if err := wait(s.deskPath("dev/log")); err != nil {
			return err
		}
	}
	if d.Console {
		if err := s.alongside(s.box.Server, "terminal", alongsideSpec{Terminal: s.deskPath("tty"), LogPause: d.ConsolePause}); err != nil {
			return err
		}
		return wait(s.deskPath("tty"))
	}
	return nil
}
