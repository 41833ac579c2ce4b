package server

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/slowray/slowray/lab/sandbox"
)

// Hop is one of a chain of small services of the lab's own, each of which asks the
// next one for each of its answers. The zero value answers at once.
type Hop struct {
	Language string // "c", "go", "java", "node", "python"; "nginx" is a proxy
	Name     string // of the program
	Renamed  bool   // the kernel has Name for it, too, not that of its interpreter
	Port     int    // of the first hop it is the plan's
	Apart    bool   // in a network namespace of its own
	Unnamed  bool   // … which only its processes keep
	Boxed    bool   // in a container
	Loopback bool   // it listens on 127.0.0.1
	Far      bool   // on the machine of its own that is behind the servers; the last hop only
	RPC      bool   // go: it is a service of gRPC
	TLS      bool   // … under TLS, as the first hop is where Setup.TLS says so

	Sleep   time.Duration // before the answer, outside any lock
	Lock    time.Duration // inside a lock that all requests take
	Spin    time.Duration // on the CPU
	Every   int           // only one of so many requests does so; 0 = each
	Workers int           // requests at a time; 0 = as many as there are connections
	Backlog int           // of its listener; 0 = 1,024
	Timeout time.Duration // of its calls; 0 = 10 s
	Read    bool          // a request reads a file
	Ticket  bool          // a request takes the lock of a file for a moment
	Log     int           // bytes that a request logs, into a pipe; 0 = nothing
	Lookup  time.Duration // node: a request looks up a name, and the nameserver takes so long for each; 0 = none does
	Threads int           // node: of libuv's pool; 0 = 4

	Held     time.Duration // another program holds that lock so long, again and again
	LogPause time.Duration // what reads its log takes it all at once, after so long
	Stopped  bool          // it gets a SIGSTOP once it serves
	Stops    time.Duration // … for so long, twice as long apart
	Gone     bool          // it does not run
	Quota    float64       // CPUs that it may use; 0 = no quota
	NoFile   uint64        // soft RLIMIT_NOFILE; 0 = the hard limit
	Tasks    int           // processes and threads; 0 = no limit
	CPUs     string        // that it may run on; empty = all
	Children int           // nginx: worker_connections; 0 = 1,024
}

// Chain is nothing but the hops.
const Chain Kind = 2000

// HopEnv names the variable that says which hop a process is part of, from 0.
const HopEnv = "LAB_HOP"

// HopRole is that of a hop in Go.
const HopRole = "hop"

// comm is what the kernel calls a program of that name (TASK_COMM_LEN, linux/sched.h).
func comm(name string) string { return name[:min(len(name), 15)] }

// Comm is the name that the kernel has for the hop's process.
func (h *Hop) Comm() string {
	interpreter := map[string]string{"java": "java", "node": "node", "python": "python3", "nginx": "nginx"}[h.Language]
	if h.Renamed || interpreter == "" {
		return comm(h.Name)
	}
	return interpreter
}

// hopAddr is where hop n listens, and what the one before it asks.
func (s *starter) hopAddr(n int) string {
	switch h := &s.v.Hops[n]; {
	case h.Far:
		return s.v.BackendAddr
	case h.Apart:
		return fmt.Sprintf("172.31.%d.2", n)
	case h.Loopback:
		return "127.0.0.1"
	}
	return s.v.ServerAddr
}

// innerPort is how far the port of servers with hops before them is from the one
// that clients talk to.
const innerPort = 4001

// hops starts the servers, and the hops before them.
func (s *starter) hops() error {
	if err := s.idlePool(); err != nil {
		return err
	}
	behind := ""
	if s.v.Kind != Chain {
		outer, tls := s.v.FrontPort, s.v.TLS
		s.v.FrontPort, s.v.TLS, s.inner = outer+innerPort, TLS{}, true
		behind = net.JoinHostPort(s.v.ServerAddr, strconv.Itoa(s.v.FrontPort))
		err := s.servers()
		s.v.FrontPort, s.v.TLS, s.accessLog = outer, tls, "" // what clients got is not what is logged there
		if err != nil {
			return err
		}
	}
	return s.chain(behind)
}

// chain starts the hops, the last one first. What is behind the last one listens
// at its address and port, unless there is nothing.
func (s *starter) chain(behind string) error {
	s.v.Hops = slices.Clone(s.v.Hops)
	s.v.Hops[0].Port = s.v.FrontPort
	for n := len(s.v.Hops) - 1; n >= 0; n-- {
		h := &s.v.Hops[n]
		if h.Port == 0 { // it was the first one, see UnderTLS
			h.Port = s.v.FrontPort + innerPort + n
		}
		switch {
		case !h.Gone:
			if err := s.hop(n, behind); err != nil {
				return fmt.Errorf("hop %d, %s: %w", n, h.Name, err)
			}
		case h.Apart: // its host is there
			if _, err := s.room(n); err != nil {
				return err
			}
		}
		behind = fmt.Sprintf("%s:%d", s.hopAddr(n), h.Port)
	}
	return nil
}

const roomScript = `set -e
if ! [ -e /run/netns/.lab ]; then
	mkdir -p /run/netns
	mount -t tmpfs lab /run/netns
	touch /run/netns/.lab
fi
ip netns add {{.Name}}
ip link add {{.Near}} type veth peer name eth0 netns {{.Name}}
ip addr add 172.31.{{.N}}.1/30 dev {{.Near}}
ip link set {{.Near}} up
ip -n {{.Name}} addr add 172.31.{{.N}}.2/30 dev eth0
ip -n {{.Name}} link set eth0 up
ip -n {{.Name}} link set lo up
ip -n {{.Name}} route add default via 172.31.{{.N}}.1
echo 1 > /proc/sys/net/ipv4/ip_forward
`

// room makes a network namespace for a hop and gives what runs a program in it.
func (s *starter) room(n int) ([]string, error) {
	h := &s.v.Hops[n]
	text := strings.NewReplacer("{{.Name}}", h.Name, "{{.N}}", strconv.Itoa(n), "{{.Near}}", fmt.Sprintf("to%d", n)).Replace(roomScript)
	if _, err := s.box.Server.Output(s.ctx, "sh", "-c", text); err != nil {
		return nil, err
	}
	return []string{"nsenter", "--net=/run/netns/" + h.Name}, nil
}

// boxGroups makes the control groups of a container, as an engine names them.
func (s *starter) boxGroups(name string) ([]string, error) {
	group, err := s.box.CgroupName(s.ctx)
	if err != nil {
		return nil, err
	}
	id := fmt.Sprintf("%x", sha256.Sum256([]byte(s.box.Dir+name)))
	var dirs []string
	for _, controller := range []string{"cpu", "memory", "pids"} {
		root := filepath.Join("/sys/fs/cgroup", controller)
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
			continue // version 2: a container without limits is as good
		}
		dir := filepath.Join(root, group, "docker", id)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}

// hopLimits gives the control groups that hop n starts in.
func (s *starter) hopLimits(n int) (groups []string, err error) {
	h := &s.v.Hops[n]
	if h.Boxed {
		if groups, err = s.boxGroups(h.Name); err != nil {
			return nil, err
		}
	}
	in := func(controller string) string {
		for _, g := range groups {
			if strings.HasPrefix(g, "/sys/fs/cgroup/"+controller+"/") {
				return g
			}
		}
		return ""
	}
	if h.Quota > 0 {
		if dir := in("cpu"); dir != "" {
			err = os.WriteFile(filepath.Join(dir, "cpu.cfs_quota_us"), []byte(strconv.Itoa(int(h.Quota*100_000))), 0)
		} else {
			dir, err = s.box.Cgroup(s.ctx, h.Quota)
			groups = append(groups, dir)
		}
		if err != nil {
			return nil, err
		}
	}
	if h.Tasks > 0 {
		if dir := in("pids"); dir != "" {
			return groups, os.WriteFile(filepath.Join(dir, "pids.max"), []byte(strconv.Itoa(h.Tasks)), 0)
		}
		more, err := s.box.Limited(s.ctx, sandbox.Limit{Controller: "pids", File1: "pids.max", Value1: strconv.Itoa(h.Tasks), File2: "pids.max", Value2: strconv.Itoa(h.Tasks)})
		return append(groups, more...), err
	}
	return groups, nil
}

func (s *starter) hop(n int, behind string) error {
	h := &s.v.Hops[n]
	args, env, err := s.hopCommand(n, behind)
	if err != nil {
		return err
	}
	env = append(env, fmt.Sprintf("%s=%d", HopEnv, n))
	if h.Boxed {
		args = append(slices.Clone(inBox), args...)
	}
	if h.CPUs != "" {
		args = append([]string{"taskset", "--cpu-list", h.CPUs}, args...)
	}
	var room []string
	if h.Apart {
		if room, err = s.room(n); err != nil {
			return err
		}
		args = append(room, args...)
	}
	groups, err := s.hopLimits(n)
	if err != nil {
		return err
	}
	if h.Lookup > 0 {
		if err := s.slowNames(h.Lookup); err != nil {
			return err
		}
	}
	out := filepath.Join(s.box.Dir, h.Name+".out")
	spec := sandbox.Spec{Args: args, Env: env, Stdout: out, Stderr: out, NoFile: h.NoFile, Cgroups: append(groups, s.limits...), Cgroup: s.cgroup}
	if h.Log > 0 {
		if err := s.logReader(&spec, "ship-"+h.Name, h.LogPause); err != nil {
			return err
		}
	}
	side := s.box.Server
	if h.Far {
		side = s.box.Backend
	}
	proc, err := side.Start(s.ctx, spec)
	if err != nil {
		return err
	}
	if h.Held > 0 {
		if err := s.alongside(s.box.Server, "stocktaking", alongsideSpec{Lock: s.ticket(n), Held: h.Held}); err != nil {
			return err
		}
	}
	wait := fmt.Sprintf("until grep -qE ':%04X 0+:0000 0A' /proc/self/net/tcp /proc/self/net/tcp6; do sleep 0.03; done", h.Port)
	if _, err := side.Output(s.ctx, append(room, "timeout", "15", "sh", "-c", wait)...); err != nil {
		said, _ := os.ReadFile(out)
		return fmt.Errorf("nothing listens on port %d: %.300s", h.Port, said)
	}
	if h.Apart && h.Unnamed {
		if _, err := s.box.Server.Output(s.ctx, "ip", "netns", "del", h.Name); err != nil {
			return err
		}
	}
	s.stops(h, proc)
	return nil
}

// stops stops the hop's process, for good or again and again.
func (s *starter) stops(h *Hop, proc *sandbox.Proc) {
	if !h.Stopped {
		return
	}
	// Of a container the process is a child of what made its namespaces.
	send := func(sig syscall.Signal) error {
		if !h.Boxed {
			return proc.Signal(s.ctx, sig)
		}
		_, err := s.box.Server.Output(s.ctx, "sh", "-c", fmt.Sprintf("kill -%d $(cat /proc/%d/task/*/children)", sig, proc.PID))
		return err
	}
	s.soon(func() error {
		for {
			if err := send(syscall.SIGSTOP); err != nil || h.Stops == 0 {
				return err
			}
			time.Sleep(h.Stops)
			if err := send(syscall.SIGCONT); err != nil || s.ctx.Err() != nil {
				return err
			}
			time.Sleep(2 * h.Stops)
		}
	})
}

func (s *starter) ticket(n int) string { return filepath.Join(s.box.Dir, fmt.Sprintf("ticket%d", n)) }

// hopCommand gives the command line of a hop, and writes what it needs.
func (s *starter) hopCommand(n int, behind string) (args, env []string, err error) {
	h := &s.v.Hops[n]
	if h.Language == "nginx" {
		return s.proxyHop(n, behind)
	}
	own := filepath.Join(s.box.Dir, h.Name)
	addr, port := s.hopAddr(n), strconv.Itoa(h.Port)
	options := h.options()
	if behind != "" {
		options = append(options, "--next", behind)
	}
	if h.Read {
		terms := filepath.Join(s.box.Dir, fmt.Sprintf("terms%d", n))
		if err := os.WriteFile(terms, make([]byte, 2000), 0o644); err != nil {
			return nil, nil, err
		}
		options = append(options, "--read", terms)
	}
	if h.Ticket {
		options = append(options, "--flock", s.ticket(n))
	}
	interpreter := func(path string) (string, error) {
		if !h.Renamed {
			return path, nil
		}
		if err := os.Symlink(path, own); err != nil && !os.IsExist(err) {
			return "", err
		}
		return own, nil
	}
	switch h.Language {
	case "go":
		if err := os.Symlink(s.exe, own); err != nil && !os.IsExist(err) {
			return nil, nil, err
		}
		spec := hopSpec{Hop: *h, Addr: addr, Next: behind, Options: options}
		if n+1 < len(s.v.Hops) {
			spec.NextRPC, spec.NextTLS = s.v.Hops[n+1].RPC, s.v.Hops[n+1].TLS
		}
		if h.RPC {
			var err error
			if spec.Pair, err = s.pairOf(n); err != nil {
				return nil, nil, err
			}
		}
		data, err := json.Marshal(&spec)
		return []string{own}, []string{sandbox.RoleEnv + "=" + HopRole, appEnv + "=" + string(data)}, err
	case "c":
		source, err := s.program("hop.c")
		if err != nil {
			return nil, nil, err
		}
		if _, err := s.box.Server.Output(s.ctx, "gcc", "-std=gnu11", "-O1", "-g", "-fno-omit-frame-pointer", "-pthread", "-o", own, source); err != nil {
			return nil, nil, err
		}
		args = []string{own}
	case "java":
		source, err := s.program("Hop.java")
		if err != nil {
			return nil, nil, err
		}
		if _, err := s.box.Server.Output(s.ctx, "javac", "-d", s.box.Dir, source); err != nil {
			return nil, nil, err
		}
		java, err := interpreter("/usr/bin/java")
		if err != nil {
			return nil, nil, err
		}
		args = []string{java, "-Xmx128m", "-XX:+UseG1GC", "-cp", s.box.Dir, "Hop"}
	case "node":
		if _, err := s.program("hop.js"); err != nil {
			return nil, nil, err
		}
		node, err := interpreter("/usr/bin/node")
		if err != nil {
			return nil, nil, err
		}
		args = []string{node, filepath.Join(s.box.Dir, "hop.js")}
		if h.Lookup > 0 {
			options = append(options, "--lookup", quoteName)
		}
		if h.Threads > 0 {
			env = []string{fmt.Sprintf("UV_THREADPOOL_SIZE=%d", h.Threads)}
		}
	case "python":
		source, err := s.program("hop.py")
		if err != nil {
			return nil, nil, err
		}
		path := filepath.Join(s.box.Dir, h.Name+".py")
		if err := os.Rename(source, path); err != nil {
			return nil, nil, err
		}
		interpreter, err := interpreter(python)
		if err != nil {
			return nil, nil, err
		}
		args = []string{interpreter, path}
	default:
		return nil, nil, fmt.Errorf("no language %q", h.Language)
	}
	return append(append(args, addr, port), options...), env, nil
}

// options are what the hop does, as its program takes it.
func (h *Hop) options() []string {
	var list []string
	for _, o := range []struct {
		name  string
		value int64
	}{
		{"--sleep-us", h.Sleep.Microseconds()}, {"--lock-us", h.Lock.Microseconds()}, {"--spin-us", h.Spin.Microseconds()}, {"--every", int64(h.Every)},
		{"--workers", int64(h.Workers)}, {"--backlog", int64(h.Backlog)}, {"--timeout-ms", h.Timeout.Milliseconds()}, {"--log", int64(h.Log)},
	} {
		if o.value != 0 {
			list = append(list, o.name, strconv.FormatInt(o.value, 10))
		}
	}
	return list
}

// logReader makes the program's standard output a pipe that another one reads.
func (s *starter) logReader(spec *sandbox.Spec, name string, pause time.Duration) error {
	fifo := filepath.Join(s.box.Dir, name+".pipe")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		return fmt.Errorf("pipe: %w", err)
	}
	shipper, env, err := s.own(name, alongsideSpec{LogPause: pause})
	if err != nil {
		return err
	}
	// The shell waits until the program opens the other end.
	_, err = s.box.Server.Start(s.ctx, sandbox.Spec{Args: []string{"sh", "-c", "exec " + shipper + " <" + fifo}, Env: env})
	spec.Stdout = fifo
	return err
}

// idlePool starts a program whose workers have nothing to do.
func (s *starter) idlePool() error {
	if s.v.IdlePool == 0 {
		return nil
	}
	source, err := s.program("hop.py")
	if err != nil {
		return err
	}
	args := []string{python, source, "127.0.0.1", "9999", "--workers", strconv.Itoa(s.v.IdlePool)}
	_, err = s.box.Server.Start(s.ctx, sandbox.Spec{Args: args, Stdout: filepath.Join(s.box.Dir, "pool.out"), Stderr: filepath.Join(s.box.Dir, "pool.out")})
	return err
}
