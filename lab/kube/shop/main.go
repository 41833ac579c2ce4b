// Command shop is every program of the shop that the node of lab/kube runs, and the one
// that holds a pod's namespaces; which one, its name says: each is an image of its own.
// Servers answer on port 8080, /healthz at once and /audit slowly.
//
//	stock [DIR]      answers, and writes a line for each request to a file in DIR
//	cart URL         works for some milliseconds and asks URL, for each request
//	client URL N     asks URL, N times a second, a new connection every hundred requests
//	pause            waits
//
// Each answer names the pod that gave it, in the header Pod.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var err error
	switch as, args := filepath.Base(os.Args[0]), os.Args[1:]; {
	case as == "pause":
		<-ctx.Done()
	case as == "stock" && len(args) == 0:
		err = serve(ctx, func(*http.Request) error { return nil })
	case as == "stock" && len(args) == 1:
		err = bookkeep(ctx, args[0])
	case as == "cart" && len(args) == 1:
		err = serve(ctx, func(r *http.Request) error { return order(r.Context(), args[0]) })
	case as == "client" && len(args) == 2:
		err = ask(ctx, args[0], args[1])
	default:
		err = fmt.Errorf("no such program: %q", os.Args)
	}
	if err != nil {
		log.Fatal("shop: ", err)
	}
}

// drain is how long a server still serves after SIGTERM: endpoints are updated
// meanwhile.
const drain = 2 * time.Second

// serve answers each request by what work gives, until SIGTERM.
func serve(ctx context.Context, work func(*http.Request) error) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok\n") })
	mux.HandleFunc("/audit", func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(1500 * time.Millisecond) // all that is on the shelves is counted
		io.WriteString(w, "ok\n")
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(podHeader, self)
		if err := work(r); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		fmt.Fprintln(w, "ok", r.URL.Path)
	})
	server := &http.Server{Addr: ":8080", Handler: mux}
	ended := make(chan error, 1)
	go func() {
		<-ctx.Done()
		time.Sleep(drain)
		last, cancel := context.WithTimeout(context.Background(), drain)
		defer cancel()
		ended <- server.Shutdown(last)
	}()
	if err := server.ListenAndServe(); err != http.ErrServerClosed {
		return err
	}
	return <-ended
}

// bookkeep serves, and writes of each request when it came, between which addresses, who
// answered and who asked.
func bookkeep(ctx context.Context, dir string) error {
	f, err := os.Create(filepath.Join(dir, self))
	if err != nil {
		return err
	}
	book := bufio.NewWriter(f)
	var mu sync.Mutex
	err = serve(ctx, func(r *http.Request) error {
		if r.Header.Get(podHeader) == "" { // a probe
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		_, err := fmt.Fprintln(book, time.Now().UnixNano(), r.Context().Value(http.LocalAddrContextKey), r.RemoteAddr, self, r.Header.Get(podHeader))
		return err
	})
	mu.Lock()
	defer mu.Unlock()
	return errors.Join(err, book.Flush(), f.Close())
}

// podHeader names the pod that asks, or answers.
const podHeader = "Pod"

// order is what cart does for a request: three milliseconds of CPU, whatever its limit.
func order(ctx context.Context, stock string) error {
	n := time.Now().UnixNano()
	for range 3_000_000 {
		n = n*6364136223846793005 + 1442695040888963407
	}
	sink.Store(n)
	return get(ctx, http.DefaultClient, stock)
}

// sink keeps the compiler from leaving out the work.
var sink atomic.Int64

// self is this pod.
var self, _ = os.Hostname() // empty where that is not known

func get(ctx context.Context, client *http.Client, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	r.Header.Set(podHeader, self)
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, answer.Status)
	}
	return nil
}

// workers is how many requests wait at once at most: the load is bounded.
const workers = 8

// perConnection is how many requests a connection lives: connections are balanced, not
// requests.
const perConnection = 100

// ask asks rate times a second, less where answers are slow, and says every ten seconds
// what came of it.
func ask(ctx context.Context, url, rate string) error {
	n, err := strconv.Atoi(rate)
	if err != nil || n <= 0 {
		return fmt.Errorf("no rate: %q", rate)
	}
	var done, failed atomic.Int64
	turns := make(chan struct{})
	for range workers {
		go func() {
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}, Timeout: 10 * time.Second}
			for count := 1; ; count++ {
				<-turns
				if err := get(ctx, client, url); err != nil {
					failed.Add(1)
				}
				done.Add(1)
				if count%perConnection == 0 {
					client.CloseIdleConnections()
				}
			}
		}()
	}
	tick, tell := time.NewTicker(time.Second/time.Duration(n)), time.NewTicker(10*time.Second)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tell.C:
			log.Printf("%d requests, %d failed", done.Swap(0), failed.Swap(0))
		case <-tick.C:
			select {
			case turns <- struct{}{}:
			default: // all workers wait for answers
			}
		}
	}
}
