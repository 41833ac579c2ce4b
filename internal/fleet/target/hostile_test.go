package target

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// rude is a server that answers each connection in a way of its own, until it is closed.
func rude(t *testing.T, answer func(c net.Conn, done <-chan struct{})) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				go io.Copy(io.Discard, c)
				answer(c, done)
			})
		}
	})
	t.Cleanup(func() {
		close(done)
		l.Close()
		all.Wait()
	})
	return l.Addr().String()
}

// forever writes a text again and again.
func forever(c net.Conn, done <-chan struct{}, pause time.Duration, text string) {
	for {
		c.SetWriteDeadline(time.Now().Add(time.Second))
		if _, err := io.WriteString(c, text); err != nil {
			return
		}
		select {
		case <-done:
			return
		case <-time.After(pause):
		}
	}
}

// bomb is gigabytes of nothing, packed.
func bomb() string {
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	for range 256 {
		zip.Write(make([]byte, 1<<20))
	}
	zip.Close()
	return b.String()
}

// A host ships to servers that somebody else runs. Whatever one answers, a Send ends when
// its time is over, and takes little memory; and nothing it says is taken for success.
func TestServersThatDoNotBehave(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\n"
	packed := bomb()
	for name, answer := range map[string]func(c net.Conn, done <-chan struct{}){
		"says nothing": func(_ net.Conn, done <-chan struct{}) { <-done },
		"drips its head": func(c net.Conn, done <-chan struct{}) {
			io.WriteString(c, head)
			forever(c, done, 10*time.Millisecond, "X: y\r\n")
		},
		"never ends its head": func(c net.Conn, done <-chan struct{}) {
			io.WriteString(c, head)
			forever(c, done, 0, "X: "+strings.Repeat("y", 60<<10)+"\r\n")
		},
		"never ends a line": func(c net.Conn, done <-chan struct{}) {
			io.WriteString(c, head+"X: ")
			forever(c, done, 0, strings.Repeat("y", 60<<10))
		},
		"hints for ever": func(c net.Conn, done <-chan struct{}) {
			forever(c, done, 0, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
		},
		"drips an error": func(c net.Conn, done <-chan struct{}) {
			io.WriteString(c, "HTTP/1.1 500 x\r\nTransfer-Encoding: chunked\r\n\r\n")
			forever(c, done, 10*time.Millisecond, "1\r\nx\r\n")
		},
		"errs without an end": func(c net.Conn, done <-chan struct{}) {
			io.WriteString(c, "HTTP/1.1 500 x\r\nTransfer-Encoding: chunked\r\n\r\n")
			forever(c, done, 0, "f000\r\n"+strings.Repeat("x", 0xf000)+"\r\n")
		},
		"errs with a bomb": func(c net.Conn, _ <-chan struct{}) {
			fmt.Fprintf(c, "HTTP/1.1 500 x\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(packed), packed)
		},
		"redirects": func(c net.Conn, _ <-chan struct{}) {
			io.WriteString(c, "HTTP/1.1 307 x\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n")
		},
		"redirects elsewhere": func(c net.Conn, _ <-chan struct{}) {
			io.WriteString(c, "HTTP/1.1 308 x\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")
		},
		"speaks something else": func(c net.Conn, _ <-chan struct{}) { io.WriteString(c, "SSH-2.0-x\r\n") },
		"waits an age": func(c net.Conn, _ <-chan struct{}) {
			io.WriteString(c, "HTTP/1.1 503 x\r\nRetry-After: 99999999999\r\nContent-Length: 0\r\n\r\n")
		},
	} {
		for i, url := range []string{"clickhouse://%s/slowray?dialect=plain", "victorialogs://%s", "otlp+http://%s", "otlp+grpc://%s"} {
			if testing.Short() && len(name)%4 != i { // each answer to one of them
				continue
			}
			t.Run(name+"/"+strings.TrimSuffix(url, "://%s"), func(t *testing.T) {
				address := rude(t, answer)
				d, err := Open(fmt.Sprintf(url, address))
				if err != nil {
					t.Fatal(err)
				}
				defer d.Target.Close()
				const limit = time.Second
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				r := store.Request{Why: store.Slow}
				r.Side, r.StartNS, r.Weight = observe.Served, time.Now().UnixNano(), 1
				b := &fleet.Batch{Host: &fleet.Host{Name: "a", ID: "b"}, Stream: fleet.Requests, First: 1, Last: 1, Count: 1,
					Requests: func(yield func(fleet.Position, *store.Request) bool) { yield(1, &r) }}
				begun := time.Now()
				budgettest.Within(t, 0, budgettest.Cost{Fixed: 16 << 20, CPU: 5 * time.Second}, func() {
					if err = d.Target.Send(ctx, b); err == nil {
						t.Error("it is taken for sent")
					}
				})
				if took := time.Since(begun); took > limit+5*time.Second {
					t.Errorf("it took %s", took)
				}
				if err != nil && (len(err.Error()) > 2000 || fleet.After(err) > time.Hour) {
					t.Errorf("%d bytes of error, and a pause of %s", len(err.Error()), fleet.After(err))
				}
			})
		}
	}
}
