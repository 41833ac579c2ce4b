package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/slowray/slowray/lab/rpc"
)

// hopSpec is a hop in Go.
type hopSpec struct {
	Hop
	Addr, Next string
	Options    []string // as those of the other languages have them
	Pair       string   // the file of its key and certificate; empty = it speaks no TLS
	NextRPC    bool     // what is behind it speaks gRPC
	NextTLS    bool     // … under TLS

	stock  sync.Mutex
	count  atomic.Int64
	client http.Client
	next   *grpc.ClientConn
	desks  chan struct{} // of Workers, one for each
}

func (h *hopSpec) option(name string) string {
	for n := 0; n+1 < len(h.Options); n += 2 {
		if h.Options[n] == name {
			return h.Options[n+1]
		}
	}
	return ""
}

func (h *hopSpec) serve() error {
	backlog := h.Backlog
	if backlog == 0 {
		backlog = 1024
	}
	fd, err := listen(h.Addr, h.Port, backlog)
	if err != nil {
		return fmt.Errorf("hop: %w", err)
	}
	listener, err := net.FileListener(os.NewFile(uintptr(fd), "listener"))
	if err != nil {
		return fmt.Errorf("hop: %w", err)
	}
	timeout := h.patience()
	h.client = http.Client{Timeout: timeout, Transport: &http.Transport{MaxIdleConnsPerHost: 512, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		return (&net.Dialer{Timeout: timeout}).DialContext(ctx, network, addr)
	}}}
	if h.NextRPC {
		if h.next, err = rpc.Dial(h.Next, h.NextTLS, nil); err != nil {
			return fmt.Errorf("hop: %w", err)
		}
	}
	if h.Workers > 0 {
		h.desks = make(chan struct{}, h.Workers)
	}
	if h.RPC {
		return rpc.Serve(listener, h.Pair, h)
	}
	server := &http.Server{Handler: http.HandlerFunc(h.handle)}
	return server.Serve(listener)
}

// patience is how long a call may take.
func (h *hopSpec) patience() time.Duration {
	if h.Timeout == 0 {
		return 10 * time.Second
	}
	return h.Timeout
}

// enter waits until there are less than Workers requests in hand.
func (h *hopSpec) enter() {
	if h.desks != nil {
		h.desks <- struct{}{}
	}
}

func (h *hopSpec) leave() {
	if h.desks != nil {
		<-h.desks
	}
}

func (h *hopSpec) handle(w http.ResponseWriter, r *http.Request) {
	h.enter()
	defer h.leave()
	status, body := h.answer(r.Context()), "ok\n"
	if status >= 400 {
		body = "no\n"
	}
	w.WriteHeader(status)
	io.WriteString(w, body)
}

func (h *hopSpec) answer(ctx context.Context) int {
	if h.count.Add(1)%int64(max(h.Every, 1)) == 0 {
		if h.Sleep > 0 {
			h.awaitSupplier()
		}
		if h.Spin > 0 {
			tariff(h.Spin)
		}
		if h.Lock > 0 {
			h.reserve()
		}
	}
	if h.Ticket && h.takeTicket() != nil {
		return 500
	}
	if h.Read {
		if _, err := os.ReadFile(h.option("--read")); err != nil {
			return 500
		}
	}
	if h.Log > 0 {
		fmt.Println(strings.Repeat("x", h.Log))
	}
	switch {
	case h.Next == "":
		return 200
	case h.NextRPC:
		return h.askNextRPC(ctx)
	}
	return h.askNext(ctx)
}

func (h *hopSpec) awaitSupplier() { time.Sleep(h.Sleep) }

func (h *hopSpec) reserve() {
	h.stock.Lock()
	time.Sleep(h.Lock)
	h.stock.Unlock()
}

// tariff computes for so long, on the clock of its thread.
func tariff(d time.Duration) (total int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for end := threadTime() + d; threadTime() < end; {
		for n := range 20_000 {
			total = (total*31 + n) % 1_000_003
		}
	}
	return total
}

func threadTime() time.Duration {
	const rusageThread = 1 // RUSAGE_THREAD, include/uapi/linux/resource.h
	var used syscall.Rusage
	if err := syscall.Getrusage(rusageThread, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func (h *hopSpec) takeTicket() error {
	f, err := os.OpenFile(h.option("--flock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
}

func (h *hopSpec) askNext(ctx context.Context) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.Next+"/", nil)
	if err != nil {
		return 500
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return 502
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}
