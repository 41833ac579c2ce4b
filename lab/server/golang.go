package server

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/slowray/slowray/lab/sandbox"
)

// GoRole is that of the HTTP service in Go.
const GoRole = "go-booking"

// Go is how the HTTP service in Go behaves, which is one of net/http as people
// write them. The zero value answers at once.
type Go struct {
	Work      time.Duration // before the answer, outside any lock
	Lock      time.Duration // before the answer, inside a lock that all requests take
	Locks     int           // times that a request takes and gives back the lock, without anything in it
	Transfers int           // of so many requests two lock two accounts, for 1 ms; 0 = none does
	Opposite  bool          // the second of the two locks them in the other order
	Pool      int           // goroutines that wait for work which never comes
	Heap      int           // pointers that live for good, in millions
	Garbage   int           // bytes that a request leaves behind
	GCPercent int           // GOGC; 0 = as Go has it
	MemoryMiB int           // GOMEMLIMIT; 0 = none
	Hot       int           // turns of one function that a request costs
	Asks      bool          // it asks a service in Python, which is as Setup.Asked says
	Retries   int           // … again and again, with longer and longer pauses
}

// bookings is the service.
type bookings struct {
	Go
	Addr string
	Port int
	TLS  string // the file of its key and certificate; empty = it speaks none
	Ask  string // the address of what it asks

	mu    sync.Mutex
	seats int
	from  account
	to    account
	count int
	next  sync.Mutex // of count
	live  []*node
	kept  []byte
	pool  chan func()
}

type account struct {
	mu      sync.Mutex
	balance int
}

type node struct {
	next  *node
	price int
}

func (b *bookings) serve() error {
	if b.GCPercent > 0 {
		debug.SetGCPercent(b.GCPercent)
	}
	for range b.Heap {
		var list *node
		for n := range 1_000_000 {
			list = &node{next: list, price: n}
		}
		b.live = append(b.live, list)
	}
	b.pool = make(chan func())
	for range b.Pool {
		go b.worker()
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("%s:%d", b.Addr, b.Port))
	if err != nil {
		return fmt.Errorf("go-booking: %w", err)
	}
	if b.TLS != "" {
		return http.ServeTLS(listener, http.HandlerFunc(b.handle), b.TLS, b.TLS)
	}
	return http.Serve(listener, http.HandlerFunc(b.handle))
}

func (b *bookings) worker() {
	for job := range b.pool {
		job()
	}
}

func (b *bookings) handle(w http.ResponseWriter, _ *http.Request) {
	if b.Transfers > 0 {
		b.next.Lock()
		b.count++
		turn := b.count % b.Transfers
		b.next.Unlock()
		switch {
		case turn == 0:
			transfer(&b.from, &b.to)
		case turn == 1 && b.Opposite:
			transfer(&b.to, &b.from)
		case turn == 1:
			transfer(&b.from, &b.to)
		}
	}
	for range b.Locks {
		b.mu.Lock()
		b.seats++
		b.mu.Unlock()
	}
	if b.Lock > 0 {
		b.book()
	}
	if b.Garbage > 0 {
		b.quote()
	}
	if b.Work > 0 {
		time.Sleep(b.Work)
	}
	if b.Hot > 0 {
		w.Header().Set("X-Price", strconv.Itoa(priceOfRoute(b.Hot)))
	}
	if b.Ask != "" {
		w.WriteHeader(b.quota())
	}
	fmt.Fprint(w, "Hello World\n")
}

// priceOfRoute is the hot function: each leg with each other one.
//
//go:noinline
func priceOfRoute(turns int) (total int) {
	for leg := range turns {
		total += leg * 7919 % 97
	}
	return total
}

// quota asks another service, again and again with longer and longer pauses, and
// passes on what it says.
func (b *bookings) quota() int {
	pause := 50 * time.Millisecond
	for tries := 0; ; tries++ {
		answer, err := http.Get(b.Ask)
		if err != nil {
			return http.StatusBadGateway
		}
		answer.Body.Close()
		switch {
		case answer.StatusCode < 400:
			return answer.StatusCode
		case tries == b.Retries && answer.StatusCode == http.StatusTooManyRequests:
			return http.StatusServiceUnavailable
		case tries == b.Retries:
			return http.StatusBadGateway
		}
		time.Sleep(pause)
		pause *= 2
	}
}

// book takes a seat, and asks somebody else for it while nobody may take another.
func (b *bookings) book() {
	b.mu.Lock()
	b.seats++
	time.Sleep(b.Lock)
	b.mu.Unlock()
}

// transfer locks two accounts, in the order in which it gets them.
func transfer(from, to *account) {
	from.mu.Lock()
	time.Sleep(time.Millisecond)
	to.mu.Lock()
	from.balance--
	to.balance++
	to.mu.Unlock()
	from.mu.Unlock()
}

// quote makes what is of no use after it.
func (b *bookings) quote() {
	for made := 0; made < b.Garbage; made += 4096 {
		b.kept = make([]byte, 4096)
	}
}

// golang starts the service in Go.
func (s *starter) golang() error {
	b := &bookings{Go: s.v.Go, Addr: s.v.ServerAddr, Port: s.v.FrontPort}
	var err error
	if b.TLS, err = s.tlsFile(); err != nil {
		return err
	}
	if s.v.Go.Asks {
		path, err := s.program("booking.py")
		if err != nil {
			return err
		}
		if b.Ask, err = s.asked(path); err != nil {
			return err
		}
	}
	data, err := json.Marshal(b)
	if err != nil {
		return err
	}
	spec := sandbox.Spec{Env: []string{appEnv + "=" + string(data)}, NoFile: s.v.NoFile, Cgroup: s.cgroup}
	if limit := s.v.Go.MemoryMiB; limit > 0 {
		spec.Env = append(spec.Env, fmt.Sprintf("GOMEMLIMIT=%dMiB", limit))
	}
	if err := s.start("go-booking", GoRole, spec); err != nil {
		return err
	}
	return s.box.Server.Listening(s.ctx, s.v.FrontPort)
}
