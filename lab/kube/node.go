package kube

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Options of a node.
type Options struct {
	// Parts is the directory that script/kube.sh prints.
	Parts string
	// Images are programs, static ones, that become images on the node, each
	// localhost/NAME:1; the shop's programs are there in any case.
	Images []Image
	// Static are manifests of static pods. With Alone set there is nothing but containerd,
	// the kubelet with its read-only port, and these.
	Static [][]byte
	Alone  bool
	// PodCIDR is where pods get their addresses from; empty = 10.244.0.0/24.
	PodCIDR string
	// Say hears what is done; nil = nobody.
	Say func(string) `json:"-"`
}

// Node is a node that is up.
type Node struct {
	Dir string // its files, as logs/NAME of its programs; removed at the end

	parts  string
	keeper *exec.Cmd
	life   io.Closer // the node lives as long as it is open
	netns  *os.File
	lines  chan message
	gone   chan struct{} // closed when the keeper has ended
	err    error         // what ended it, when gone is closed
}

// dirPrefix begins the names of the nodes' directories and control groups.
const dirPrefix = "slowray-kube-"

// Start brings a node up, and ends what nodes left behind that were killed with their
// keepers. It needs root.
func Start(ctx context.Context, opt Options) (*Node, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("kube: needs root, for namespaces and control groups")
	}
	if err := missing(opt.Parts); err != nil {
		return nil, err
	}
	sweep()
	if opt.PodCIDR == "" {
		opt.PodCIDR = podCIDR
	}
	if opt.Say == nil {
		opt.Say = func(string) {}
	}
	dir, err := os.MkdirTemp("", dirPrefix)
	if err != nil {
		return nil, fmt.Errorf("kube: %w", err)
	}
	n := &Node{Dir: dir, parts: opt.Parts, lines: make(chan message, 100), gone: make(chan struct{})}
	if err := n.boot(ctx, opt); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// missing says what the node needs that is not installed.
func missing(parts string) error {
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "runc", "ctr", "xtables-nft-multi", "conntrack", "nsenter"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("kube: %s is not installed (script/setup.sh k8s)", name)
		}
	}
	if _, err := os.Stat(filepath.Join(cniPlugins, "bridge")); err != nil {
		return fmt.Errorf("kube: %s has no plugin bridge (script/setup.sh k8s)", cniPlugins)
	}
	for _, name := range parted {
		if _, err := os.Stat(filepath.Join(parts, name)); err != nil {
			return fmt.Errorf("kube: %w (script/kube.sh builds it)", err)
		}
	}
	return nil
}

func (n *Node) boot(ctx context.Context, opt Options) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	// The keeper holds it as long as it lives.
	lock, err := takeLock(n.Dir, os.O_CREATE)
	if err != nil {
		return err
	}
	defer lock.Close()
	t, err := json.Marshal(task{Dir: n.Dir, Options: opt})
	if err != nil {
		return err
	}
	// Own session: an interrupt typed at the terminal is for the caller only.
	n.keeper = exec.Command(exe)
	n.keeper.Env = append(os.Environ(), taskEnv+"="+string(t))
	n.keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS}
	n.keeper.ExtraFiles = []*os.File{lock}
	n.keeper.Stderr = os.Stderr
	life, err := n.keeper.StdinPipe()
	if err != nil {
		return err
	}
	n.life = life
	out, err := n.keeper.StdoutPipe()
	if err != nil {
		return err
	}
	if err := n.keeper.Start(); err != nil {
		n.keeper = nil
		return fmt.Errorf("kube: keeper: %w", err)
	}
	go n.listen(out)
	if n.netns, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", n.keeper.Process.Pid)); err != nil {
		return fmt.Errorf("kube: keeper: %w", err)
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case m := <-n.lines:
			if m.Ready {
				return nil
			}
			opt.Say(m.Text)
		case <-n.gone:
			return n.err
		}
	}
}

// listen takes what the keeper says, until it ends.
func (n *Node) listen(out io.Reader) {
	defer close(n.gone)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var m message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			continue
		}
		if m.Error != "" {
			n.err = errors.New("kube: " + m.Error)
			continue
		}
		select {
		case n.lines <- m:
		default: // nobody listens any more
		}
	}
	if err := n.keeper.Wait(); err != nil && n.err == nil {
		n.err = fmt.Errorf("kube: keeper: %w", err)
	}
	if n.err == nil {
		n.err = errors.New("kube: the node has ended")
	}
}

// Gone is closed when the node has ended, and Err says why.
func (n *Node) Gone() <-chan struct{} { return n.gone }

// Err is why the node has ended.
func (n *Node) Err() error { <-n.gone; return n.err }

// takedown is how long a node may take to end.
const takedown = time.Minute

// Close ends the node and removes all that belongs to it.
func (n *Node) Close() error {
	if n.keeper != nil {
		n.life.Close()
		select {
		case <-n.gone:
		case <-time.After(takedown):
			n.keeper.Process.Kill()
			<-n.gone
		}
	}
	if n.netns != nil {
		n.netns.Close()
	}
	return remove(n.Dir)
}

// remove ends what is left of a node and removes its groups and files. Its mounts are in a
// namespace of its own, and end with the last process in there.
func remove(dir string) error {
	group := filepath.Base(dir)
	if err := endGroup(group, 0); err != nil {
		return fmt.Errorf("kube: %w", err)
	}
	if err := errors.Join(removeGroups(group), os.RemoveAll(dir)); err != nil {
		return fmt.Errorf("kube: %w", err)
	}
	return nil
}

// sweep removes nodes whose keepers were killed.
func sweep() {
	list, err := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range list {
		var s unix.Stat_t
		if unix.Lstat(dir, &s) != nil || s.Uid != uint32(os.Getuid()) || s.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		lock, err := takeLock(dir, 0)
		switch {
		case err == nil:
			defer lock.Close()
		case errors.Is(err, os.ErrNotExist) && time.Since(time.Unix(s.Mtim.Unix())) > time.Minute: // its removal was interrupted
		default: // it lives, or is just being made
			continue
		}
		if err := remove(dir); err != nil {
			fmt.Fprintln(os.Stderr, "left behind:", err)
		}
	}
}

// takeLock takes the lock of a node's directory, which fails while its keeper lives.
func takeLock(dir string, flags int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), flags|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Kubeconfig is the path of an administrator's configuration. The address in it leads to
// the API server only from inside: see Enter.
func (n *Node) Kubeconfig() string { return filepath.Join(n.Dir, "pki", "admin.conf") }

// Enter is the beginning of a command line that runs a program on the node. Its root is that of
// the keeper, which a mount namespace's own is not where all this runs in a chroot.
func (n *Node) Enter() []string {
	return []string{"nsenter", "--target", fmt.Sprint(n.keeper.Process.Pid), "--root", "--mount", "--net", "--uts", "env", "KUBECONFIG=" + n.Kubeconfig()}
}

// Command is a program to run on the node, in its network and with its files.
func (n *Node) Command(ctx context.Context, args ...string) *exec.Cmd {
	all := append(n.Enter(), args...)
	cmd := exec.CommandContext(ctx, all[0], all[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	return cmd
}

// ask asks a URL from inside the node.
func (n *Node) ask(ctx context.Context, url string) error {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialIn(n.netns)}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
	if err == nil {
		err = answer.Body.Close()
	}
	return err
}

// Log gives the end of what one of the node's programs has printed.
func (n *Node) Log(name string) string { return lastLines(filepath.Join(n.Dir, "logs", name), 5) }

// lastLines are the last lines of a file, without those that are empty.
func lastLines(path string, count int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "it printed nothing"
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-count):], "\n")
}
