// The Go half of the planted truths: calls of known number and duration, on a
// line of standard input.
package main

import (
	"bufio"
	"fmt"
	"os"
	"sync"
	"time"
)

//go:noinline
func handle(name string, ms int) int {
	grow(20) // the stack moves while this call is under way
	time.Sleep(time.Duration(ms) * time.Millisecond)
	return len(name)
}

//go:noinline
func grow(n int) int {
	var big [512]byte
	if n == 0 {
		return 0
	}
	big[n] = byte(n)
	return grow(n-1) + int(big[n])
}

//go:noinline
func panics(i int) {
	if i%2 == 0 {
		panic("planted")
	}
}

//go:noinline
func guarded(i int) {
	defer func() { _ = recover() }()
	panics(i)
}

type worker struct{ n int }

//go:noinline
func (w *worker) step(by int) int { return w.n + by }

func main() {
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				for range 4 {
					handle(fmt.Sprintf("request-%d", i), 20)
				}
			})
		}
		for i := range 10 {
			guarded(i)
		}
		w := &worker{}
		for i := range 30 {
			w.step(i)
		}
		wg.Wait()
		fmt.Println("done")
	}
}
