package record

import (
	"net"
	"path/filepath"
	"testing"
	"time"
)

func TestNotify(t *testing.T) {
	for name, address := range map[string]string{"path": filepath.Join(t.TempDir(), "notify"), "abstract": "@slowray-notify-test"} {
		l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("NOTIFY_SOCKET", address)
		Notify("READY=1")
		got := make([]byte, 100)
		if err := l.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := l.Read(got)
		if err != nil || string(got[:n]) != "READY=1" {
			t.Errorf("%s: %q, %v", name, got[:n], err)
		}
		l.Close()
		Notify("WATCHDOG=1") // nobody listens any more
	}
	t.Setenv("NOTIFY_SOCKET", "")
	Notify("READY=1")
}
