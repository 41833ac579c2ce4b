package main

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"

	"golang.org/x/net/http2"
)

// watched is a connection that notes when frames pass.
type watched struct {
	*tls.Conn
	port    int
	in, out frames
	mu      sync.Mutex
	streams map[uint32]*stream
}

type stream struct {
	asked, answered int64
	what            string
}

// frames goes from frame to frame in one direction.
type frames struct {
	head []byte
	skip int
}

func (f *frames) take(b []byte, see func(kind, flags byte, id uint32)) {
	for len(b) > 0 {
		if n := min(f.skip, len(b)); n > 0 {
			f.skip -= n
			b = b[n:]
			continue
		}
		n := min(9-len(f.head), len(b))
		f.head = append(f.head, b[:n]...)
		b = b[n:]
		if len(f.head) == 9 {
			f.skip = int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2])
			see(f.head[3], f.head[4], binary.BigEndian.Uint32(f.head[5:]))
			f.head = f.head[:0]
		}
	}
}

const headers, endStream = 1, 1 // a frame's type, a flag

func (c *watched) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	when := now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in.take(b[:n], func(kind, _ byte, id uint32) {
		if kind == headers {
			c.streams[id] = &stream{asked: when}
		}
	})
	return n, err
}

func (c *watched) Write(b []byte) (int, error) {
	when := now()
	c.mu.Lock()
	c.out.take(b, func(kind, flags byte, id uint32) {
		s := c.streams[id]
		if s == nil || kind > headers {
			return
		}
		if kind == headers {
			s.answered = when
		}
		if flags&endStream != 0 && s.what != "q" {
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintln(out, c.port, id, s.asked, s.answered, when, s.what)
			out.Flush()
		}
	})
	c.mu.Unlock()
	return c.Conn.Write(b)
}

// watchFrames has x/net/http2 serve connections that are watched.
func watchFrames(s *http.Server) {
	h2 := &http2.Server{MaxConcurrentStreams: 250}
	s.TLSConfig = &tls.Config{NextProtos: []string{"h2"}}
	s.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){"h2": func(s *http.Server, conn *tls.Conn, h http.Handler) {
		c := &watched{Conn: conn, in: frames{skip: len(http2.ClientPreface)}, streams: map[uint32]*stream{}}
		_, port, _ := net.SplitHostPort(conn.RemoteAddr().String())
		c.port, _ = strconv.Atoi(port)
		h2.ServeConn(c, &http2.ServeConnOpts{BaseConfig: s, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c.mu.Lock()
			c.streams[uint32(streamOf(w))].what = r.URL.Path[1:]
			c.mu.Unlock()
			act(w, r)
		})})
	}}
}
