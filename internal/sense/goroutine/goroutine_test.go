package goroutine

import (
	"context"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/budget"
)

func readMemory(pid int, addr uint64, into []byte) (int, error) {
	if len(into) == 0 {
		return 0, nil
	}
	local := []unix.Iovec{{Base: (*byte)(unsafe.Pointer(&into[0]))}}
	local[0].SetLen(len(into))
	return unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(addr), Len: len(into)}}, 0)
}

// planted is how often TestOwnGoroutines ran in this process: those that wait for
// ever are still there.
var planted int

// TestOwnGoroutines plants one goroutine for each kind of wait and finds it.
func TestOwnGoroutines(t *testing.T) {
	planted++
	_, file, line, _ := runtime.Caller(0)
	var held sync.Mutex
	var written sync.RWMutex
	var group sync.WaitGroup
	channel, full := make(chan int), make(chan int)
	cond := sync.NewCond(&sync.Mutex{})
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	held.Lock()
	written.Lock()
	group.Add(1)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	defer func() {
		cancel()
		close(done)
		held.Unlock()
		written.Unlock()
		group.Done()
		close(channel)
		w.Close()
		<-full
	}()
	go func() { held.Lock(); defer held.Unlock() }()
	go func() { written.RLock(); defer written.RUnlock() }()
	go func() { group.Wait() }()
	go func() { <-channel }()
	go func() { full <- 1 }()
	go func() {
		select {
		case <-ctx.Done():
		case <-done:
		}
	}()
	go func() { select {} }()
	go func() { cond.L.Lock(); cond.Wait() }()
	go func() { r.Read(make([]byte, 1)) }()
	go func() { time.Sleep(3 * time.Second) }()
	time.Sleep(50 * time.Millisecond)

	p, err := Open(ample(), "/proc", os.Getpid(), readMemory)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	list, left, err := p.All(ample())
	if err != nil || left != 0 {
		t.Fatalf("%d left, %v", left, err)
	}
	count := map[Wait]int{}
	for i := range list {
		g := &list[i]
		if place := p.Place(g); place != nil && strings.Contains(place.Function, "TestOwnGoroutines.") {
			if place.File != file || place.Line <= line {
				t.Errorf("goroutine %d is at %v", g.ID, place)
			}
			count[g.Wait]++
			if g.Wait.Lock() && g.Object == 0 {
				t.Errorf("goroutine %d: the lock it waits for is not known", g.ID)
			}
		}
	}
	for _, want := range []Wait{Mutex, ReadLock, Group, Receive, Send, Select, Forever, Cond, IO, Sleep} {
		least, most := 1, 1
		switch want {
		case Forever, Cond:
			least, most = planted, planted
		case Sleep:
			most = planted // for three seconds
		}
		if n := count[want]; n < least || n > most {
			t.Errorf("%d goroutines wait for %v, want %d to %d", n, want, least, most)
		}
	}
	if t.Failed() {
		for i := range list {
			t.Log(list[i].ID, list[i].State, list[i].Wait, list[i].Object, list[i].Stack)
		}
	}
}

// TestDWARFAgrees compares what is known of this version of Go with what its
// compiler says.
func TestDWARFAgrees(t *testing.T) {
	p, err := Open(ample(), "/proc", os.Getpid(), readMemory)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	told, err := layoutInDWARF(ample(), p.elf)
	if err != nil {
		t.Skip(err) // go test leaves it out of what it runs at once
	}
	if told != p.layout {
		t.Errorf("known %+v, DWARF %+v", p.layout, told)
	}
}

// ample is a budget that no real program uses up.
func ample() *budget.Budget {
	return budget.New(context.Background(), budget.Limits{Bytes: 1 << 30, Wall: time.Minute})
}
