package watch

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// TestSeesAServiceOfThisProcess watches a listener of this test with a known
// number of connections.
func TestSeesAServiceOfThisProcess(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to see connections being made")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	ctx, cancel := context.WithCancel(context.Background())
	made, began := make(chan int, 1), make(chan struct{})
	var once sync.Once
	go func() {
		n := 0
		<-began // the programs are attached
		for ; n < 20; n++ {
			a, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				break
			}
			t.Cleanup(func() { a.Close() })
			if b, err := l.Accept(); err == nil {
				t.Cleanup(func() { b.Close() })
			}
		}
		time.Sleep(500 * time.Millisecond)
		made <- n
		cancel() // as Ctrl-C does
	}()
	o, err := Run(ctx, Options{For: 30 * time.Second, Filter: observe.Filter{Port: port}, Progress: func(elapsed time.Duration) {
		if elapsed > 0 {
			once.Do(func() { close(began) })
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if o.Window.Seconds > 10 {
		t.Errorf("the window lasted %.1f s, although it was ended early", o.Window.Seconds)
	}
	n := <-made
	for _, ns := range o.Namespaces {
		for _, ln := range ns.Listeners {
			if ln.Port != port {
				continue
			}
			if ln.PID != os.Getpid() || ln.Limit == 0 || ln.Samples == 0 || len(ln.ClientPIDs) != 1 || ln.ClientPIDs[0] != os.Getpid() {
				t.Errorf("%+v", ln)
			}
			if ln.Opened == 0 || int(ln.Opened) > n {
				t.Errorf("%d connections opened, %d were made", ln.Opened, n)
			}
			return
		}
	}
	t.Errorf("the listener at port %d was not seen", port)
}

func TestFilterThatNamesNothing(t *testing.T) {
	for name, f := range map[string]observe.Filter{
		"pid": {PID: 1 << 30}, "unit": {Unit: "no-such-unit"}, "container": {Container: "0123456789ab"}, "port": {Port: 1},
	} {
		_, err := Run(context.Background(), Options{For: time.Second, Filter: f})
		var notFound *NotFoundError
		if !errors.As(err, &notFound) {
			t.Errorf("%s: %v, want a NotFoundError", name, err)
		}
	}
}

// TestProcessesOfTheWindow: what a process did while slowray began is none of the
// window's; who ended meanwhile is kept.
func TestProcessesOfTheWindow(t *testing.T) {
	s := &session{fs: host.Default()}
	s.procs, _ = s.fs.Processes()
	of := func(pid int) *host.ProcSample {
		at := slices.IndexFunc(s.procs, func(p host.ProcSample) bool { return p.PID == pid })
		if at < 0 {
			t.Fatalf("pid %d was not seen", pid)
		}
		return &s.procs[at]
	}
	const gone = 1 << 30 // above pid_max
	s.procs = append(s.procs, host.ProcSample{PID: gone, Comm: "gone"})
	of(os.Getpid()).Program = "python"
	before := of(os.Getpid()).RunNS
	for begun := time.Now(); time.Since(begun) < 100*time.Millisecond; {
	}
	if err := (&processes{}).begin(s); err != nil {
		t.Fatal(err)
	}
	if now := of(os.Getpid()); now.RunNS <= before || now.Program != "python" {
		t.Errorf("ran for %d ns, then %d; %q", before, now.RunNS, now.Program)
	}
	if of(gone).Comm != "gone" {
		t.Error("who ended is forgotten")
	}
}
