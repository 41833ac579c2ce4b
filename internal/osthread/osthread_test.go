package osthread

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Own never takes the first thread, not even where that one is asked.
func TestOwn(t *testing.T) {
	for range 200 {
		ran := false
		err := Own(func() error {
			if ran = true; unix.Gettid() == unix.Getpid() {
				t.Error("on the first thread")
			}
			runtime.UnlockOSThread() // or 200 threads would begin and end
			return nil
		})
		if !ran || err != nil {
			t.Fatalf("ran %v: %v", ran, err)
		}
	}
}

// What leaves its goroutine does not keep the caller waiting.
func TestOwnGoexit(t *testing.T) {
	if err := Own(func() error { runtime.Goexit(); return nil }); err == nil {
		t.Error("no error")
	}
}
