package main

import (
	"crypto/tls"
	"fmt"
	"net/http"

	"golang.org/x/net/http2"

	"github.com/slowray/slowray/internal/sense/request/testdata/h2go/framelog"
)

// watchFrames has x/net/http2 serve connections that are watched.
func watchFrames(s *http.Server) {
	h2 := &http2.Server{MaxConcurrentStreams: 250}
	s.TLSConfig = &tls.Config{NextProtos: []string{"h2"}}
	s.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){"h2": func(s *http.Server, conn *tls.Conn, _ http.Handler) {
		c := framelog.New(conn, true, func(s *framelog.Stream) {
			if s.Reset != "" || s.Path == "/q" {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintln(out, s.Port, s.ID, s.Asked, s.Answered, s.Ended, s.Path[1:])
			out.Flush()
		})
		h2.ServeConn(c, &http2.ServeConnOpts{BaseConfig: s, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { act(w, r) })})
	}}
}
