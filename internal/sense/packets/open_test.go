package packets

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// Of a FIFO or a device nothing is waited for, and it is said what it is.
func TestNotAFile(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "capture.pcap")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, "/dev/zero", "/dev/null", t.TempDir(), "/proc/kmsg", "/proc/self/status", "/sys/kernel/uevent_seqnum"} {
		if Recognises(path) {
			t.Errorf("%s is taken for a capture", path)
		}
		_, err := Requests(path, Options{}, func(*observe.Request) {})
		if err == nil || !strings.Contains(err.Error(), "is not a saved file") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
