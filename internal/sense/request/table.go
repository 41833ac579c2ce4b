package request

import (
	"net/netip"
	"time"

	"github.com/slowray/slowray/internal/observe"
)

const (
	// maxEndpoints bounds a table; what comes beyond is summed up as "other".
	maxEndpoints = 4096
	// maxProcesses bounds the cache from processes to endpoints.
	maxProcesses = 4 * maxEndpoints
	// maxPIDs are the processes listed of one endpoint: those of lowest number.
	maxPIDs = 64
)

// Table sums requests up by endpoint: side, network namespace, address (served:
// the local one; called: the remote one) and program. Its memory is bounded
// whatever it is fed with, and Add allocates nothing once the endpoints, their
// peers and the range of their times were seen.
//
// A record that was sampled counts as often as its Weight says. One that stands
// for several overlapped requests counts them all as requests, and once in the
// histograms: its time is that of all of them together.
//
// A Table is not safe for concurrent use.
type Table struct {
	// Master, if set, names the process an administrator knows a service by,
	// for any of its processes: pids with the same master are one endpoint. It
	// is asked once per process and endpoint. Without it every pid is its own
	// master and has no name.
	Master func(pid int) (master int, comm string)
	// Destination, if set, says where the calls of a connection really go; invalid where they
	// go to the address that was asked for. It is asked of requests that are kept as samples.
	Destination func(*observe.Request) netip.AddrPort

	start   int64 // wall clock, ns
	limit   int
	sums    map[key]*endpointSum
	seen    map[key]*endpointSum // by process instead of master: a cache
	last    key                  // of seen: records of one connection come in rows
	lastSum *endpointSum
	others  [2]*endpointSum // by side, once the table is full
	open    *openRequests
}

// key is what makes an endpoint. It has no padding: hashing and comparing it is
// one operation on its 40 bytes.
type key struct {
	addr  netip.Addr
	netns uint64
	pid   int32
	port  uint16
	side  uint16
}

// NewTable makes a table for the window that begins at start.
func NewTable(start time.Time) *Table {
	return &Table{
		start: start.UnixNano(), limit: maxEndpoints,
		sums: map[key]*endpointSum{}, seen: map[key]*endpointSum{}, open: newOpenRequests(),
	}
}

// Limit is how many endpoints have a place of their own, from now on; at most
// 4,096, which is also where it begins. One takes some 100 KB when it is busy.
func (t *Table) Limit(endpoints int) { t.limit = min(endpoints, maxEndpoints) }

// Add counts a request. It keeps nothing of r that is not copied.
func (t *Table) Add(r *observe.Request) {
	here := &r.Local
	if r.Side == observe.Called {
		here = &r.Peer
	}
	k := key{here.Addr().Unmap(), r.NetNS, int32(r.PID), here.Port(), uint16(r.Side)}
	sum := t.lastSum
	if sum == nil || k != t.last {
		if sum = t.seen[k]; sum == nil {
			sum = t.meet(k)
		}
		t.last, t.lastSum = k, sum
	}
	if r.Flags&observe.FlagUnfinished != 0 {
		t.open.put(sum.key, r)
		return
	}
	if t.open.any() {
		t.open.end(r)
	}
	sum.add(r, t.start, t.Destination)
}

// meet finds the endpoint of a process that was not seen there yet.
func (t *Table) meet(k key) *endpointSum {
	master, comm := k, ""
	if t.Master != nil && k.pid != 0 {
		var pid int
		pid, comm = t.Master(int(k.pid))
		master.pid = int32(pid)
	}
	sum := t.sumOf(master)
	if sum.comm == "" && sum.key.pid != 0 {
		sum.comm = comm
	}
	sum.addPID(k.pid)
	if len(t.seen) >= maxProcesses {
		clear(t.seen) // only a cache: masters are asked again
	}
	t.seen[k] = sum
	return sum
}

// sumOf is the sum of an endpoint, or that of all others when the table is full.
func (t *Table) sumOf(k key) *endpointSum {
	if sum := t.sums[k]; sum != nil {
		return sum
	}
	if len(t.sums) >= t.limit {
		return t.other(k.side)
	}
	sum := &endpointSum{key: k}
	t.sums[k] = sum
	return sum
}

// other sums up the endpoints of a side that have no place of their own.
func (t *Table) other(side uint16) *endpointSum {
	i := 0
	if side == uint16(observe.Called) {
		i = 1
	}
	if t.others[i] == nil {
		t.others[i] = &endpointSum{key: key{side: side}}
	}
	return t.others[i]
}

// Merge adds what other counted. Arrivals are moved by whole tenths of a second.
func (t *Table) Merge(other *Table) {
	for k, sum := range other.sums {
		t.sumOf(k).merge(sum, other.start-t.start)
	}
	for _, sum := range other.others {
		if sum != nil {
			t.other(sum.key.side).merge(sum, other.start-t.start)
		}
	}
	if other.open != t.open {
		t.open.merge(other.open)
	}
}

// Reset empties the table for a window that begins at start. Endpoints that
// were in use keep their memory; the others are forgotten.
func (t *Table) Reset(start time.Time) {
	t.clear(start)
	t.open.reset()
}

// clear empties the table but for the requests in progress.
func (t *Table) clear(start time.Time) {
	t.start = start.UnixNano()
	t.last, t.lastSum = key{}, nil
	dropped := false
	for k, sum := range t.sums {
		if sum.recorded == 0 {
			delete(t.sums, k)
			dropped = true
			continue
		}
		sum.reset()
	}
	t.others = [2]*endpointSum{}
	// A cached sum may be one of those dropped or of the others.
	if dropped || len(t.sums) >= t.limit {
		clear(t.seen)
	}
}
