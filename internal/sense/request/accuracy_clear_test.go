package request_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
)

// wall is how far the wall clock is ahead of the monotonic one, ns: of some readings that between
// which least was done.
func wall() (ahead int64) {
	least := int64(1 << 62)
	for range 20 {
		var before, w, after unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &before)
		_ = unix.ClockGettime(unix.CLOCK_REALTIME, &w)
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &after)
		if took := after.Nano() - before.Nano(); took < least {
			least, ahead = took, w.Nano()-before.Nano()-took/2
		}
	}
	return ahead
}

// TestStreamsUnderTLS: each stream has a record, at the times at which the server read and
// wrote its frames, however the server uses OpenSSL.
func TestStreamsUnderTLS(t *testing.T) {
	for _, mode := range []string{"direct", "memory"} {
		for _, version := range []string{"1.2", "1.3"} {
			t.Run(mode+" "+version, func(t *testing.T) {
				measure(t, func(tr *trial) { streamsUnderTLS(tr, mode, version) })
			})
		}
	}
}

func streamsUnderTLS(tr *trial, mode, version string) {
	s := tr.tlsServer(mode, version)
	tr.record(request.Options{})
	s.warm()
	const connections, turns = 4, 12
	var clients []*streams
	for range connections {
		c := s.dial()
		defer c.Close()
		clients = append(clients, c)
	}
	// Without a memory of which socket an object has, the first requests tell.
	for range 6 {
		for _, c := range clients {
			_, over := c.ask(0, 'a')
			<-over
			time.Sleep(time.Millisecond)
		}
	}
	time.Sleep(20 * time.Millisecond)
	began := time.Now().UnixNano()
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() {
			for turn := range turns {
				var wait []chan struct{}
				for n, what := range "aabakl" {
					if what == 'k' && version == "1.2" {
						what = 'x'
					}
					_, over := c.ask(time.Duration(5+3*n+i+turn)*time.Millisecond, byte(what))
					wait = append(wait, over)
				}
				for _, over := range wait {
					<-over
				}
			}
		})
	}
	all.Wait()
	time.Sleep(settle)
	tr.finish()

	tr.agree(s, began, connections*turns*6, medianLimit, nil)
}

// agree checks that each stream in a server's own log since began, want of them, has one
// record, at the times that the log has, but for limit at the median. each is called with when
// the record says that its request was read.
func (tr *trial) agree(s *tlsServer, began int64, want int, limit time.Duration, each func(x told, read int64)) {
	records := map[[2]int]*observe.Request{}
	for _, r := range tr.of(observe.Served) {
		if r.StartNS < began || r.Flags&observe.FlagUnfinished != 0 {
			continue
		}
		if r.Flags&observe.FlagMultiplexed == 0 {
			tr.errorf("no stream: %s", describe(r, r.StartNS))
			continue
		}
		k := [2]int{int(r.Peer.Port()), int(r.Seq)}
		if records[k] != nil {
			tr.errorf("two records of stream %v", k)
		}
		records[k] = r
	}
	ahead := wall()
	var off [3][]time.Duration
	s.mu.Lock()
	defer s.mu.Unlock()
	streams := 0
	for _, x := range s.log {
		if x.asked+ahead < began {
			continue
		}
		streams++
		r := records[[2]int{x.port, (x.id + 1) / 2}]
		if r == nil {
			tr.errorf("no record of %+v", x)
			continue
		}
		read := r.StartNS - ahead + r.Ledger[observe.AcceptWait] + r.Ledger[observe.TLS] + r.Ledger[observe.Upload] + r.Ledger[observe.RecvWait]
		if each != nil {
			each(x, read)
		}
		off[0] = append(off[0], time.Duration(x.asked-read).Abs())
		off[1] = append(off[1], time.Duration(x.answered-x.asked-r.Ledger[observe.Server]).Abs())
		off[2] = append(off[2], time.Duration(x.ended-x.answered-r.Ledger[observe.Unaccounted]).Abs())
		status := map[string]int{"x": 404}[x.what]
		if status == 0 {
			status = 200
		}
		if r.HTTP != status || r.Flags&observe.FlagOverlapped != 0 || r.PID == 0 {
			tr.errorf("HTTP %d, want %d: %s", r.HTTP, status, describe(r, r.StartNS))
		}
	}
	if streams != want || len(records) != want {
		tr.errorf("the server had %d streams and %d have a record, want %d", streams, len(records), want)
	}
	for i, what := range []string{"asked", "server", "answer"} {
		if len(off[i]) == 0 {
			continue
		}
		slices.Sort(off[i])
		median, p99 := off[i][len(off[i])/2], off[i][len(off[i])*99/100]
		tr.t.Logf("%s: median %v, p99 %v", what, median, p99)
		if median > limit {
			tr.errorf("%s: median difference %v, p99 %v", what, median, p99)
		}
	}
}

// TestStreamsUnderTLSEnd: streams that are reset by either end, whose connection is closed,
// that last, and that nobody reads for a while.
func TestStreamsUnderTLSEnd(t *testing.T) {
	for _, mode := range []string{"direct", "memory"} {
		t.Run(mode, func(t *testing.T) { measure(t, func(tr *trial) { streamsEnd(tr, mode) }) })
	}
}

func streamsEnd(tr *trial, mode string) {
	const short, lasting = 60 * time.Millisecond, 2100 * time.Millisecond
	s := tr.tlsServer(mode, "1.3")
	tr.record(request.Options{})
	s.warm()
	type want struct {
		what         string
		at           *streams
		id           uint32
		flags, never observe.RequestFlags
		total, wait  time.Duration
	}
	var all []want
	resets := s.ready()
	id, over := resets.ask(0, 'n')
	time.Sleep(short)
	_, err := resets.Write(frame(3, 0, id, make([]byte, 4)))
	tr.must(err)
	resets.end(id)
	<-over
	all = append(all, want{"reset by the caller", resets, id, observe.FlagReset | observe.FlagUnanswered, observe.FlagTruncated, short, 0})
	id, over = resets.ask(short, 'r')
	<-over
	all = append(all, want{"reset by the server", resets, id, observe.FlagReset | observe.FlagUnanswered, observe.FlagTruncated, short, 0})

	closed := s.ready()
	id, _ = closed.ask(0, 'n')
	_, over = closed.ask(short, 'c')
	<-over
	all = append(all, want{"closed by the server", closed, id, observe.FlagUnanswered, observe.FlagReset, short, 0})

	gone := s.ready()
	id, _ = gone.ask(2*short, 'l')
	time.Sleep(short)
	gone.Close()
	all = append(all, want{"closed by the caller", gone, id, observe.FlagTruncated, observe.FlagUnanswered, short, 0})

	busy := s.ready()
	_, first := busy.ask(2*short, 's')
	time.Sleep(short)
	id, over = busy.ask(0, 'a')
	<-over
	<-first
	all = append(all, want{"not read for a while", busy, id, 0, observe.FlagUnanswered | observe.FlagReset, short, short})

	long := s.ready()
	id, over = long.ask(lasting, 'l')
	<-over
	all = append(all, want{"long", long, id, 0, observe.FlagUnanswered | observe.FlagReset, lasting, 0})
	time.Sleep(settle)
	tr.finish()

	const exact = 25 * time.Millisecond // of sleeps on a busy machine
	unfinished := 0
	for _, w := range all {
		n := 0
		for _, r := range tr.of(observe.Served) {
			if int(r.Peer.Port()) != w.at.port || r.Seq != (w.id+1)/2 || r.Flags&observe.FlagMultiplexed == 0 {
				continue
			}
			if r.Flags&observe.FlagUnfinished != 0 {
				unfinished++
				continue
			}
			n++
			total, wait := time.Duration(r.TotalNS()), time.Duration(r.Ledger[observe.RecvWait])
			if r.Flags&w.flags != w.flags || r.Flags&w.never != 0 || (r.Status == observe.StatusError) != (w.flags != 0) ||
				(total-w.total).Abs() > exact || (wait-w.wait).Abs() > exact {
				tr.errorf("%s: want %v with %v not read, flags %v, status %v: %s", w.what, w.total, w.wait, w.flags.Names(), r.Status, describe(r, r.StartNS))
			}
		}
		if n != 1 {
			tr.errorf("%s: %d records", w.what, n)
		}
	}
	if unfinished != 1 {
		tr.errorf("%d streams were reported while they lasted, want 1", unfinished)
	}
}
