package kerneltest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/bpf"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
)

// h2 is a server of HTTP/2 in the clear, a client with one connection to it, and
// a recorder that tells their requests apart.
type h2 struct {
	t        *testing.T
	client   *http.Client
	url      string
	port     int
	recorder *request.Recorder
	silent   chan time.Time // when a request for /silent was there, and when it was given up
}

// multiplexed starts all three. What a path does: /NUMBER answers after so many
// milliseconds, /missing with 404, /big with 300,000 bytes, /silent never.
func multiplexed(t *testing.T, address string) *h2 {
	t.Helper()
	var clear http.Protocols
	clear.SetUnencryptedHTTP2(true)
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("SKIP: %v", err)
	}
	silent := make(chan time.Time, 4)
	server := &http.Server{Protocols: &clear, Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		io.Copy(io.Discard, q.Body)
		switch path := q.URL.Path[1:]; path {
		case "missing":
			w.WriteHeader(http.StatusNotFound)
		case "teapot": // has no number of its own in HPACK's table
			w.WriteHeader(http.StatusTeapot)
		case "big":
			w.Write(bytes.Repeat([]byte("x"), 300_000))
		case "silent":
			silent <- time.Now()
			<-q.Context().Done()
			silent <- time.Now()
		default:
			ms, _ := strconv.Atoi(path)
			time.Sleep(time.Duration(ms) * time.Millisecond)
			io.WriteString(w, path)
		}
	})}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	transport := &http.Transport{Protocols: &clear}
	t.Cleanup(transport.CloseIdleConnections)
	s := &h2{t: t, client: &http.Client{Transport: transport}, url: "http://" + listener.Addr().String() + "/", port: listener.Addr().(*net.TCPAddr).Port, silent: silent}
	s.recorder = start(t, request.Options{Ports: []int{s.port}, Budget: -1})
	for deadline := time.Now().Add(time.Minute); ; {
		s.together(slices.Repeat([]string{"5"}, 10)...)
		told := false
		s.recorder.Poll(func(q *observe.Request) { told = told || q.Flags&observe.FlagMultiplexed != 0 })
		for _, what := range s.recorder.Stats().Missing {
			if strings.Contains(what, "HTTP/2") {
				if kernelHas(t, "5.17") {
					t.Fatal(what)
				}
				t.Skipf("SKIP: %s", what)
			}
		}
		if told {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("requests overlap, and none was distinguished: %+v", s.recorder.Stats())
		}
	}
	s.records() // those of the attempts
	return s
}

// get asks for a path and says how long the answer took.
func (s *h2) get(ctx context.Context, path string, body io.Reader) time.Duration {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, body)
	if err != nil {
		s.t.Error(err)
		return 0
	}
	began := time.Now()
	answer, err := s.client.Do(q)
	if err != nil {
		if ctx.Err() == nil {
			s.t.Errorf("%s: %v", path, err)
		}
		return time.Since(began)
	}
	defer answer.Body.Close()
	io.Copy(io.Discard, answer.Body)
	return time.Since(began)
}

// together asks for several paths at once, and says how long each took.
func (s *h2) together(paths ...string) []time.Duration {
	took := make([]time.Duration, len(paths))
	var all sync.WaitGroup
	for i, path := range paths {
		all.Go(func() { took[i] = s.get(context.Background(), path, nil) })
	}
	all.Wait()
	return took
}

func (s *h2) records() (served, called []observe.Request) {
	s.t.Helper()
	each := func(q *observe.Request) {
		if q.Side == observe.Served {
			served = append(served, *q)
		} else {
			called = append(called, *q)
		}
	}
	time.Sleep(100 * time.Millisecond)
	s.recorder.Poll(each) // Flush makes room with it
	if err := s.recorder.FlushAll(); err != nil {
		s.t.Fatal(err)
	}
	s.recorder.Poll(each)
	return served, called
}

// TestClearLoads: programs at functions of TLS libraries load wherever those that tell
// streams apart do. What they see is tested with real libraries, which no small system has.
func TestClearLoads(t *testing.T) {
	err := start(t, request.Options{Budget: -1}).TellClear()
	if lacks := new(bpf.LacksError); errors.As(err, &lacks) && !kernelHas(t, lacks.Since) {
		t.Skipf("SKIP: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestHTTP2Times: of requests that are under way at once on one connection each
// has its own time, held against what the server did and the client waited.
func TestHTTP2Times(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		s := multiplexed(t, address)
		var paths []string
		var slept []time.Duration
		for i := range 60 {
			ms := 20 + 7*i
			paths, slept = append(paths, strconv.Itoa(ms)), append(slept, time.Duration(ms)*time.Millisecond)
		}
		took := s.together(paths...)
		served, called := s.records()
		slices.Sort(took)
		for side, records := range map[string][]observe.Request{"served": served, "called": called} {
			if len(records) != len(paths) {
				t.Errorf("%s %s: %d records of %d requests", address, side, len(records), len(paths))
				continue
			}
			// Which request has which time, a record does not tell; a short sleep may have
			// waited long to be read. Of what bounds each, the nth bounds the nth.
			var worked []time.Duration
			for i := range records {
				worked = append(worked, time.Duration(records[i].Ledger[observe.Server]+records[i].Ledger[observe.Network]))
			}
			slices.Sort(worked)
			slices.SortFunc(records, func(a, b observe.Request) int { return int(a.TotalNS() - b.TotalNS()) })
			for i := range records {
				q := &records[i]
				// The recorder's request lies within the client's, and the
				// server's sleep within it.
				total := time.Duration(q.TotalNS())
				if total < slept[i] || total > took[i]+time.Duration(q.RTTNS) {
					t.Errorf("%s %s: a request takes %v, the server slept %v and the client waited %v", address, side, total, slept[i], took[i])
				}
				if worked[i] < slept[i] {
					t.Errorf("%s %s: server and network %v, it slept %v", address, side, worked[i], slept[i])
				}
				if q.Status != observe.StatusOK || q.HTTP != 200 || q.Flags&observe.FlagOverlapped != 0 || q.PID == 0 {
					t.Errorf("%s %s: status %v, HTTP %d, flags %v, pid %d", address, side, q.Status, q.HTTP, q.Flags.Names(), q.PID)
				}
				if !strings.HasSuffix(s.url, q.Local.String()+"/") && !strings.HasSuffix(s.url, q.Peer.String()+"/") {
					t.Errorf("addresses %v and %v, the server is %s", q.Local, q.Peer, s.url)
				}
			}
		}
	}
}

// TestHTTP2Sizes: answers and requests of many frames, which begin anywhere in a
// segment, and statuses.
func TestHTTP2Sizes(t *testing.T) {
	s := multiplexed(t, "127.0.0.1:0")
	const turns = 30
	for range turns {
		var all sync.WaitGroup
		for _, path := range []string{"big", "missing", "teapot", "1"} {
			all.Go(func() { s.get(context.Background(), path, bytes.NewReader(make([]byte, 40_000))) })
		}
		all.Wait()
	}
	served, called := s.records()
	for side, records := range map[string][]observe.Request{"served": served, "called": called} {
		big, statuses := 0, map[int]int{}
		for i := range records {
			q := &records[i]
			asked, answered := q.BytesIn, q.BytesOut
			if q.Side == observe.Called {
				asked, answered = answered, asked
			}
			if answered == 300_000 {
				big++
			}
			if asked != 40_000 {
				t.Errorf("%s: %d bytes asked, want 40,000", side, asked)
			}
			statuses[q.HTTP/100]++
		}
		// A status that HPACK has no number for is spelled out once, and then has a
		// number that only who reads all headers knows.
		if len(records) != 4*turns || big != turns || statuses[2] != 2*turns || statuses[4] < turns+1 || statuses[4]+statuses[0] != 2*turns {
			t.Errorf("%s: %d records, %d of 300,000 bytes, statuses %v; want %d, %d, and half of them 2xx", side, len(records), big, statuses, 4*turns, turns)
		}
	}
}

// TestHTTP2Ends: a request that is given up, one whose connection is closed, and
// one that lasts.
func TestHTTP2Ends(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	s := multiplexed(t, "127.0.0.1:0")
	ctx, cancel := context.WithCancel(context.Background())
	var there, canceled time.Time
	go func() {
		there = <-s.silent
		time.Sleep(50 * time.Millisecond)
		canceled = time.Now()
		cancel()
	}()
	asked := time.Now()
	s.get(ctx, "silent", nil)
	least, most := canceled.Sub(there), (<-s.silent).Sub(asked)
	served, called := s.records()
	if len(served) != 1 || len(called) != 1 {
		t.Fatalf("a request that is given up has %d and %d records", len(served), len(called))
	}
	for _, q := range []observe.Request{served[0], called[0]} {
		if q.Status != observe.StatusError || q.Flags&observe.FlagUnanswered == 0 || q.TotalNS() < int64(least-grain) || q.TotalNS() > int64(most+grain) {
			t.Errorf("given up after %v to %v: status %v, flags %v, %v", least, most, q.Status, q.Flags.Names(), time.Duration(q.TotalNS()))
		}
	}

	lasting, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.get(lasting, "silent", nil)
	}()
	time.Sleep(1300 * time.Millisecond)
	served, called = s.records()
	if len(served) != 1 || len(called) != 1 || served[0].Flags&observe.FlagUnfinished == 0 || called[0].Flags&observe.FlagUnfinished == 0 {
		t.Errorf("a request that lasts has %d and %d records", len(served), len(called))
	}
	s.client.CloseIdleConnections() // it is not idle
	end()
	<-done
	if served, called = s.records(); len(served) != 1 || len(called) != 1 {
		t.Errorf("its end has %d and %d records", len(served), len(called))
	}
}
