package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/lab/sandbox"
)

// Native is how the HTTP server in C behaves (programs/booking.c). It has a
// thread for each connection. The zero value answers at once.
type Native struct {
	Work      time.Duration // before the answer, outside any lock
	Lock      time.Duration // before the answer, inside a lock that all requests take
	Transfers int           // of so many requests two lock two accounts, for 1 ms; 0 = none does
	Opposite  bool          // the second of the two locks them in the other order
	Log       int           // bytes of the line that is logged for a request
	Seats     bool          // a request takes a lock of a file for a moment
	SeatsWork time.Duration // … and waits for something while it has it
	OpenLock  bool          // … the lock of fcntl(2), not of flock(2)
	Workers   int           // processes that share the port; 0 = one
	Prices    bool          // a request opens and reads a file, from a file system that a process serves
	MailEvery int           // each so manieth request is greeted by the mail host, which is a machine of its own
	Scan      int           // pieces of 64 kB that a request reads, here and there in a file of faresMB
	Pool      int           // threads that wait for work which never comes
	Threads   int           // for all connections, each from its beginning to its end; 0 = one for each
}

// The native server's files, in the directory of the sandbox.
const (
	seatsFile  = "seats.lock"
	pricesFile = "prices/today"
	mailPort   = 25
	faresFile  = "fares"
	faresMB    = 64
)

// native starts the server in C, and first what it needs.
func (s *starter) native(addr string, port int) error {
	exe, err := s.compiled()
	if err != nil {
		return err
	}
	for _, step := range []func() error{s.prices, s.mailHost, s.seats, s.fares} {
		if err := step(); err != nil {
			return err
		}
	}
	spec := sandbox.Spec{NoFile: s.v.NoFile, Cgroup: s.cgroup, Cgroups: s.limits, Stderr: filepath.Join(s.box.Dir, "booking-engine.out")}
	spec.Args = append([]string{exe, addr, strconv.Itoa(port), strconv.Itoa(s.v.AppBacklog)}, s.nativeOptions()...)
	if s.v.Native.Log > 0 {
		if err := s.intoPipe(&spec); err != nil {
			return err
		}
	}
	proc, err := s.box.Server.Start(s.ctx, spec)
	if err != nil {
		return err
	}
	if err := s.box.Server.Listening(s.ctx, port); err != nil {
		said, _ := os.ReadFile(spec.Stderr)
		return fmt.Errorf("booking-engine: %w: %.300s", err, said)
	}
	if s.v.Stopped {
		s.soon(func() error { return proc.Signal(s.ctx, syscall.SIGSTOP) })
	}
	if s.v.StoppedFor > 0 {
		stop := fmt.Sprintf("while kill -STOP %[1]d; do sleep %.3[2]f; kill -CONT %[1]d; sleep %.3[3]f; done", proc.PID, s.v.StoppedFor.Seconds(), (stopEvery - s.v.StoppedFor).Seconds())
		if _, err := s.box.Server.Start(s.ctx, sandbox.Spec{Args: []string{"sh", "-c", stop}}); err != nil {
			return err
		}
	}
	return nil
}

// stopEvery is how often a program is stopped that is stopped for a while.
const stopEvery = 2 * time.Second

func (s *starter) nativeOptions() []string {
	n := s.v.Native
	opposite, openLock := 0, 0
	if n.Opposite {
		opposite = 1
	}
	if n.OpenLock {
		openLock = 1
	}
	var options []string
	for _, o := range []struct {
		name  string
		value int
	}{
		{"--work-us", int(n.Work.Microseconds())}, {"--lock-us", int(n.Lock.Microseconds())},
		{"--transfers", n.Transfers}, {"--opposite", opposite}, {"--log", n.Log}, {"--pool", n.Pool}, {"--mail-every", n.MailEvery}, {"--pieces", n.Scan},
		{"--flock-us", int(n.SeatsWork.Microseconds())}, {"--open-lock", openLock}, {"--workers", n.Workers}, {"--threads", n.Threads},
	} {
		if o.value != 0 {
			options = append(options, o.name, strconv.Itoa(o.value))
		}
	}
	if n.Seats {
		options = append(options, "--flock", filepath.Join(s.box.Dir, seatsFile))
	}
	if n.Prices {
		options = append(options, "--read", filepath.Join(s.box.Dir, pricesFile))
	}
	if n.Scan > 0 {
		options = append(options, "--scan", filepath.Join(s.box.Dir, faresFile))
	}
	if n.MailEvery > 0 {
		options = append(options, "--mail", fmt.Sprintf("%s:%d", s.v.BackendAddr, mailPort))
	}
	return options
}

// fares writes the file that is read here and there, and has the kernel forget
// it: what is in memory already counts against nobody's limit.
func (s *starter) fares() error {
	if s.v.Native.Scan == 0 {
		return nil
	}
	f, err := os.Create(filepath.Join(s.box.Dir, faresFile))
	if err != nil {
		return err
	}
	defer f.Close()
	piece := make([]byte, 1<<20)
	for n := range piece {
		piece[n] = byte(n * 7)
	}
	for range faresMB {
		if _, err := f.Write(piece); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// nginxNative is nginx with the server in C behind it.
func (s *starter) nginxNative() error {
	if err := s.native(s.v.ProxyAddr, s.v.BackPort); err != nil {
		return err
	}
	return s.front()
}

// intoPipe makes the program's standard output a pipe to the log shipper.
func (s *starter) intoPipe(spec *sandbox.Spec) error {
	shipper, env, err := s.own("log-shipper", alongsideSpec{LogPause: s.v.LogPause})
	if err != nil {
		return err
	}
	spec.Env = append(spec.Env, env...)
	spec.Args = []string{"/bin/sh", "-c", strings.Join(spec.Args, " ") + " | " + shipper}
	return nil
}

// seats starts the program that holds the lock of the file, if there is one.
func (s *starter) seats() error {
	if s.v.SeatsHeld == 0 {
		return nil
	}
	return s.alongside(s.box.Server, "nightly-report", alongsideSpec{Lock: filepath.Join(s.box.Dir, seatsFile), Held: s.v.SeatsHeld, Free: s.v.SeatsFree})
}

// Prices is how a file system in user space serves a file: Native.Prices reads it, and
// an Errand may, as prices/today. The zero value is bindfs, which answers at once.
type Prices struct {
	Rate   int           // bytes that bindfs reads in a second; 0 = as many as it can
	Own    bool          // a program of the lab's own serves it (programs/pricesfs.py), with threads
	Lookup time.Duration // … and pauses at each lookup
	Read   time.Duration // … and at each read
	Ask    bool          // … and has the machine behind tell it the prices, at each read
	Late   time.Duration // … which takes so long
	Other  bool          // bindfs serves another one next to, which nobody uses
}

const pricesPort = 8025

// prices mounts a directory through a process that serves it.
func (s *starter) prices() error {
	p := s.v.Prices
	if !s.v.Native.Prices && !p.Own {
		return nil
	}
	source, mounted, other := filepath.Join(s.box.Dir, "prices.d"), filepath.Join(s.box.Dir, filepath.Dir(pricesFile)), filepath.Join(s.box.Dir, "seats")
	for _, dir := range []string{source, mounted, other} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(source, filepath.Base(pricesFile)), []byte("LHR 120\n"), 0o644); err != nil {
		return err
	}
	if p.Other {
		if _, err := s.mounts(other, "bindfs", "-f", source, other); err != nil {
			return err
		}
	}
	args := []string{"bindfs", "-f", source, mounted}
	if p.Rate > 0 {
		args = append(args, fmt.Sprintf("--read-rate=%d", p.Rate))
	}
	if p.Own {
		path, err := s.program("pricesfs.py")
		if err != nil {
			return err
		}
		args = []string{python, path, mounted, "--lookup", fmt.Sprint(p.Lookup.Seconds()), "--read", fmt.Sprint(p.Read.Seconds())}
	}
	if p.Ask {
		at := fmt.Sprintf("%s:%d", s.v.BackendAddr, pricesPort)
		if err := s.alongside(s.box.Backend, "price-host", alongsideSpec{Mail: at, Late: p.Late}); err != nil {
			return err
		}
		if err := s.box.Backend.Listening(s.ctx, pricesPort); err != nil {
			return err
		}
		args = append(args, "--ask", at)
	}
	proc, err := s.mounts(mounted, args...)
	if err == nil && s.v.PricesStopped {
		s.soon(func() error { return proc.Signal(s.ctx, syscall.SIGSTOP) })
	}
	return err
}

// mounts starts the server of a file system, and waits until it is mounted there.
func (s *starter) mounts(dir string, args ...string) (*sandbox.Proc, error) {
	out := dir + ".out"
	proc, err := s.box.Server.Start(s.ctx, sandbox.Spec{Args: args, Stdout: out, Stderr: out})
	if err != nil {
		return nil, err
	}
	if _, err := s.box.Server.Output(s.ctx, "timeout", "5", "sh", "-c", "until [ -e "+filepath.Join(dir, filepath.Base(pricesFile))+" ]; do sleep 0.05; done"); err != nil {
		said, _ := os.ReadFile(out)
		return nil, fmt.Errorf("%s: %w: %.300s", filepath.Base(args[0]), err, said)
	}
	return proc, nil
}

const mailRules = `table inet lab {
	chain input {
		type filter hook input priority 0
		tcp dport %d counter drop
	}
}
`

// mailHost starts a mail host on the machine behind, or the firewall before it.
// Then nothing listens: what could be seen of a mail host on this host could
// not be seen of one elsewhere.
func (s *starter) mailHost() error {
	if s.v.Native.MailEvery == 0 {
		return nil
	}
	if !s.v.MailDropped {
		if err := s.alongside(s.box.Backend, "mail-host", alongsideSpec{Mail: fmt.Sprintf("%s:%d", s.v.BackendAddr, mailPort)}); err != nil {
			return err
		}
		return s.box.Backend.Listening(s.ctx, mailPort)
	}
	path, err := s.v.write("mail-firewall.nft", fmt.Sprintf(mailRules, mailPort))
	if err != nil {
		return err
	}
	_, err = s.box.Backend.Output(s.ctx, "nft", "-f", path)
	return err
}
