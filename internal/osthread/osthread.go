// Package osthread runs what changes the state of an operating system thread: its
// namespaces, its signals at the end of a parent.
package osthread

import (
	"errors"
	"runtime"

	"golang.org/x/sys/unix"
)

var errGoexit = errors.New("function left its goroutine")

// Own calls f on a goroutine that is locked to a thread, and waits for it. The thread
// ends with the goroutine, and with it whatever f did to it, unless f unlocks it. The
// process's first thread is never taken: /proc/self and /proc/net show its namespaces
// for those of the whole process, and Go cannot end it, only park it for ever. The error
// is f's, or that f ended its goroutine (runtime.Goexit, as t.FailNow does).
func Own(f func() error) error {
	err, done := errGoexit, make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			err = f()
			return
		}
		err = Own(f) // while this goroutine keeps the first thread busy
		runtime.UnlockOSThread()
	}()
	<-done
	return err
}
