package incident

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/server"
)

// Bursts that requests are hit by now and then: what of the window they take is little.
const (
	// A neighbour that computes on all CPUs for 600 ms in each two seconds, with nothing
	// in between. NICE is what it gives way by.
	burstNeighbour = `exec /usr/bin/python3 -c '
import os, time
os.nice(NICE)
for n in range(23):
    if os.fork() == 0:
        break
while True:
    now = time.monotonic()
    if now % 2 < 0.6:
        for n in range(20000):
            pass
    else:
        time.sleep(2 - now % 2)'
`
	// A service that packs its own journal every two seconds, in programs that it starts.
	packsJournal = `
def pack():
    while True:
        time.sleep(2 - time.monotonic() %% 2)
        packers = [subprocess.Popen(["gzip", "-9", "-c", DIR + "/journal"], stdout=subprocess.DEVNULL) for n in range(%d)]
        for packer in packers:
            packer.wait()

def begin():
    with open(DIR + "/journal", "wb") as f:
        f.write(b"".join(b"seat %%d of flight %%d\n" %% (n %% 40, n * 7919 %% 9973) for n in range(120000)))
    threading.Thread(target=pack, name="journal", daemon=True).start()

def price(turns):
    total = 0
    for leg in range(turns):
        total += leg * leg %% 97
    return total

def request(n):
    price(300000)
`
	// A lock of the interpreter's that a thread of the service has for HELD seconds in
	// each ten, and requests for a moment.
	nightlyLock = `
seats = threading.Lock()

def take_stock():
    while True:
        time.sleep(3)
        with seats:
            time.sleep(%g)
        time.sleep(7 - %g)

def begin():
    threading.Thread(target=take_stock, name="stock", daemon=True).start()

def request(n):
    with seats:
        pass
    time.sleep(0.002)
`
	// A thread that sorts a list in one call of C, which keeps the interpreter's lock, every
	// two seconds.
	sortsRoutes = `
def sort_routes():
    routes = [random.random() for n in range(%d)]
    while True:
        time.sleep(1.7)
        sorted(routes)

def begin():
    threading.Thread(target=sort_routes, name="routes", daemon=True).start()

def request(n):
    time.sleep(0.002)
`
)

// bursts is services that are held up for a part of a second, again and again.
func bursts() []Incident {
	// Requests come whether or not others are answered: those in a burst are many then.
	steady, some := load.Load{Conns: 200, Rate: 120}, load.Load{Conns: 60, Rate: 25}
	one := func(name, cause, summary, text string, setup func() server.Setup, l load.Load, inject func(*server.Setup)) Incident {
		return Incident{Name: name, Summary: summary, Setup: setup, Load: l, Faults: []Fault{{Name: "burst", Cause: cause, Text: text, Inject: inject}}}
	}
	small := func(s *server.Setup) { s.Mixed = 10_000 }
	python := func(code string) func() server.Setup { return errand(code) }
	behindNginx := func(setup func() server.Setup) func() server.Setup {
		return on(setup, func(s *server.Setup) { s.Hops = []server.Hop{{Language: "nginx", Name: "edge"}} })
	}
	return []Incident{
		one("burst-cpu", "cpu-saturated", "a neighbour computes on all CPUs for 600 ms in each two seconds", "24 processes of another program, for 0.6 s in each 2 s",
			on(nginxFPM(0), small), some, alongside(burst(0))),
		one("burst-cpu-python", "cpu-saturated", "a neighbour of a service in Python computes on all CPUs for 600 ms in each two seconds", "24 processes of another program, for 0.6 s in each 2 s",
			python(fmt.Sprintf(packsJournal, 0)), some, alongside(burst(0))),
		one("burst-cpu-own", "short-lived-process-storm", "a service starts 24 programs every two seconds that pack its journal, on both CPUs", "gzip -9 of 2.5 MB, 24 times",
			python(fmt.Sprintf(packsJournal, 0)), some, faulty(fmt.Sprintf(packsJournal, 24))),
		one("burst-lock", "blocked-on-file-lock", "another program holds the lock of a file for 1.5 s in each ten, which each request takes for a moment", "the lock is held for 1.5 s, and then free for 8.5 s",
			native(server.Native{Seats: true}), steady, func(s *server.Setup) { s.SeatsHeld, s.SeatsFree = 1500*time.Millisecond, 8500*time.Millisecond }),
		one("burst-lock-python", "lock-convoy", "a thread of a service in Python has a lock for 1.5 s in each ten, which each request takes for a moment", "take_stock() has the lock for 1.5 s",
			behindNginx(python(fmt.Sprintf(nightlyLock, 0.0, 0.0))), steady, faulty(fmt.Sprintf(nightlyLock, 1.5, 1.5))),
		one("burst-lock-rows", "mariadb-lock-wait", "a report changes all rows of a table every ten seconds, and ends its transaction 1.5 s later", "a transaction of 1.5 s, once in ten seconds",
			overDatabase(server.WebDatabase, func(s *server.Setup) { s.Query.Update = true }), steady,
			func(s *server.Setup) {
				s.Report = server.Report{Every: 8500 * time.Millisecond, Holds: 1500 * time.Millisecond, After: 2500 * time.Millisecond}
			}),
		one("burst-gil", "gil-contention", "a thread of a service in Python sorts a long list every two seconds, in one call that keeps the lock of the interpreter", "sorted() of 2,500,000 numbers",
			python(fmt.Sprintf(sortsRoutes, 1000)), steady, faulty(fmt.Sprintf(sortsRoutes, 2_500_000))),
		one("burst-gil-proxied", "gil-contention", "nginx before a service in Python, a thread of which reads a catalogue every two seconds", "json.loads() of a large document",
			behindNginx(python(fmt.Sprintf(readsCatalogue, 10))), steady, faulty(fmt.Sprintf(readsCatalogue, 450_000))),
	}
}

// A thread that reads a document in one call of C.
const readsCatalogue = `
import json

def refresh():
    catalogue = json.dumps([{"seat": n, "price": [1, 2, 3]} for n in range(%d)])
    while True:
        time.sleep(1.6)
        json.loads(catalogue)

def begin():
    threading.Thread(target=refresh, name="catalogue", daemon=True).start()

def request(n):
    time.sleep(0.002)
`

// burst is the neighbour, with a nice value.
func burst(nice int) string {
	return strings.ReplaceAll(burstNeighbour, "NICE", strconv.Itoa(nice))
}

// burstControls have bursts as well, which hit nobody.
func burstControls() []Incident {
	list := []Incident{{
		Name:    "burst-cpu-nice",
		Summary: "a neighbour with nice 19 computes on all CPUs for 600 ms in each two seconds, and gives way to a service that computes little",
		Setup:   on(golang(server.Go{Work: 2 * time.Millisecond}), func(s *server.Setup) { s.Around.Alongside = burst(19) }),
		Load:    load.Load{Conns: 4, Own: true, Think: 30 * time.Millisecond},
	}, {
		Name:    "burst-lock-unasked",
		Summary: "a program holds the lock of a file for 1.5 s in each ten, and no request asks for it",
		Setup: on(native(server.Native{Work: 2 * time.Millisecond}), func(s *server.Setup) {
			s.SeatsHeld, s.SeatsFree = 1500*time.Millisecond, 8500*time.Millisecond
		}),
		Load: load.Load{Conns: 200, Rate: 120},
	}, {
		Name:    "burst-gil-short",
		Summary: "a thread of a service in Python sorts a short list every two seconds",
		Setup:   errand(fmt.Sprintf(sortsRoutes, 20_000)),
		Load:    load.Load{Conns: 200, Rate: 120},
	}}
	for n := range list {
		list[n].Control = true
	}
	return list
}
