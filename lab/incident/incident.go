package incident

import (
	"fmt"
	"slices"
	"time"

	"github.com/slowray/slowray/internal/commandline"
	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/server"
)

// Fault is one thing that can be injected in a healthy setup. To remove it is
// to start the servers without it.
type Fault struct {
	Name   string
	Cause  string // ID in slowray's catalogue
	Text   string // what is injected, for people
	Inject func(*server.Setup)
	Loads  func(*load.Load) // what is injected in the clients; nil if nothing

	// Or is other causes by which it may be named too: what a loss costs is
	// also what waiting for the timer costs.
	Or []string

	// Alongside is causes that are as true, and may be named after it: what floods a
	// service from this host takes a CPU too.
	Alongside []string

	// AtClients says that only the clients' end can see it: a finding in their
	// network namespace is right.
	AtClients bool

	// Decoy is a setting that looks guilty and is not. It is never to be a
	// finding, and slowray has to say why: RuledOut is a part of that entry.
	Decoy    bool
	RuledOut string

	// Says is a word that the finding is to use somewhere, where a cause has
	// several limits of which one binds.
	Says string
}

// Incident is one scenario.
type Incident struct {
	Name    string
	Summary string
	Setup   func() server.Setup // healthy
	Faults  []Fault             // in the order in which they are fixed
	Stepped bool                // fix one after the other, and look after each
	Control bool                // whatever is injected is harmless: no finding at all is right
	Load    load.Load
	Phases  []Phase // states of the network to go through, instead of faults

	Lead      time.Duration // load before a window begins, for its state to build up; default 2 s when watched, 1.5 s when measured
	EndInside bool          // the load ends inside the window
	Quick     bool          // it is what it is at once: looking and measuring for half as long is enough
	Light     bool          // it needs hardly any CPU, with its fault and without: both may run at the same time
	Doubled   bool          // it is another one, under TLS
	Unsteady  string        // why make test does not judge it: it is not what it is each time
	Gain      float64       // good answers with all faults fixed are at least so many times those with all injected; 0 = not said
}

// Causes is the expected causes, without those of decoys.
func (i Incident) Causes() []string {
	var ids []string
	if i.Control {
		return nil
	}
	for _, f := range i.Faults {
		if !f.Decoy && !slices.Contains(ids, f.Cause) {
			ids = append(ids, f.Cause)
		}
	}
	return ids
}

// Needs is the Debian packages that the incident's programs come from.
func (i Incident) Needs() []string {
	needs := []string{"iproute2"}
	setup := i.Injected(i.Faults)
	if setup.Kind.HasNginx() {
		needs = append(needs, "nginx")
	}
	needs = append(needs, map[server.Kind][]string{
		server.NginxFPM: {"php-fpm"}, server.WebDatabase: {"mariadb-server"}, server.WebRedis: {"redis-server"},
		server.WebPostgres: {"postgresql"}, server.WebMemcached: {"memcached"},
		server.NativeApp: {"gcc"}, server.NativeMail: {"gcc"}, server.NginxNative: {"gcc"},
		server.DeskApp: {"gcc", "e2fsprogs"}, server.NginxPython: {"python3"}, server.Quoting: {"python3", "dnsmasq-base"}, server.Docker: {"python3", "docker.io"},
		server.Apache: {"apache2-bin", "lua-socket"}, server.UWSGI: {"uwsgi-core", "uwsgi-plugin-python3"}, server.NginxGunicorn: {"python3", "gunicorn"},
		server.HAProxyWeb: {"haproxy"}, server.Tomcat: {"python3", "tomcat10-common"}, server.DockerTomcat: {"docker.io", "tomcat10-common"},
		server.JavaApp: {"openjdk-17-jdk-headless"}, server.PythonApp: {"python3"}, server.ErrandApp: {"python3", "e2fsprogs"},
	}[setup.Kind]...)
	for _, h := range setup.Hops {
		needs = append(needs, map[string]string{"c": "gcc", "java": "openjdk-17-jdk-headless", "nginx": "nginx", "node": "nodejs", "python": "python3"}[h.Language])
	}
	needs = slices.DeleteFunc(needs, func(p string) bool { return p == "" }) // Go is the lab's own
	if setup.Workers.Database {
		needs = append(needs, "mariadb-server", map[server.Kind]string{server.NginxFPM: "php-mysql"}[setup.Kind])
		if needs[len(needs)-1] == "" {
			needs[len(needs)-1] = "python3-pymysql"
		}
	}
	if setup.Workers.Asks {
		needs = append(needs, "python3")
	}
	if setup.Pod.Deployment != "" {
		needs = append(needs, "curl")
	}
	if setup.Pod.Claim.Name != "" {
		needs = append(needs, "bindfs")
	}
	if setup.Desk.Traced || setup.Desk.Aside {
		needs = append(needs, "strace")
	}
	if setup.Native.Prices && !setup.Prices.Own || setup.Prices.Other {
		needs = append(needs, "bindfs")
	}
	if setup.Prices.Own {
		needs = append(needs, "python3")
	}
	if setup.Flood || setup.Transport.HalfOpen > 0 {
		needs = append(needs, "hping3")
	}
	if setup.Exports > 0 {
		needs = append(needs, "e2fsprogs")
	}
	if setup.Track || setup.MailDropped {
		needs = append(needs, "nftables")
	}
	needs = append(needs, setup.Packets.Needs()...)
	if l := i.LoadWith(i.Faults); !l.None() && l.UsesWrk() {
		needs = append(needs, "wrk")
	}
	return needs
}

// Injected is the setup with these faults in it.
func (i Incident) Injected(faults []Fault) server.Setup {
	s := i.Setup()
	for _, f := range faults {
		if f.Inject != nil {
			f.Inject(&s)
		}
	}
	return s
}

// LoadWith is the load with these faults in it.
func (i Incident) LoadWith(faults []Fault) load.Load {
	l := i.Load
	for _, f := range faults {
		if f.Loads != nil {
			f.Loads(&l)
		}
	}
	return l
}

// All is every incident: the whole one first, then faults alone, then controls.
func All() []Incident {
	list := slices.Concat([]Incident{nginxThroughput(), tcprtSixPhases()}, databases(), databaseControls(), conntrack(), phpFPM(), acceptQueue(), ports(), limits(), cpu(),
		network(), application(), dependencies(), serverWaits(), serverCPU(), hotFunctions(), runtimes(), outages(), sleepers(), threadPools(), background(), workersInLock(), bursts(), doings(), doingControls(), transport(), names(), transportControls(), controls(), networkControls(), serverControls(), runtimeControls(), threadPoolControls(), workersInLockControls(), burstControls(),
		blackHoles(), blackHoleControls(), routers(), routerControls(), tracking(), trackingControls(),
		hostLacks(), hostWaits(), hostControls(), userSpace(), mapLocks(), shortOfMemory(), kernelControls(),
		webServers(), webServerControls(),
		computing(), computingControls(), pods(), grpcs(), grpcControls())
	return append(list, doubled(list)...)
}

// Find gives the incident of that name. Each is there under TLS, too, whose name ends in
// "-tls".
func Find(name string) (Incident, error) {
	var names []string
	for _, i := range slices.Concat(All(), Healthy()) {
		switch name {
		case i.Name:
			return i, nil
		case i.Name + tlsSuffix:
			return i.underTLS(), nil
		}
		names = append(names, i.Name)
	}
	return Incident{}, fmt.Errorf("incident %q: not known%s (slowray lab list shows them)", name, commandline.DidYouMean(name, names))
}

// nginxFPM is a healthy nginx in front of a healthy php-fpm whose page waits a
// little, as for a query.
func nginxFPM(sleep time.Duration) func() server.Setup {
	return func() server.Setup {
		s := server.Healthy(server.NginxFPM)
		s.Sleep = sleep
		return s
	}
}

// tracked is a setup with a firewall that tracks connections.
func tracked(setup func() server.Setup) func() server.Setup {
	return func() server.Setup {
		s := setup()
		s.Track = true
		return s
	}
}
