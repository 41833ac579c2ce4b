package watch

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/sense/request"
)

const (
	pollEvery  = 20 * time.Millisecond // the rings hold 50 ms of 150,000 requests per second and CPU
	flushEvery = time.Second
)

// requests records the requests of the window and sums them up meanwhile.
type requests struct {
	recorder *request.Recorder
	table    *request.Table
	slow     *slowRequests
	kept     *keptRequests
	before   []request.Counters
	stop     chan struct{}
	done     sync.WaitGroup
}

// startRequests begins to record; the window begins with it.
func startRequests(fs host.FS, kept *keptRequests) (*requests, error) {
	recorder, err := request.Start(request.Options{Split: true})
	if err != nil {
		return nil, err
	}
	names := fs.Names()
	q := &requests{recorder: recorder, table: request.NewTable(time.Now()), slow: newSlowRequests(), kept: kept, stop: make(chan struct{})}
	q.table.Master = names.Master
	q.before = recorder.Counters()
	q.done.Add(1)
	go q.poll()
	return q, nil
}

// poll is the only one to touch the table until it is done.
func (q *requests) poll() {
	defer q.done.Done()
	runtime.LockOSThread() // for pace
	defer runtime.UnlockOSThread()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	flush := pace{every: flushEvery}
	began := time.Now()
	for {
		select {
		case <-q.stop:
			return
		case <-ticker.C:
		}
		q.recorder.Poll(q.add)
		// With very many connections it becomes dear, and then rarer.
		flush.do(time.Since(began), func() { _ = q.recorder.Flush() })
	}
}

// add counts a request, and keeps what its waits are joined by.
func (q *requests) add(r *observe.Request) {
	q.table.Add(r)
	q.slow.note(r)
	q.kept.note(r)
}

// end takes what is left and gives the sums of the window.
func (q *requests) end(s *session) {
	end := time.Now()
	close(q.stop)
	q.done.Wait()
	if err := q.recorder.FlushAll(); err != nil {
		s.partialGap(observe.KindRequests, 0, "requests on idle connections", err)
	}
	q.recorder.Poll(q.add)
	counters := request.Since(q.before, q.recorder.Counters())
	s.out.Endpoints = q.table.Endpoints(end, counters)
	stats := q.recorder.Stats()
	s.lose("requests counted without a record of their own, to stay within the CPU budget", int64(stats.Sampled))
	s.lose("requests counted without a record of their own, because the ring was full", int64(stats.Lost))
	s.lose("connections that could not be watched for want of kernel memory", int64(stats.Connections))
	s.lose("connections counted under \"other\" because there were too many addresses", int64(stats.OtherEndpoints))
	s.lose("events of connections that the kernel kept from slowray, which was at work on the same CPU: requests may lack a part", int64(stats.Missed))
	s.lose("requests that were not followed from thread to thread: no kernel memory, or over 20,000 connections", int64(stats.Unfollowed))
	for _, what := range stats.Missing {
		s.partialGap(observe.KindRequests, 0, "", fmt.Errorf("%s", what))
	}
}

func (q *requests) close() {
	select {
	case <-q.stop:
	default:
		close(q.stop)
		q.done.Wait()
	}
	q.recorder.Close()
}
