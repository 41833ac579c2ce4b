package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	dirPrefix   = "slowray-lab-"
	lifetimeEnv = "SLOWRAY_LAB_LIFETIME"
	dirEnv      = "SLOWRAY_LAB_DIR"
	sidesEnv    = "SLOWRAY_LAB_SIDES" // how many there are
)

// Options of a sandbox.
type Options struct {
	Executable string        // a program that calls [Main] first
	ServerAddr string        // "10.1.2.1/30"
	ClientAddr string        // "10.1.2.2/30"
	Lifetime   time.Duration // after which it ends by itself
	Wire       Wire          // between clients and servers

	// BackendAddr asks for a third side, behind the server's, which is
	// ServerBackAddr there.
	BackendAddr, ServerBackAddr string
	BackWire                    Wire
}

// Box is a sandbox that is up.
type Box struct {
	Dir    string // for files of the servers; removed at the end
	Server *Side
	Client *Side
	// Backend is nil unless it was asked for.
	Backend *Side
	// Front joins the client and the server side, Back server and backend.
	Front, Back *Join

	init    *exec.Cmd
	gone    chan struct{} // closed when init has ended
	errlog  *strings.Builder
	mu      sync.Mutex // journal
	journal Journal
	closed  bool
}

// Open makes a sandbox. The caller holds the lock.
func Open(ctx context.Context, lock *Lock, opt Options) (*Box, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("lab: namespaces: not permitted (run it as root)")
	}
	dir, err := os.MkdirTemp("", dirPrefix)
	if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	b := &Box{Dir: dir, gone: make(chan struct{}), errlog: &strings.Builder{}}
	b.journal = newJournal(dir)
	// The servers' unprivileged users read their files here.
	err = os.Chmod(dir, 0o755)
	if err == nil {
		err = b.journal.write()
	}
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	if err := b.boot(ctx, lock, opt); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// boot starts init and sets up the network.
func (b *Box) boot(ctx context.Context, lock *Lock, opt Options) error {
	var ends []*os.File
	for n, side := range []**Side{&b.Server, &b.Client, &b.Backend} {
		if n == sideBackend && opt.BackendAddr == "" {
			continue
		}
		conn, end, err := socketpair()
		if err != nil {
			return err
		}
		defer end.Close() // again, where it was closed before
		*side = &Side{rpc: rpc.NewClient(conn)}
		ends = append(ends, end)
	}
	b.init = exec.Command(opt.Executable)
	b.init.Env = append(cleanEnv(), RoleEnv+"="+roleInit, exeEnv+"="+opt.Executable, dirEnv+"="+b.Dir, lifetimeEnv+"="+opt.Lifetime.String())
	b.init.Stderr = b.errlog
	b.init.ExtraFiles = []*os.File{lock.file}
	for _, path := range hostSettings {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil { // the module is not loaded: then nothing can be changed either
			if f, err = os.Open(os.DevNull); err != nil {
				return err
			}
		}
		defer f.Close()
		b.init.ExtraFiles = append(b.init.ExtraFiles, f)
	}
	b.init.ExtraFiles = append(b.init.ExtraFiles, ends...)
	b.init.Env = append(b.init.Env, fmt.Sprintf("%s=%d", sidesEnv, len(ends)))
	// Own session: an interrupt typed at the terminal is for the caller only.
	// No Pdeathsig: init must outlive the caller to take things back.
	b.init.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
	}
	err := b.init.Start()
	// Only init has the other ends now: calls fail when it ends.
	for _, end := range ends {
		end.Close()
	}
	if err != nil {
		b.init = nil
		return fmt.Errorf("lab: init: %w", err)
	}
	go b.watch()
	return b.network(ctx, opt)
}

func (b *Box) network(ctx context.Context, opt Options) error {
	if err := b.Server.call(ctx, "Guard", b.journal, nil); err != nil {
		return b.explain(err)
	}
	var err error
	b.Front, err = b.join(ctx, opt.Wire, end{b.Server, "eth0", opt.ServerAddr}, end{b.Client, "eth0", opt.ClientAddr})
	if err != nil || b.Backend == nil {
		return b.explain(err)
	}
	b.Back, err = b.join(ctx, opt.BackWire, end{b.Server, "eth1", opt.ServerBackAddr}, end{b.Backend, "eth0", opt.BackendAddr})
	return b.explain(err)
}

// explain adds what init said on its standard error, if it ended.
func (b *Box) explain(err error) error {
	var answer rpc.ServerError
	if err == nil || errors.As(err, &answer) && !strings.Contains(err.Error(), "unexpected EOF") {
		return err
	}
	select {
	case <-b.gone:
		return fmt.Errorf("lab: the sandbox ended: %s", strings.TrimSpace(b.errlog.String()))
	case <-time.After(time.Second):
		return err
	}
}

// watch takes things back when init ends before its time.
func (b *Box) watch() {
	defer close(b.gone)
	b.init.Wait()
	b.undo()
}

func (b *Box) undo() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return b.journal.undo(files{})
}

// Gone is closed when the sandbox has ended.
func (b *Box) Gone() <-chan struct{} { return b.gone }

// PID is init's process id on the host.
func (b *Box) PID() int { return b.init.Process.Pid }

// Close ends the sandbox and takes everything back. It may be called twice.
func (b *Box) Close() error {
	for _, s := range []*Side{b.Server, b.Client, b.Backend} {
		if s != nil {
			s.rpc.Close()
		}
	}
	wires := errors.Join(b.Front.close(), b.Back.close())
	if b.init != nil {
		select {
		case <-b.gone: // init saw the end of the connection, cleaned up and ended
		case <-time.After(10 * time.Second):
			b.init.Process.Kill()
			<-b.gone
		}
	}
	return errors.Join(wires, b.undo())
}

// change notes something to take back, on disk and with init, before it is done.
func (b *Box) change(ctx context.Context, note func(*Journal), do func() error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errors.New("lab: the sandbox ended")
	}
	note(&b.journal)
	if err := b.journal.write(); err != nil {
		return err
	}
	if err := b.Server.call(ctx, "Guard", b.journal, nil); err != nil {
		return err
	}
	return do()
}

// SetHost changes a host-wide setting until the sandbox ends.
func (b *Box) SetHost(ctx context.Context, path, value string) error {
	old, err := files{}.get(path)
	if err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	if sameSetting(old, value) {
		return nil
	}
	return b.change(ctx,
		func(j *Journal) { j.Changes = append(j.Changes, Change{Path: path, Old: old, New: value}) },
		func() error { return files{}.set(path, value) })
}

// Cgroup makes a control group with a CPU quota (in CPUs) and gives its
// directory: below the cpu controller of version 1, or version 2.
func (b *Box) Cgroup(ctx context.Context, cpus float64) (string, error) {
	const period = 100_000 // microseconds; the kernel's default
	root, file := "/sys/fs/cgroup/cpu", "cpu.cfs_quota_us"
	value := fmt.Sprintf("%d", int(cpus*period))
	if _, err := os.Stat(filepath.Join(root, file)); err != nil {
		if root, file = "/sys/fs/cgroup", "cpu.max"; !hasController(root, "cpu") {
			return "", errors.New("lab: no cpu controller in a control group hierarchy")
		}
		value += fmt.Sprintf(" %d", period)
	}
	dir := filepath.Join(root, filepath.Base(b.Dir))
	err := b.change(ctx,
		func(j *Journal) { j.Cgroups = append(j.Cgroups, dir) },
		func() error {
			return errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, file), []byte(value), 0))
		})
	return dir, err
}

// hasController reports whether groups of version 2 have this controller.
func hasController(root, name string) bool {
	data, _ := os.ReadFile(filepath.Join(root, "cgroup.subtree_control"))
	return slices.Contains(strings.Fields(string(data)), name)
}

// socketpair gives a connection for this process and the file for the other.
func socketpair() (net.Conn, *os.File, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("lab: control connection: %w", err)
	}
	mine, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")
	defer mine.Close()
	conn, err := net.FileConn(mine)
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("lab: control connection: %w", err)
	}
	return conn, theirs, nil
}
