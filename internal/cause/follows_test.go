package cause

import (
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// twoServices is nginx before php-fpm, and a shop of its own next to them on the
// same host and in the same network namespace.
func twoServices() *observe.Observation {
	const ns = 7
	states := func(disk int) *observe.ThreadStates { return &observe.ThreadStates{Samples: 100, Disk: disk} }
	return &observe.Observation{
		Window: observe.Window{Seconds: 10},
		Namespaces: []observe.NetNS{{Inode: ns, PID: 1, Addrs: []string{"10.0.0.1"}, Listeners: []observe.Listener{
			{Proto: "tcp", Addr: "0.0.0.0", Port: 80, PID: 10, PIDs: []int{10, 11}, Comm: "nginx", Opened: 40},
			{Proto: "tcp", Addr: "127.0.0.1", Port: 9000, PID: 20, PIDs: []int{20, 21}, Comm: "php-fpm", Opened: 40},
			{Proto: "tcp", Addr: "0.0.0.0", Port: 8080, PID: 30, PIDs: []int{30}, Comm: "shop", Opened: 40}}}},
		Processes: []observe.Process{
			{PID: 10, PPID: 1, Comm: "nginx", States: states(0)}, {PID: 11, PPID: 10, Comm: "nginx", UserSeconds: 1, RunDelaySeconds: 3},
			{PID: 20, PPID: 1, Comm: "php-fpm"}, {PID: 21, PPID: 20, Comm: "php-fpm", UserSeconds: 1, States: states(40)},
			{PID: 30, PPID: 1, Comm: "shop", UserSeconds: 1, RunDelaySeconds: 0.01, States: states(0)}},
		Connects: []observe.Connect{{PID: 11, NetNS: ns, Family: "inet", Addr: "127.0.0.1", Port: 9000, Calls: 40, Started: 40}},
		Cgroups:  []observe.Cgroup{{Path: "/php", PIDs: []int{20, 21}, QuotaCPUs: 0.1}, {Path: "/gone"}},
	}
}

// A nameserver that is asked over UDP is on the way of who asks it.
func TestNameServerOnTheWay(t *testing.T) {
	o := healthy()
	inTurn(quiet(fpmServed().add(60, ms/10, ms/20, 0, quick)), lookups(deafFirst(60)))(o)
	o.Namespaces = append(o.Namespaces, observe.NetNS{Inode: 7, PID: hog, Addrs: []string{deafServer},
		UDP: []observe.UDPSocket{{Addr: deafServer, Port: 53, PID: hog}, {Addr: deafServer, Port: 123, PID: hog + 1}}})
	if w := NewView(o).wayOf(fpmMaster); !w.has(hog) || w.has(hog+1) {
		t.Errorf("nameserver %v, clock %v", w.has(hog), w.has(hog+1))
	}
	o.DNS = nil
	if NewView(o).wayOf(fpmMaster).has(hog) {
		t.Error("on the way of a service that looks up nothing")
	}
}

func TestMeasuredReasons(t *testing.T) {
	v := NewView(twoServices())
	nginx := &Finding{Cause: "nginx-upstream-errors", Subject: Subject{Kind: "process", PID: 10, NetNS: 7}}
	php := &Finding{Cause: "accept-queue-wait", Subject: Subject{Kind: "listener", PID: 20, NetNS: 7, Port: 9000}}
	shop := &Finding{Cause: "application-stall-mid-response", Subject: Subject{Kind: "listener", PID: 30, NetNS: 7, Port: 8080}}
	for _, c := range []struct {
		name   string
		parent Finding
		of     map[*Finding]bool
	}{
		{"a quota of php-fpm's group", Finding{Cause: "cpu-quota-throttled", Subject: Subject{Kind: "cgroup", Path: "/php", PID: 20}},
			map[*Finding]bool{nginx: true, php: true, shop: false}},
		{"a group whose processes are not known", Finding{Cause: "cpu-quota-throttled", Subject: Subject{Kind: "cgroup", Path: "/gone"}},
			map[*Finding]bool{nginx: true, shop: true}},
		{"full CPUs, that only nginx waits for", Finding{Cause: "cpu-saturated", Subject: Subject{Kind: "process", PID: 99}},
			map[*Finding]bool{nginx: true, php: true, shop: false}},
		{"a disk that only php-fpm is blocked on", Finding{Cause: "disk-saturated", Subject: Subject{Kind: "disk"}},
			map[*Finding]bool{nginx: true, php: true, shop: false}},
		{"no descriptor left for php-fpm", Finding{Cause: "fd-limit", Subject: Subject{Kind: "process", PID: 20, NetNS: 7}},
			map[*Finding]bool{nginx: true, shop: false}},
		{"a full table of the namespace", Finding{Cause: "conntrack-full", Subject: Subject{Kind: "namespace", PID: 10, NetNS: 7}},
			map[*Finding]bool{nginx: true, shop: true}},
		{"a flood", Finding{Cause: "softirq-saturated", Subject: Subject{Kind: "namespace", PID: 9, NetNS: 7}},
			map[*Finding]bool{nginx: true, shop: true}},
	} {
		for _, declared := range Catalogue() {
			if declared.ID == c.parent.Cause {
				c.parent.class = declared.Class
			}
		}
		for f, want := range c.of {
			if got := v.Reasons(f)(&c.parent); got != want {
				t.Errorf("%s may bring about %s of pid %d: %v, want %v", c.name, f.Cause, f.Subject.PID, got, want)
			}
		}
	}
}

// What was not measured rules nothing out.
func TestUnmeasuredReasons(t *testing.T) {
	o := twoServices()
	o.Connects = nil
	for i := range o.Processes {
		p := &o.Processes[i]
		p.States, p.RunDelaySeconds, p.UserSeconds = nil, 0, 0
	}
	v := NewView(o)
	shop := &Finding{Cause: "accept-queue-wait", Subject: Subject{Kind: "listener", PID: 30, NetNS: 7}}
	for _, p := range []Finding{
		{Cause: "cpu-saturated", Subject: Subject{Kind: "process", PID: 99}},
		{Cause: "disk-saturated", Subject: Subject{Kind: "disk"}},
		{Cause: "fd-limit", Subject: Subject{Kind: "process", PID: 20, NetNS: 7}},
	} {
		if !v.Reasons(shop)(&p) {
			t.Errorf("%s is ruled out by nothing", p.Cause)
		}
	}
}
