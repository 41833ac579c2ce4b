package watch

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/database"
	"github.com/slowray/slowray/internal/sense/app/mariadb"
	"github.com/slowray/slowray/internal/sense/app/memcached"
	"github.com/slowray/slowray/internal/sense/app/postgres"
	"github.com/slowray/slowray/internal/sense/app/redis"
	"github.com/slowray/slowray/internal/sense/app/slowlog"
)

// databaseReader is what is common to the readers of all databases.
type databaseReader interface {
	Begin(*budget.Budget) (tooLarge bool)
	Sample(sockets func(pid int) (int, error))
	End(*budget.Budget, observe.Window) database.Result
	Close()
}

const (
	databasesEvery = 250 * time.Millisecond
	maxDatabases   = 32
	// keptLeast is the shortest request that is kept to be joined with an entry
	// of a slow log: less than any server logs by default.
	keptLeast = time.Millisecond
	maxKept   = 10_000
	// maxSockets bounds the unix sockets of one server that are listed.
	maxSockets = 8
)

// databases are the database servers of the host over a window.
type databases struct {
	readers []databaseReader
	ends    [][]end            // of each reader, where it listens
	procs   []*observe.Process // of each reader
	kept    *keptRequests
	config  map[int][]string // the files that each is configured by, by process; known at the end
}

// end is an address that a server listens at.
type end struct {
	sp   *space
	addr netip.Addr
	port int
	path string // unix socket
}

// keptRequests are those of the database servers that took long enough to be
// in a slow log. Only the goroutine that polls adds to them.
type keptRequests struct {
	ports   map[portKey]bool
	called  map[uint16]bool        // the same ports, wherever
	callers map[netip.AddrPort]int // local end of a connection to such a port → process
	records []slowlog.Record
	dropped int64
}

type portKey struct {
	netns uint64
	port  uint16
}

func (k *keptRequests) note(r *observe.Request) {
	if k == nil || len(k.ports) == 0 || r.TotalNS() < int64(keptLeast) {
		return
	}
	if r.Side == observe.Called {
		if k.called[r.Peer.Port()] && r.PID != 0 && len(k.callers) < maxKept {
			k.callers[netip.AddrPortFrom(r.Local.Addr().Unmap(), r.Local.Port())] = r.PID
		}
		return
	}
	if !k.ports[portKey{r.NetNS, r.Local.Port()}] {
		return
	}
	if len(k.records) >= maxKept {
		k.dropped++
		return
	}
	k.records = append(k.records, slowlog.NewRecord(r))
}

// begin finds the servers, reads how they are configured, and asks
// those for their status that tell it without a password.
func (d *databases) begin(s *session) error {
	seen := s.seenProcesses()
	d.kept = &keptRequests{ports: map[portKey]bool{}, called: map[uint16]bool{}, callers: map[netip.AddrPort]int{}}
	byPID := map[int]*observe.Process{}
	for i := range seen {
		byPID[seen[i].PID] = &seen[i]
	}
	starts := map[int]uint64{}
	for i := range s.procs {
		starts[s.procs[i].PID] = s.procs[i].StartTicks
	}
	for i := range seen {
		p := &seen[i]
		r, ends := s.databaseReader(p, byPID[p.PPID])
		if r == nil {
			continue
		}
		if until, waits := s.opt.Memory.waits(p.PID, starts[p.PID]); waits {
			s.databaseGap(p, "its configuration is larger than is read: it is read again after %s", until.Format(time.TimeOnly))
			continue
		}
		if len(d.readers) == maxDatabases {
			s.lose(fmt.Sprintf("database servers beyond %d", maxDatabases), 1)
			continue
		}
		d.readers, d.ends, d.procs = append(d.readers, r), append(d.ends, ends), append(d.procs, p)
		for _, e := range ends {
			if e.port != 0 {
				d.kept.ports[portKey{e.sp.inode, uint16(e.port)}] = true
				d.kept.called[uint16(e.port)] = true
			}
		}
	}
	failed := atOnce(s.ctx, d, configLimits, func(b *budget.Budget, r databaseReader) bool {
		return tooDear(b, r.Begin)
	}, func(i int, tooLarge bool, err error) {
		s.opt.Memory.note(d.procs[i].PID, starts[d.procs[i].PID], tooLarge || err != nil)
		if err != nil {
			s.databaseGap(d.procs[i], "%s", err)
		}
	})
	for i := len(d.readers) - 1; i >= 0; i-- {
		if failed[i] {
			d.readers, d.ends, d.procs = slices.Delete(d.readers, i, i+1), slices.Delete(d.ends, i, i+1), slices.Delete(d.procs, i, i+1)
		}
	}
	return nil
}

func (s *session) databaseGap(p *observe.Process, format string, args ...any) {
	s.out.Gaps = append(s.out.Gaps, observe.Gap{Kind: observe.KindDatabases, NetNS: p.NetNS, Subject: fmt.Sprintf("%s (pid %d)", p.Comm, p.PID),
		Because: fmt.Sprintf(format, args...), Partial: true})
}

// atOnce does something with each reader, at the same time: what they do is wait. Then
// it takes the results, one after the other, and says which there are none of.
func atOnce[T any](ctx context.Context, d *databases, limits budget.Limits, do func(*budget.Budget, databaseReader) T, take func(int, T, error)) (failed []bool) {
	all := budget.New(ctx, limits)
	results, errs, failed := make([]T, len(d.readers)), make([]error, len(d.readers)), make([]bool, len(d.readers))
	var wg sync.WaitGroup
	for i, r := range d.readers {
		b := all.Each(len(d.readers))
		wg.Go(func() { results[i], errs[i] = apart(b, func() T { return do(b, r) }, r.Close) })
	}
	wg.Wait()
	for i := range d.readers {
		take(i, results[i], errs[i])
		failed[i] = errs[i] != nil
	}
	return failed
}

// databaseReader is the reader of a process that is a database server, with
// where it listens; nil when it is none, or listens nowhere.
func (s *session) databaseReader(p, parent *observe.Process) (r databaseReader, ends []end) {
	kind, maria := mariadb.Is(p)
	redisKind, isRedis := redis.Is(p)
	isPostgres, isMemcached := postgres.Is(p, parent), memcached.Is(p)
	if !maria && !isRedis && !isPostgres && !isMemcached {
		return nil, nil
	}
	if ends = s.endsOf(p.PID); len(ends) == 0 {
		return nil, nil
	}
	switch {
	case maria:
		r = mariadb.New(kind, *p, s.fs.Proc, len(ends))
	case isRedis:
		r = redis.New(redisKind, *p, s.fs.Proc, len(ends), s.dialer(p, ends))
	case isPostgres:
		r = postgres.New(*p, s.fs.Proc, len(ends))
	default:
		r = memcached.New(*p, s.fs.Proc, len(ends), s.dialer(p, ends))
	}
	return r, ends
}

// endsOf lists where a process listens: loopback first, then all addresses,
// then others, of each the lowest port.
func (s *session) endsOf(pid int) []end {
	var out []end
	for _, sp := range s.spaces {
		for inode, l := range sp.listeners {
			if slices.Contains(s.owners[inode], pid) {
				out = append(out, end{sp: sp, addr: l.first.Addr.Unmap(), port: int(l.first.Port), path: l.first.Path})
			}
		}
	}
	rank := func(e end) int {
		switch {
		case e.port == 0:
			return 3
		case e.addr.IsLoopback():
			return 0
		case e.addr.IsUnspecified():
			return 1
		}
		return 2
	}
	slices.SortFunc(out, func(a, b end) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.port, b.port), a.addr.Compare(b.addr), cmp.Compare(a.path, b.path))
	})
	return out
}

// dialer connects to a server where it listens, from inside its own network
// namespace: nothing leaves the host. It is nil where nobody is to be asked.
func (s *session) dialer(p *observe.Process, ends []end) database.Dial {
	// A process that is stopped answers nobody, and the question would lie there.
	if s.opt.Silent || p.State == "T" || p.State == "t" {
		return nil
	}
	e := ends[0]
	if e.port == 0 {
		path := filepath.Join(s.fs.Proc, strconv.Itoa(p.PID), "root", e.path)
		return func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}
	}
	addr := e.addr
	if addr.IsUnspecified() {
		addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		if e.addr.Is6() {
			addr = netip.IPv6Loopback()
		}
	}
	return func(ctx context.Context) (conn net.Conn, err error) {
		err = e.sp.ns.Do(func() (err error) {
			conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", netip.AddrPortFrom(addr, uint16(e.port)).String())
			return err
		})
		return conn, err
	}
}

func (d *databases) sample(s *session) {
	for _, r := range d.readers {
		r.Sample(s.fs.SocketFDCount)
	}
}

// end reads the logs, asks again, and joins what the servers found
// slow with the requests that were recorded at them.
func (d *databases) end(s *session) {
	d.config = map[int][]string{}
	window := s.out.Window
	atOnce(s.ctx, d, logLimits, func(b *budget.Budget, r databaseReader) database.Result { return r.End(b, window) }, func(i int, r database.Result, err error) {
		if err != nil {
			s.databaseGap(d.procs[i], "%s", err)
			return
		}
		db := &r.Database
		d.config[db.PID] = r.Config
		at := map[portKey]bool{}
		for _, e := range d.ends[i] {
			if e.port != 0 && !slices.Contains(db.Ports, e.port) {
				db.Ports = append(db.Ports, e.port)
			}
			if e.path != "" && len(db.Sockets) < maxSockets && !slices.Contains(db.Sockets, e.path) {
				db.Sockets = append(db.Sockets, e.path)
			}
			at[portKey{e.sp.inode, uint16(e.port)}] = true
		}
		var records []slowlog.Record
		for _, k := range d.kept.records {
			if at[portKey{k.NetNS, uint16(k.Port)}] {
				k.Caller = d.kept.callers[k.Peer]
				records = append(records, k)
			}
		}
		if db.Slow != nil {
			slowlog.Sum(db.Slow, r.Entries, records)
		}
		s.out.Databases = append(s.out.Databases, *db)
		s.keep(r.Gaps, r.Losses)
	})
	s.lose("requests of databases that were not kept to be joined with their slow logs", d.kept.dropped)
	d.tellYoung(s)
}

// tellYoung says which servers began within the window: nothing of them was read.
func (d *databases) tellYoung(s *session) {
	byPID := map[int]*observe.Process{}
	for i := range s.out.Processes {
		byPID[s.out.Processes[i].PID] = &s.out.Processes[i]
	}
	for i := range s.out.Processes {
		p := &s.out.Processes[i]
		parent := byPID[p.PPID]
		if p.StartedAt <= 0 || parent != nil && parent.Name() == p.Name() { // a child has no data of its own
			continue
		}
		_, maria := mariadb.Is(p)
		_, isRedis := redis.Is(p)
		if maria || isRedis || postgres.Is(p, parent) || memcached.Is(p) {
			s.databaseGap(p, "it began during the window, and is read from the next one on")
		}
	}
}
