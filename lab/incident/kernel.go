package incident

import (
	"strings"
	"time"

	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/server"
)

// Lines of requests that need the kernel's memory management, or a file system.
const (
	readPrices = `
def request(n):
    with open(DIR + "/prices/today") as f:
        f.read()
`
	mapPage = `
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

def mapped(size, flags):
    at = libc.mmap(None, size, 3, flags, -1, 0)
    check(-1 if at in (None, 2**64 - 1) else 0)
    libc.munmap(at, size)

def request(n):
    mapped(4096, 0x21)  # MAP_SHARED | MAP_ANONYMOUS
`
	loadTables = `
def load_tables():
    while True:
        mapped(1200 << 20, 0x8022)  # MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE
        time.sleep(0.01)

def begin():
    threading.Thread(target=load_tables, daemon=True).start()
`
)

// Lines of requests that need memory.
const (
	searchTable = `
table = bytearray(200 << 20)

def begin():
    for at in range(0, len(table), 4096):
        table[at] = 1

def request(n):
    for _ in range(30):
        table[random.randrange(len(table))] = n & 255
`
	searchHead = `
def request(n):
    for _ in range(30):
        table[random.randrange(4 << 20)] = n & 255
`
	searchFile = `
def begin():
    global fares
    with open(DIR + "/fares", "wb") as f:
        for n in range(96):
            f.write(bytes([n]) * (1 << 20))
        f.flush()
        os.fsync(f.fileno())
    f = open(DIR + "/fares", "rb")
    fares = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
    fares.madvise(mmap.MADV_RANDOM)

def request(n):
    sum(fares[random.randrange(len(fares))] for _ in range(20))
`
)

// shortOfMemory is services whose control group has no room for what they use.
func shortOfMemory() []Incident {
	short := func(name, cause, or, summary, text string, setup func() server.Setup, room, limit int, alongside ...string) Incident {
		return Incident{
			Name: name, Summary: summary, Setup: on(setup, func(s *server.Setup) { s.MemoryMB = room }), Load: errandLoad, Quick: true,
			Faults: []Fault{{Name: "limit", Cause: cause, Or: []string{or}, Alongside: alongside, Says: "memory limit", Text: text, Inject: func(s *server.Setup) { s.MemoryMB = limit }}},
		}
	}
	return []Incident{
		short("swap-in-group", "swap-thrash", "memory-pressure", "a request of a server in C changes some pages of a large table, of which the memory limit leaves the most part to the swap file", "a memory limit of 64 MB, and 200 MB in use",
			on(desk(server.Desk{HeapMB: 200, Touch: 30}), func(s *server.Setup) { s.SwapMB, s.ReadMB = 400, 20 }), 300, 64, "cgroup-io-throttled"),
		short("swap-in-group-python", "swap-thrash", "memory-pressure", "behind a proxy, a request of a service in Python changes some bytes of a large table, of which the memory limit leaves the most part to the swap file", "a memory limit of 80 MB, and 200 MB in use",
			on(errand(searchTable), func(s *server.Setup) {
				s.SwapMB, s.ReadMB = 400, 20
				s.Hops = []server.Hop{{Language: "nginx", Name: "edge"}}
			}), 400, 80, "cgroup-io-throttled"),
		short("mapped-file-thrash", "page-cache-thrash", "memory-pressure", "a request of a service in Python reads here and there in a file that it has mapped, for which its memory limit has no room", "a memory limit of 32 MB, and a file of 96 MB",
			on(errand(searchFile), func(s *server.Setup) { s.ReadMB = 5 }), 400, 32, "cgroup-io-throttled", "blocked-on-disk"),
	}
}

// userSpace is a file system that a process serves, which is slow and answers.
func userSpace() []Incident {
	slow := func(name, summary, text string, setup func() server.Setup, inject func(*server.Prices)) Incident {
		return Incident{
			Name: name, Summary: summary, Setup: setup, Load: errandLoad, Quick: true,
			Faults: []Fault{{Name: "slow", Cause: "blocked-on-disk", Says: "FUSE", Text: text, Inject: func(s *server.Setup) { inject(&s.Prices) }}},
		}
	}
	return []Incident{
		slow("fuse-rate-limit", "a service reads a file from a file system in user space, whose process may read few bytes in a second", "bindfs --read-rate=40000",
			native(server.Native{Prices: true}), func(p *server.Prices) { p.Rate = 40_000 }),
		slow("fuse-asks-remote", "a service reads a file from a file system in user space, whose process asks another machine first, next to a second such file system", "the other machine takes 150 ms for an answer",
			func() server.Setup {
				s := server.Healthy(server.NativeMail)
				s.Native.Prices, s.Prices = true, server.Prices{Own: true, Ask: true, Other: true}
				return s
			}, func(p *server.Prices) { p.Late = 150 * time.Millisecond }),
		slow("fuse-slow-lookup", "behind nginx, a service in Python opens a file on a file system in user space, of which one thread of several sleeps at each lookup", "a lookup takes 120 ms",
			on(errand(readPrices), func(s *server.Setup) {
				s.Prices = server.Prices{Own: true, Other: true}
				s.Hops = []server.Hop{{Language: "nginx", Name: "edge"}}
			}), func(p *server.Prices) { p.Lookup = 120 * time.Millisecond }),
	}
}

// mapLocks is threads of a process that wait for its mmap_lock.
func mapLocks() []Incident {
	held := func(name, summary, text, says string, setup func() server.Setup, inject func(*server.Setup)) Incident {
		return Incident{
			Name: name, Summary: summary, Setup: setup, Load: errandLoad, Quick: true,
			Faults: []Fault{{Name: "held", Cause: "mmap-lock-contention", Says: says, Text: text, Inject: inject}},
		}
	}
	return []Incident{
		held("mmap-lock-populate", "each request of a server in C maps a page, and another thread maps large tables with all of their pages", "1,500 MB with MAP_POPULATE, again and again", "MAP_POPULATE",
			desk(server.Desk{Map: true}), func(s *server.Setup) { s.Desk.LoadMB = 1500 }),
		held("mmap-lock-fork", "each request of a server in C maps a page, and another thread forks, with 1 GB of memory in 50,000 mappings to copy the page tables of", "fork(2), again and again", "fork",
			desk(server.Desk{Map: true, HeapMB: 1000, HeapMaps: 50_000}), func(s *server.Setup) { s.Desk.Forks = true }),
		held("mmap-lock-python", "behind a proxy, each request of a service in Python maps a page, and another thread maps large tables with all of their pages", "1,200 MB with MAP_POPULATE, again and again", "MAP_POPULATE",
			on(errand(mapPage), func(s *server.Setup) { s.Hops = []server.Hop{{Language: "nginx", Name: "edge"}} }), faulty(loadTables)),
	}
}

// kernelControls look like these, and no request waits.
func kernelControls() []Incident {
	list := []Incident{{
		Name:    "fuse-slow-for-others",
		Summary: "another program waits for a slow file system in user space all the time, and a service reads files that are on none",
		Setup: on(errand(strings.ReplaceAll(readPrices, "prices/today", "prices.d/today")), func(s *server.Setup) {
			s.Prices = server.Prices{Own: true, Lookup: 120 * time.Millisecond}
			s.Around.Alongside = "while :; do cat prices/today; done >/dev/null"
		}),
		Load: errandLoad,
	}, {
		Name:    "mmap-lock-in-background",
		Summary: "two threads of a server in C wait for mmap_lock all the time, each for the other, and requests map nothing",
		Setup:   desk(server.Desk{Work: time.Millisecond, LoadMB: 20, Loads: 2}),
		Load:    load.Load{Conns: 4, Think: 40 * time.Millisecond},
	}, {
		Name:    "swapped-out-and-idle",
		Summary: "most of the memory of a service is swapped out, its group is at its limit, and no request needs what is swapped",
		Setup: on(errand(searchTable+searchHead), func(s *server.Setup) {
			s.SwapMB, s.MemoryMB = 400, 80
		}),
		Load: errandLoad,
	}}
	for n := range list {
		list[n].Control, list[n].Quick = true, true
	}
	return list
}
