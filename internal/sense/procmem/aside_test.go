package procmem

import (
	"errors"
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"
)

func TestRead(t *testing.T) {
	memory := make([]byte, 3*readAtOnce+17)
	for i := range memory {
		memory[i] = byte(i * 7 / 3)
	}
	into := make([]byte, len(memory))
	n, err := Read(os.Getpid(), uint64(uintptr(unsafe.Pointer(&memory[0]))), into)
	runtime.KeepAlive(memory)
	if err != nil || n != len(memory) || string(into) != string(memory) {
		t.Errorf("%d bytes of %d: %v", n, len(memory), err)
	}
	if n, err := Read(os.Getpid(), 1<<12, into); n > 0 || err == nil {
		t.Errorf("%d bytes, %v, where nothing is mapped", n, err)
	}
}

// A process whose memory does not come holds up nobody else, and is read again once it
// has come. When too many do not come nothing is read.
func TestReadStuck(t *testing.T) {
	real, realHang := readMemory, mayHang
	mayHang = func(int) bool { return true }
	release := make(chan struct{})
	readMemory = func(pid int, _ uint64, into []byte) (int, error) {
		if pid < 100 {
			<-release
		}
		into[0] = 'x'
		return len(into), nil
	}
	b := make([]byte, 1)
	for pid := range maxLeft {
		began := time.Now()
		if _, err := Read(pid, 1<<20, b); !errors.Is(err, ErrNoAnswer) {
			t.Errorf("process %d: %v", pid, err)
		}
		if took := time.Since(began); took < readLimit || took > readLimit+2*time.Second {
			t.Errorf("process %d: %s", pid, took)
		}
		began = time.Now()
		if _, err := Read(pid, 1<<20, b); !errors.Is(err, ErrNoAnswer) || time.Since(began) >= readLimit {
			t.Errorf("process %d again: %v after %s", pid, err, time.Since(began))
		}
		if n, err := Read(100, 1<<20, b); pid < maxLeft-1 && (n != 1 || err != nil) {
			t.Errorf("next to %d that are stuck: %d bytes, %v", pid+1, n, err)
		}
	}
	if _, err := Read(100, 1<<20, b); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("next to %d that are stuck: %v", maxLeft, err)
	}
	close(release)
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		askers.Lock()
		left := len(askers.stuck) + askers.left
		askers.Unlock()
		if left == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d are stuck for ever", left)
		}
	}
	if n, err := Read(1, 1<<20, b); n != 1 || err != nil || b[0] != 'x' {
		t.Errorf("released: %d bytes, %v", n, err)
	}
	readMemory, mayHang = real, realHang
}

func BenchmarkRead(b *testing.B) {
	memory, into := make([]byte, 64), make([]byte, 64)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Read(os.Getpid(), uint64(uintptr(unsafe.Pointer(&memory[0]))), into); err != nil {
			b.Fatal(err)
		}
	}
}
