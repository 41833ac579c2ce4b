package main

import (
	"crypto/tls"
	"fmt"
	"log"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// load asks a server that is at a port for streams, as many at once, on so many connections,
// and prints how many were answered in a second.
func load(port string, connections, atOnce int, lasts time.Duration) {
	var answered atomic.Int64
	var all sync.WaitGroup
	end := time.Now().Add(lasts)
	for range connections {
		c := &http.Client{Transport: &http2.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		for range atOnce / connections {
			all.Go(func() {
				for time.Now().Before(end) {
					r, err := c.Get("https://127.0.0.1:" + port + "/q")
					if err != nil {
						log.Fatal(err)
					}
					r.Body.Close()
					answered.Add(1)
				}
			})
		}
	}
	all.Wait()
	fmt.Printf("%.0f\n", float64(answered.Load())/lasts.Seconds())
}
