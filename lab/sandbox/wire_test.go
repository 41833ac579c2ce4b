package sandbox

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/lab/drop"
	"github.com/slowray/slowray/lab/link"
)

// openWired opens a sandbox with a backend and these wires.
func openWired(t *testing.T, front, back Wire) *Box {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: a sandbox needs root")
	}
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		t.Skipf("SKIPPED: %v: wires are NOT tried", err)
	}
	lock, err := Acquire(t.Context(), func(s string) { t.Log(s) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Release() })
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(t.Context(), lock, Options{
		Executable: exe, Lifetime: time.Minute,
		ServerAddr: "10.9.8.1/30", ClientAddr: "10.9.8.2/30", Wire: front,
		ServerBackAddr: "10.9.9.1/30", BackendAddr: "10.9.9.2/30", BackWire: back,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// connectTime makes one TCP connection from one side to a port of another and gives
// how long it took to connect.
func connectTime(t *testing.T, from, to *Side, addr string) time.Duration {
	t.Helper()
	const port = "1234"
	serve := "import socket; s = socket.create_server(('" + addr + "', " + port + ")); s.accept(); s.accept()"
	if _, err := to.Start(t.Context(), Spec{Args: []string{"/usr/bin/python3", "-c", serve}}); err != nil {
		t.Fatal(err)
	}
	if err := to.Listening(t.Context(), 1234); err != nil {
		t.Fatal(err)
	}
	out, err := from.Output(t.Context(), "/usr/bin/python3", "-c",
		"import socket, time; t = time.time(); socket.create_connection(('"+addr+"', "+port+"), 5); print('%fs' % (time.time() - t))")
	if err != nil {
		t.Fatal(err)
	}
	took, err := time.ParseDuration(strings.TrimSpace(out))
	if err != nil {
		t.Fatal(err)
	}
	return took
}

func TestEmulatedWires(t *testing.T) {
	b := openWired(t,
		Wire{Emulated: true, ToServer: link.Settings{Delay: 20 * time.Millisecond}, ToFar: link.Settings{Delay: 10 * time.Millisecond}},
		Wire{Emulated: true, PickToFar: link.Pick{SYN: true, Every: 1, Times: 1}})
	if took := connectTime(t, b.Client, b.Server, "10.9.8.1"); took < 30*time.Millisecond || took > time.Second {
		t.Errorf("from the clients: connected after %v over a link of 30 ms", took)
	}
	if took := connectTime(t, b.Server, b.Backend, "10.9.9.2"); took < 900*time.Millisecond {
		t.Errorf("to the backend: connected after %v, the first SYN was to be lost", took)
	}
	if got := b.Back.Link.Counters(link.BtoA).Picked; got != 1 {
		t.Errorf("%d packets to the backend were picked", got)
	}
}

func TestLossyVeth(t *testing.T) {
	b := openWired(t, Wire{DropAtServer: drop.Rule{Every: 1, Port: 9}}, Wire{})
	if took := connectTime(t, b.Client, b.Server, "10.9.8.1"); took > time.Second {
		t.Errorf("another port: connected after %v", took)
	}
	if b.Front.AtFar != nil || b.Back.AtServer != nil {
		t.Error("droppers where none were asked for")
	}
	c, err := b.Front.AtServer.Counters()
	if err != nil || c.Packets == 0 || c.Dropped != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	server, _ := b.Server.NetNS(t.Context())
	backend, err := b.Backend.NetNS(t.Context())
	if err != nil || server == backend || backend == 0 {
		t.Errorf("network namespaces %d and %d, %v", server, backend, err)
	}
	connectTime(t, b.Server, b.Backend, "10.9.9.2")
}
