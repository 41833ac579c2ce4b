package incident

import (
	"fmt"
	"strings"
	"time"

	"github.com/slowray/slowray/lab/drop"
	"github.com/slowray/slowray/lab/link"
	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/server"
)

// errand is a healthy service in Python of which a request is these lines.
func errand(code string) func() server.Setup {
	return func() server.Setup {
		s := server.Healthy(server.ErrandApp)
		s.Errand.Code = code
		return s
	}
}

// errandLoad leaves the service's interpreter with little to do.
var errandLoad = load.Load{Conns: 10, Think: 20 * time.Millisecond}

// errands is an incident with one fault, in a service of such requests.
func errands(name, cause, summary, text, code string, inject func(*server.Setup)) Incident {
	return Incident{
		Name: name, Summary: summary, Setup: errand(code), Load: errandLoad, Quick: true,
		Faults: []Fault{{Name: "fault", Cause: cause, Text: text, Inject: inject}},
	}
}

// faulty has other lines define what a request is, or what is done first.
func faulty(code string) func(*server.Setup) { return func(s *server.Setup) { s.Errand.Fault = code } }

// next to has commands run next to the service.
func alongside(commands string) func(*server.Setup) {
	return func(s *server.Setup) { s.Around.Alongside = commands }
}

// hostSetting changes a setting of the whole host.
func hostSetting(file, value string) func(*server.Setup) {
	return func(s *server.Setup) { s.Around.HostFile, s.Around.HostValue = file, value }
}

// on is a setup with something changed in it, which is no fault.
func on(setup func() server.Setup, change func(*server.Setup)) func() server.Setup {
	return func() server.Setup {
		s := setup()
		change(&s)
		return s
	}
}

// with is an incident with its healthy setup changed.
func (i Incident) with(change func(*server.Setup)) Incident {
	i.Setup = on(i.Setup, change)
	return i
}

// in is an incident in another healthy setup.
func (i Incident) in(setup func() server.Setup) Incident {
	i.Setup = setup
	return i
}

func (i Incident) under(l load.Load) Incident {
	i.Load = l
	return i
}

// next to names causes that are as true of its fault.
func (i Incident) alongside(causes ...string) Incident {
	i.Faults[0].Alongside = append(i.Faults[0].Alongside, causes...)
	return i
}

// A file system of the sandbox's own in memory, by way of a loop device.
const loopDisk = `mkdir -p mem disk
mount -t tmpfs -o size=400m mem mem
truncate -s 300M mem/image
mkfs.ext4 -q -m 0 mem/image
mount -o loop mem/image disk
`

// Lines of requests.
const (
	askAIO = `
def request(n):
    ring = ctypes.c_ulong(0)
    check(libc.syscall(206, 16, ctypes.byref(ring)))  # io_setup
    check(libc.syscall(207, ring))  # io_destroy
`
	takeAIO = `exec /usr/bin/python3 -c '
import ctypes, time
libc = ctypes.CDLL(None)
for size in (4096, 256, 1):
    while libc.syscall(206, size, ctypes.byref(ctypes.c_ulong(0))) == 0:
        pass
time.sleep(600)'
`
	openFile = `
uid = 64321

def request(n):
    with open("/etc/hostname") as f:
        f.read()
`
	oneFileEach = `
os.makedirs(DIR + "/disk", exist_ok=True)
piece = b"x" * (1 << 20)
own = threading.local()

def file(n):
    return DIR + "/disk/bookings-%d" % (n % 16)

def request(n):
    if not hasattr(own, "file"):
        own.file = os.open(file(n), os.O_WRONLY | os.O_CREAT, 0o644)
    for part in range(4):
        os.pwrite(own.file, piece, part << 20)
`
	connectUnix = `
def request(n):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(DIR + "/prices.socket")
        s.recv(100)
`
	// A program that takes one connection after the other, and so long for each.
	pricesAtUnix = `rm -f prices.socket
exec /usr/bin/python3 -c '
import socket, sys, time
s = socket.socket(socket.AF_UNIX)
s.bind("prices.socket")
s.listen(100)
while True:
    c, _ = s.accept()
    time.sleep(%s)
    c.sendall(b"LHR 120")
    c.close()'
`
	frozenDisk = `while sleep 0.5; do
	fsfreeze -f disk; sleep 1.5; fsfreeze -u disk
done`
	storeBooking = `
def request(n):
    name = DIR + "/disk/booking-%d" % n
    with open(name, "wb") as f:
        f.write(b"x" * 4096)
    os.unlink(name)
`
	oneFileForAll = `
def file(n):
    return DIR + "/disk/bookings"
`
	leaks = `
kept = []

def request(n):
    kept.append(b"x" * (160 << 10))
`
	keepsNothing = `
def request(n):
    b"x" * (160 << 10)
`
	lookUpUser = `
def request(n):
    try:
        pwd.getpwuid(100000 + random.randrange(1000))
    except KeyError:
        pass
`
	// The daemon of the C library's own protocol: it knows nobody, and says so late.
	nameDaemon = `mount -t tmpfs run /run
mkdir /run/nscd
cat >nscd.py <<'EOF'
import socket, struct, sys, threading, time
def answer(conn):
    with conn:
        version, kind, size = struct.unpack("3i", conn.recv(12))
        conn.recv(size)
        if kind == 1: # by number
            time.sleep(float(sys.argv[1]))
            conn.sendall(struct.pack("9i", 2, *[0] * 8))
s = socket.socket(socket.AF_UNIX)
s.bind("/run/nscd/socket")
s.listen(128)
while True:
    threading.Thread(target=answer, args=(s.accept()[0],)).start()
EOF
`
)

// Calls to many destinations, each of which is asked hardly more than once.
const (
	manyDestinations = `
def answers():
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("0.0.0.0", 9177))
    listener.listen(1024)
    while True:
        conn, _ = listener.accept()
        threading.Thread(target=answer, args=(conn,), daemon=True).start()

def answer(conn):
    with conn:
        while conn.recv(64):
            conn.sendall(b"in stock\n")

def begin():
    threading.Thread(target=answers, daemon=True).start()

def destination():
    return "10.77.%d.%d" % (random.randrange(256), random.randrange(1, 255))

def own(s):
    pass

def request(n):
    with socket.socket() as s:
        own(s)
        s.settimeout(1.5)
        s.connect((destination(), 9177))
        s.sendall(b"shop 17?\n")
        s.recv(64)
`
	manyLocal = "ip route add local 10.77.0.0/16 dev lo"
	// The mask of a device is too wide: nobody answers for these addresses there.
	tooWide = `
def destination():
    if random.random() < 0.2:
        return "10.78.%d.%d" % (random.randrange(2), random.randrange(1, 255))
    return "10.77.%d.%d" % (random.randrange(256), random.randrange(1, 255))
`
	bindsFirst = `
def own(s):
    s.bind(("10.77.0.1", 0))
`
)

// manyCalls is failures that each of many destinations has once.
func manyCalls() []Incident {
	local := func(s *server.Setup) { s.Around.Before = manyLocal }
	return []Incident{
		errands("no-route-many", "no-route", "half of the many destinations that a service calls have no route", "an unreachable route for half of the network",
			manyDestinations, func(s *server.Setup) {
				s.Around.Before += "\nip route add unreachable 10.77.128.0/17 table local"
			}).with(local),
		errands("neighbour-unresolved-many", "neighbour-unresolved", "one in five destinations of a service is on its own network by the mask, and nobody there has the address", "a mask that is too wide",
			manyDestinations, faulty(tooWide)).with(func(s *server.Setup) {
			local(s)
			s.Around.Before += "\nip route add 10.78.0.0/16 dev eth0"
		}),
		errands("ephemeral-ports-bound", "ephemeral-ports-exhausted", "a service binds its own address before it calls one of many destinations: they share its ports", "bind() before connect(), and 400 ports",
			manyDestinations, faulty(bindsFirst)).with(func(s *server.Setup) {
			local(s)
			s.PortRange = 400
		}),
	}
}

// onHost is what the host as a whole, or something else on it, does to a service.
func onHost() []Incident {
	return []Incident{
		errands("aio-limit", "aio-limit", "a request sets up asynchronous I/O, of which another program has taken all", "another program holds all of fs.aio-max-nr",
			askAIO, alongside(takeAIO)),
		errands("file-max", "file-max", "a request opens a file, and the host may have no further one open", "fs.file-max 100",
			openFile, hostSetting("fs/file-max", "100")),
		errands("file-write-lock", "file-write-lock", "requests write each to the file of its connection, and then all to the same", "all connections write to one file",
			oneFileEach, faulty(oneFileForAll)).with(func(s *server.Setup) { s.Around.Before = loopDisk }),
		errands("nss-stall", "nss-stall", "a request looks up a user, for which the C library asks a daemon that does not answer", "the daemon accepts and says nothing for 500 ms",
			lookUpUser, alongside("exec /usr/bin/python3 nscd.py 0.5")).with(func(s *server.Setup) {
			s.Around.Before, s.Around.Alongside = nameDaemon, "exec /usr/bin/python3 nscd.py 0"
		}),
		errands("unix-socket-backlog", "unix-socket-backlog", "a request connects to a unix socket where a program accepts one connection after the other", "it takes 150 ms for each, with a queue of 2",
			connectUnix, alongside(strings.ReplaceAll(fmt.Sprintf(pricesAtUnix, "0.15"), "listen(100)", "listen(2)"))).with(alongside(fmt.Sprintf(pricesAtUnix, "0.001"))),
		errands("frozen-file-system", "hung-task", "a request writes a file, and somebody freezes the file system for a snapshot again and again", "fsfreeze for 1.5 s",
			storeBooking, alongside(frozenDisk)).with(func(s *server.Setup) { s.Around.Before = loopDisk }),
		errands("caches-dropped", "caches-dropped", "a service reads files that are in memory, and something drops the caches again and again", "drop_caches twice a second",
			"", alongside("while sleep 0.5; do echo 1 >/proc/sys/vm/drop_caches; done")).alongside("blocked-on-disk", "cgroup-io-throttled", "page-cache-thrash").
			in(on(native(server.Native{Scan: 20}), func(s *server.Setup) { s.ReadMB = 60 })),
		errands("realtime-hog", "realtime-hog", "a program of a real-time policy takes nine tenths of the CPU that the service runs on", "chrt --fifo 50, 90 ms of each 100 ms on CPU 1",
			"", alongside(`exec chrt --fifo 50 taskset -c 1 /usr/bin/python3 -c '
import time
while True:
    end = time.monotonic() + 0.09
    while time.monotonic() < end:
        pass
    time.sleep(0.01)'`)).alongside("affinity-too-narrow", "cpu-saturated", "run-queue-wait").in(on(nginxFPM(query), func(s *server.Setup) { s.CPUs = "1" })),
		errands("tcp-memory-pressure", "tcp-memory-pressure", "large answers, and hardly any memory for all sockets of TCP together", "tcp_mem 16 32 64 pages",
			"", hostSetting("net/ipv4/tcp_mem", "16 32 64")).in(web(10*time.Millisecond, server.Service{Size: 300_000})).under(load.Load{Conns: 20}).alongside("receive-buffer-pruned"),
		errands("tcp-memory-pressure-calls", "tcp-memory-pressure", "a service calls another one for large pages, with hardly any memory for all sockets of TCP together", "tcp_mem 24 48 96 pages",
			"", hostSetting("net/ipv4/tcp_mem", "24 48 96")).in(on(webAndBackend(server.WebBackend, 4*time.Millisecond), func(s *server.Setup) { s.Backend.Size = 200_000 })).under(load.Load{Conns: 20, Own: true}).alongside("receive-buffer-pruned"),
		errands("memory-leak", "memory-leak-toward-limit", "a service keeps 160 kB of each request, until the kernel kills it and it is started again", "it keeps what it should free",
			keepsNothing, faulty(leaks)).with(func(s *server.Setup) { s.MemoryMB, s.Errand.Restarted = 128, true }).alongside("container-oom-killed"),
	}
}

// bySetup is what fields of a setup inject, without commands of a shell.
func bySetup() []Incident {
	return []Incident{{
		Name:    "files-per-request",
		Summary: "a request opens the same file again and again",
		Setup:   desk(server.Desk{}),
		Faults: []Fault{{
			Name: "opens", Cause: "files-per-request", Alongside: []string{"cpu-hot-function"},
			Text:   "3,000 times open() and close()",
			Inject: func(s *server.Setup) { s.Desk.Opens = 3000 },
		}},
		Load:  load.Load{Conns: 10, Think: 5 * time.Millisecond},
		Quick: true,
	}, {
		Name:    "scheduled-job",
		Summary: "cron starts a report that computes, on both CPUs, while requests come in",
		Setup:   nginxFPM(query),
		Faults: []Fault{{
			Name: "job", Cause: "scheduled-job-collision", Alongside: []string{"cpu-saturated", "run-queue-wait"},
			Text:   "6 busy loops that cron started",
			Inject: func(s *server.Setup) { s.CronJobs = 6 },
		}},
		Load:  load.Load{Conns: 20, Think: 20 * time.Millisecond},
		Quick: true,
	}, {
		Name:    "udp-receive-buffer",
		Summary: "the socket of a nameserver has room for a few datagrams only, and many come at once",
		Setup:   quotes(server.Quotes{Lookup: true, OneByOne: true}),
		Faults: []Fault{{
			Name: "small-buffer", Cause: "udp-receive-buffer-overflow", Says: "SO_RCVBUF", Alongside: []string{"dns-timeout"},
			Text:   "the nameserver sets SO_RCVBUF to 1 kB",
			Inject: func(s *server.Setup) { s.Quotes.Buffer = 1 << 10 },
		}},
		Load:  load.Load{Conns: 40, Think: 40 * time.Millisecond},
		Quick: true,
	}, {
		Name:    "close-wait-leak",
		Summary: "a service never closes the connections that its clients have closed, until it has no descriptor left",
		Setup: func() server.Setup {
			s := web(0, server.Service{})()
			s.Transport.Files = 200
			return s
		},
		Faults: []Fault{{
			Name: "leak", Cause: "close-wait-leak", Alongside: []string{"fd-limit"},
			Text:   "the service keeps closed connections, with a limit of 200 open files",
			Inject: onTransport(func(t *server.Transport) { t.Leak = true }),
		}},
		Load:  impatient,
		Quick: true,
	}, {
		Name:    "nginx-limit-conn",
		Summary: "limit_conn by the client's address, and all clients come from one: a load balancer",
		Setup:   nginxFPM(20 * time.Millisecond),
		Faults: []Fault{{
			Name: "limit", Cause: "nginx-limit-conn", Text: "limit_conn 3",
			Inject: func(s *server.Setup) { s.Workers.LimitConn = 3 },
		}},
		Load:  load.Load{Conns: 24, Think: 5 * time.Millisecond},
		Quick: true,
	}, {
		Name:    "connection-churn",
		Summary: "a new connection for each call of a backend 4 ms away",
		Setup:   webAndBackend(server.WebBackend, 4*time.Millisecond),
		Faults: []Fault{{
			Name: "no-keepalive", Cause: "connection-churn",
			Text:   "the service closes its connection after each call",
			Inject: func(s *server.Setup) { s.Web.CallClose = true },
		}},
		Load:  load.Load{Conns: 20},
		Quick: true,
	}}
}

// impatient are clients that make a connection for each request and do not
// wait long for it.
var impatient = load.Load{Conns: 10, First: true, Think: 40 * time.Millisecond, GiveUp: 1200 * time.Millisecond, Timeout: time.Second}

// called is a web server that calls what is behind it, on a new connection each
// time, by a plain wire.
func called() server.Setup {
	s := server.Healthy(server.WebBackend)
	s.Web.Calls, s.Web.CallClose = 1, true
	return s
}

// picked has the link to the server do that to each so manieth segment of the
// clients with payload.
func picked(fate link.Fate, every int) func(*server.Setup) {
	return func(s *server.Setup) { s.Wire.PickToServer = link.Pick{Fate: fate, Every: every} }
}

// onTheWay is packets that die on their way for other reasons than those of packets.
func onTheWay() []Incident {
	quick := func(name, summary string, setup func() server.Setup, l load.Load, f Fault) Incident {
		if f.Name == "" {
			f.Name = "fault"
		}
		return Incident{Name: name, Summary: summary, Setup: setup, Load: l, Quick: true, Faults: []Fault{f}}
	}
	calls, few := load.Load{Conns: 20, Own: true, Think: 5 * time.Millisecond}, load.Load{Conns: 10}
	return []Incident{
		quick("firewall-reject", "a firewall rule answers one in three calls of the service with a reset", called, calls,
			atServer(Fault{Cause: "firewall-reject", Text: "an nftables rule rejects SYNs of calls", Says: "inet shop output handle", Or: []string{"upstream-refused"}},
				nftTable, nftOutput, "nft add rule inet shop output tcp dport {{.BackPort}} 'tcp flags & (syn|ack) == syn' numgen random mod 100 '<' 33 reject with tcp reset")),
		quick("no-route", "the route to what the service calls is gone", called, calls,
			atServer(Fault{Cause: "no-route", Text: "a route that is unreachable, in the place of the one that led there"}, "ip route add unreachable {{.BackendAddr}}/32")),
		quick("tc-egress-drop", "a BPF program at the egress of the server's device drops one in twenty packets", plainWeb(server.Service{}), few,
			Fault{Cause: "tc-egress-drop", Text: "clsact, a program of the lab", Inject: func(s *server.Setup) { s.Wire.DropAtServer = drop.Rule{Every: 20, Egress: true} }}),
		quick("xdp-drop", "an XDP program drops one in twenty packets that come in for the service", plainWeb(server.Service{}), few,
			Fault{Cause: "xdp-drop", Text: "a program of the lab on eth0", Inject: func(s *server.Setup) { s.Wire.DropAtServer = drop.Rule{PPM: 50_000, XDP: true} }}),
		quick("ipsec-policy-drop", "a policy of IPsec wants what some clients send to be encrypted, and they do not encrypt it", on(plainWeb(server.Service{}), func(s *server.Setup) { s.ClientAddrs = 8 }),
			load.Load{Conns: 40, Close: true, Own: true, Sources: 8, GiveUp: time.Second},
			atServer(Fault{Cause: "ipsec-policy-drop", Text: "ip xfrm policy, dir in, for 4 of 8 clients"}, "ip xfrm policy add src "+server.ClientNet+"0/30 dst {{.ServerAddr}}/32 dir in tmpl src "+server.ClientNet+"1 dst {{.ServerAddr}} proto esp mode tunnel")),
		quick("checksum-errors", "a device on the way damages one in thirty segments of the clients", web(near, server.Service{}), few,
			Fault{Cause: "checksum-errors", Text: "a bit of the payload is another", Inject: picked(link.Damaged, 30)}),
		quick("paws-drop", "a device on the way writes old timestamps into one in thirty segments of the clients", web(near, server.Service{}), few,
			Fault{Cause: "paws-drop", Text: "TSval is 17 minutes old", Inject: picked(link.Outdated, 30)}),
	}
}
