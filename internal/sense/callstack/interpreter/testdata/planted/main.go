// Command planted MODE SECONDS is as planted.c.
package main

import (
	"os"
	"strconv"
	"syscall"
	"time"
)

var sink int

//go:noinline
func burn_most() {
	s := 0
	for i := range 3_000_000 {
		s += i % 7
	}
	sink = s
}

//go:noinline
func burn_some() {
	s := 0
	for i := range 1_000_000 {
		s += i % 7
	}
	sink = s
}

//go:noinline
func wait_on_db() {
	t := syscall.NsecToTimespec(20e6)
	_ = syscall.Nanosleep(&t, nil)
	sink++
}

//go:noinline
func handle_request(mode string) {
	if mode == "wait" {
		began := time.Now()
		wait_on_db()
		println(time.Since(began).Nanoseconds())
	} else {
		burn_most()
		burn_some()
	}
	sink++
}

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[2], 64)
	for end := time.Now().Add(time.Duration(seconds * float64(time.Second))); time.Now().Before(end); {
		handle_request(os.Args[1])
	}
}
