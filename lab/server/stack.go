package server

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/lab/sandbox"
)

// conntrackMax is the one host-wide setting the lab changes.
const conntrackMax = "/proc/sys/net/netfilter/nf_conntrack_max"

// HostWide is the setting of the whole host that the servers run with, and its value; empty
// where there is none but what a healthy host has.
func (s *Setup) HostWide() (name, value string) {
	if file := s.Around.HostFile; file != "" {
		return strings.ReplaceAll(file, "/", "."), s.Around.HostValue
	}
	if s.ConntrackMax > 0 && s.ConntrackMax < Healthy(s.Kind).ConntrackMax {
		return "net.netfilter.nf_conntrack_max", strconv.Itoa(s.ConntrackMax)
	}
	return "", ""
}

// Stack is a running set of servers.
type Stack struct {
	Setup
	Plan
	// AccessLog is nginx's log of what it answered to clients; empty if there
	// is no nginx in front.
	AccessLog string
}

// Behind says what is behind the server that clients talk to, and where.
func (s *Stack) Behind() []string {
	here, there := fmt.Sprintf("port %d", s.BackPort), fmt.Sprintf("%s, port ", s.BackendAddr)
	switch s.Kind {
	case NginxFPM, NginxGunicorn:
		if s.Workers.Database {
			return []string{here, there + strconv.Itoa(s.BackPort)}
		}
		return []string{here}
	case NginxNginx, NginxNative, NginxPython, HAProxyWeb, DockerTomcat:
		return []string{here}
	case WebBackend, WebDatabase, WebRedis, WebPostgres, WebMemcached:
		return []string{there + strconv.Itoa(s.BackPort)}
	case NativeMail:
		return []string{there + strconv.Itoa(mailPort) + " (mail)"}
	case Docker:
		return []string{here, there + strconv.Itoa(collectorPort) + " (log collector)"}
	default:
		return nil
	}
}

// Start applies the settings and starts the servers in the sandbox. exe is an
// executable that calls [Main] under the roles of this package.
func Start(ctx context.Context, box *sandbox.Box, exe string, setup Setup, plan Plan) (*Stack, error) {
	s := &starter{ctx: ctx, box: box, exe: exe, v: values{Setup: setup, Plan: plan, Dir: box.Dir, User: unprivileged()}}
	s.v.Start = max(1, setup.Children*4/5)
	s.v.ProxyAddr = plan.ServerAddr
	if setup.ProxyLoopback {
		s.v.ProxyAddr = "127.0.0.1"
	}
	for _, step := range []func() error{s.kernel, s.clients, s.track, s.group, s.before, s.servers, s.packets, s.around, s.burners, s.storm, s.exports, s.flood, s.chores} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("servers: %w", err)
		}
	}
	return &Stack{Setup: setup, Plan: plan, AccessLog: s.accessLog}, nil
}

type starter struct {
	ctx       context.Context
	box       *sandbox.Box
	exe       string
	v         values
	cgroup    string
	limits    []string // directories of further control groups
	accessLog string
	inner     bool // the servers behind the hops are being started
}

// kernel sets what belongs to the server's network namespace.
func (s *starter) kernel() error {
	ports := "10000 65535"
	if s.v.PortRange > 0 {
		ports = fmt.Sprintf("%d %d", s.v.RangeBase, s.v.RangeBase+s.v.PortRange-1)
	}
	settings := map[string]string{
		"net.core.somaxconn":           strconv.Itoa(s.v.Somaxconn),
		"net.ipv4.tcp_tw_reuse":        s.v.TWReuse,
		"net.ipv4.ip_local_port_range": ports,
	}
	if s.v.TWBuckets > 0 {
		settings["net.ipv4.tcp_max_tw_buckets"] = strconv.Itoa(s.v.TWBuckets)
	}
	if s.v.FinTimeout > 0 {
		settings["net.ipv4.tcp_fin_timeout"] = strconv.Itoa(s.v.FinTimeout)
	}
	s.v.Transport.settings(settings)
	for key, value := range settings {
		if err := s.box.Server.Set(s.ctx, key, value); err != nil {
			return err
		}
	}
	return nil
}

// clients gives the clients their further addresses. They stand for many
// machines, each with ports of its own.
func (s *starter) clients() error {
	if err := s.box.Client.Set(s.ctx, "net.ipv4.tcp_tw_reuse", "1"); err != nil {
		return err
	}
	if s.v.ClientAddrs == 0 {
		return nil
	}
	for n := range s.v.ClientAddrs {
		if _, err := s.box.Client.Output(s.ctx, "ip", "addr", "add", fmt.Sprintf("%s%d/32", ClientNet, n+1), "dev", "eth0"); err != nil {
			return err
		}
	}
	_, err := s.box.Server.Output(s.ctx, "ip", "route", "add", ClientNet+"0/24", "dev", "eth0")
	return err
}

const trackRules = `table inet lab {
	chain input {
		type filter hook input priority 0
		ct state invalid counter
	}
}
`

// track loads a rule that needs connection tracking and sets its limit. A
// limit at or above the wanted healthy one is left alone.
func (s *starter) track() error {
	healthy := Healthy(s.v.Kind).ConntrackMax
	if s.v.Track {
		path, err := s.v.write("firewall.nft", trackRules)
		if err != nil {
			return err
		}
		if _, err := s.box.Server.Output(s.ctx, "nft", "-f", path); err != nil {
			return err
		}
	} else if s.v.ConntrackMax >= healthy { // else a router tracks
		return nil
	}
	now, err := readInt(conntrackMax)
	if err != nil {
		return err
	}
	if now == s.v.ConntrackMax || s.v.ConntrackMax >= healthy && now >= healthy {
		return nil
	}
	if s.v.ConntrackMax < now {
		// The limit is compared with each network namespace's own count.
		used, err := readInt("/proc/sys/net/netfilter/nf_conntrack_count")
		if err == nil && used > s.v.ConntrackMax/2 {
			return fmt.Errorf("nf_conntrack_max %d: this host itself tracks %d connections", s.v.ConntrackMax, used)
		}
	}
	return s.box.SetHost(s.ctx, conntrackMax, strconv.Itoa(s.v.ConntrackMax))
}

func readInt(path string) (int, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	var n int
	_, err = fmt.Sscan(string(data), &n)
	return n, err
}

func (s *starter) group() (err error) {
	if s.v.QuotaCPUs > 0 {
		if s.cgroup, err = s.box.Cgroup(s.ctx, s.v.QuotaCPUs); err != nil {
			return err
		}
	}
	if s.v.SwapMB > 0 {
		if err = s.box.Swap(s.ctx, s.v.SwapMB); err != nil {
			return err
		}
	}
	var limits []sandbox.Limit
	if n := s.v.CPUWeight; n > 0 {
		limits = append(limits, sandbox.Limit{Controller: "cpu", File1: "cpu.shares", Value1: strconv.Itoa(n * 1024 / 100), File2: "cpu.weight", Value2: strconv.Itoa(n)})
	}
	if n := s.v.MemoryMB; n > 0 {
		limits = append(limits, sandbox.Limit{Controller: "memory", File1: "memory.limit_in_bytes", Value1: fmt.Sprintf("%dM", n), File2: "memory.max", Value2: fmt.Sprintf("%dM", n)})
	}
	if n := s.v.Tasks; n > 0 {
		limits = append(limits, sandbox.Limit{Controller: "pids", File1: "pids.max", Value1: strconv.Itoa(n), File2: "pids.max", Value2: strconv.Itoa(n)})
	}
	if s.limits, err = s.box.Limited(s.ctx, limits...); err != nil || s.v.ReadMB == 0 {
		return err
	}
	dir, err := s.box.SlowReads(s.ctx, s.v.ReadMB<<20)
	s.limits = append(s.limits, dir)
	return err
}

func (s *starter) servers() error {
	if len(s.v.Hops) > 0 && !s.inner {
		return s.hops()
	}
	switch s.v.Kind {
	case NginxFPM:
		return s.nginxFPM()
	case NginxNginx:
		return s.nginxNginx()
	case Web:
		return s.web(nil)
	case WebBackend:
		return s.webBackend()
	case WebDatabase:
		return s.webDatabase()
	case WebRedis:
		return s.webRedis()
	case WebPostgres:
		return s.webPostgres()
	case WebMemcached:
		return s.webMemcached()
	case NativeApp, NativeMail:
		return s.native(s.v.ServerAddr, s.v.FrontPort)
	case NginxNative:
		return s.nginxNative()
	case DeskApp:
		return s.desk()
	case NginxPython:
		return s.nginxPython()
	case GoApp:
		return s.golang()
	case JavaApp:
		return s.java()
	case PythonApp:
		return s.python(s.v.ServerAddr, s.v.FrontPort)
	case ErrandApp:
		return s.errand()
	case Quoting:
		return s.quotes()
	case Docker:
		return s.docker()
	case DockerTomcat:
		return s.dockerTomcat()
	case Apache:
		return s.apache()
	case UWSGI:
		return s.uwsgi()
	case NginxGunicorn:
		return s.nginxGunicorn()
	case HAProxyWeb:
		return s.haproxyWeb()
	case Tomcat:
		return s.tomcat()
	default:
		return s.app()
	}
}

func (s *starter) nginxFPM() error {
	if s.v.Transport.BackDown {
		return s.front()
	}
	fpm, err := findFPM()
	if err != nil {
		return err
	}
	if err := s.page(); err != nil {
		return err
	}
	if _, err := s.v.write("www/index.php", page); err != nil {
		return err
	}
	if err := s.v.includes(); err != nil {
		return err
	}
	conf, err := s.v.write("php-fpm.conf", fpmConf)
	if err != nil {
		return err
	}
	if err := s.runBoxed(s.v.BackPort, "php-fpm", append([]string{fpm, "--nodaemonize", "--fpm-config", conf}, s.v.opcache()...)...); err != nil {
		return err
	}
	return s.front()
}

func (s *starter) nginxNginx() error {
	conf, err := s.v.write("backend.conf", backendConf)
	if err != nil {
		return err
	}
	if err := s.run(s.v.BackPort, "backend", "nginx", "-c", conf); err != nil {
		return err
	}
	return s.front()
}

func (s *starter) front() error {
	if _, err := s.tlsFile(); err != nil {
		return err
	}
	conf, err := s.v.write("nginx.conf", nginxConf)
	if err != nil {
		return err
	}
	s.accessLog = filepath.Join(s.box.Dir, "nginx-access.log")
	return s.run(s.v.FrontPort, "nginx", "nginx", "-c", conf)
}

// run starts a server and waits until it listens.
func (s *starter) run(port int, name string, args ...string) error {
	return s.runAt(s.box.Server, port, name, args...)
}

func (s *starter) runAt(side *sandbox.Side, port int, name string, args ...string) error {
	return s.runIn(nil, side, port, name, args...)
}

// inBox are the namespaces of a container.
var inBox = []string{"unshare", "--mount", "--pid", "--uts", "--ipc", "--fork", "--mount-proc", "--kill-child"}

// runBoxed is run, in a container where Workers.Boxed says so.
func (s *starter) runBoxed(port int, name string, args ...string) error {
	if !s.v.Workers.Boxed {
		return s.run(port, name, args...)
	}
	groups, err := s.boxGroups(name)
	if err != nil {
		return err
	}
	return s.runIn(groups, s.box.Server, port, name, append(slices.Clone(inBox), args...)...)
}

func (s *starter) runIn(groups []string, side *sandbox.Side, port int, name string, args ...string) error {
	if err := os.MkdirAll(filepath.Join(s.box.Dir, "tmp"), 0o755); err != nil {
		return err
	}
	out := filepath.Join(s.box.Dir, name+".out")
	if s.v.Renamed {
		var err error
		if args, err = s.renamed(args); err != nil {
			return err
		}
	}
	if s.v.CPUs != "" {
		args = append([]string{"taskset", "--cpu-list", s.v.CPUs}, args...)
	}
	_, err := side.Start(s.ctx, sandbox.Spec{
		Args: args, Stdout: out, Stderr: out, NoFile: s.v.NoFile, Cgroup: s.cgroup, Cgroups: append(groups, s.limits...),
	})
	if err != nil {
		return err
	}
	if err := side.Listening(s.ctx, port); err != nil {
		said, _ := os.ReadFile(out)
		return fmt.Errorf("%s: %w: %.300s", name, err, said)
	}
	return nil
}

// renamed has a program run from a copy under another name.
func (s *starter) renamed(args []string) ([]string, error) {
	at := 0
	if args[0] == "setpriv" {
		at = slices.IndexFunc(args[1:], func(a string) bool { return !strings.HasPrefix(a, "-") }) + 1
	}
	path, err := exec.LookPath(args[at])
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	args = slices.Clone(args)
	args[at] = filepath.Join(s.box.Dir, fmt.Sprintf("ledger-core%d", len(program)%100))
	return args, os.WriteFile(args[at], program, 0o755)
}
