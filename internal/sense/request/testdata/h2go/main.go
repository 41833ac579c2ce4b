// Command h2go serves HTTP/2 under TLS, and says what it did and when.
//
//	h2go handlers|frames CERTIFICATE KEY
//	h2go load PORT CONNECTIONS STREAMS DURATION
//
// It prints its port, then a line for each stream that is over: the port of its caller, its
// number, ns (CLOCK_MONOTONIC), and what was asked. Times are those at which its handler
// began, began to answer and was done (handlers, of net/http), or at which HEADERS were read,
// HEADERS were written and the stream's end was (frames, of x/net/http2). What is asked is
// /WHAT?ms=DELAY,
//
//	a  answer after the delay
//	b  answer with 300,000 bytes after it
//	l  begin to answer at once, go on every 20 ms, end after it
//	n  never answer
//	q  nothing: no line either
//	r  reset the stream after it
//	x  404 after it
package main

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"reflect"
	"strconv"
	"sync"
	"time"

	"github.com/slowray/slowray/internal/sense/request/testdata/h2go/framelog"
)

// streamOf is the number of a stream, which a handler is not told.
func streamOf(w http.ResponseWriter) (id uint64) {
	return reflect.ValueOf(w).Elem().FieldByName("rws").Elem().FieldByName("stream").Elem().FieldByName("id").Uint()
}

var (
	mu  sync.Mutex
	out = bufio.NewWriter(os.Stdout)
	big = make([]byte, 300_000)
)

// act does what was asked, and says when it began to answer.
func act(w http.ResponseWriter, r *http.Request) (answered int64) {
	ms, _ := strconv.Atoi(r.URL.Query().Get("ms"))
	delay := time.Duration(ms) * time.Millisecond
	answer := func(body []byte) {
		if answered == 0 {
			answered = framelog.Now()
		}
		_, _ = w.Write(body)
		w.(http.Flusher).Flush()
	}
	switch r.URL.Path {
	case "/l":
		for end := time.Now().Add(delay); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			answer([]byte("more"))
		}
	case "/n":
		<-r.Context().Done()
	case "/r":
		time.Sleep(delay)
		panic(http.ErrAbortHandler)
	case "/x":
		time.Sleep(delay)
		w.WriteHeader(http.StatusNotFound)
		answer(nil)
	case "/b":
		time.Sleep(delay)
		answer(big)
	case "/q":
	default:
		time.Sleep(delay)
		answer([]byte("ok"))
	}
	return answered
}

func handle(w http.ResponseWriter, r *http.Request) {
	asked := framelog.Now()
	answered := act(w, r)
	if r.URL.Path == "/q" {
		return
	}
	_, port, _ := net.SplitHostPort(r.RemoteAddr)
	mu.Lock()
	defer mu.Unlock()
	fmt.Fprintln(out, port, streamOf(w), asked, answered, framelog.Now(), r.URL.Path[1:])
	out.Flush()
}

func main() {
	if os.Args[1] == "load" {
		connections, _ := strconv.Atoi(os.Args[3])
		atOnce, _ := strconv.Atoi(os.Args[4])
		lasts, _ := time.ParseDuration(os.Args[5])
		load(os.Args[2], connections, atOnce, lasts)
		return
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(l.Addr().(*net.TCPAddr).Port)
	s := &http.Server{Handler: http.HandlerFunc(handle), ErrorLog: log.New(io.Discard, "", 0)}
	if os.Args[1] == "frames" {
		watchFrames(s)
	}
	log.Fatal(s.ServeTLS(l, os.Args[2], os.Args[3]))
}
