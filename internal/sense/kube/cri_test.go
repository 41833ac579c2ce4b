package kube

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/sense/workload"
)

// TestSocketsOfRuntimes: each runtime's socket is found where it is, below another root too,
// and a file of that name, or a socket that is somebody's who is not root, is none.
func TestSocketsOfRuntimes(t *testing.T) {
	for _, path := range sockets {
		if strings.HasPrefix(path, "/var/run/") {
			t.Errorf("%s leads through a link that is absolute on many hosts: below /proc/1/root it leads here", path)
		}
		root := shortRoot(t)
		s := newState(workload.New(workload.DefaultLimits), "node-1")
		found := func() string {
			c := findCRI(root, s)
			if c == nil {
				return ""
			}
			defer c.close()
			return c.asked[0].path
		}
		if err := os.MkdirAll(filepath.Dir(root+path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(root+path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := found(); got == path {
			t.Errorf("a file is taken for the socket %s", path)
		}
		os.Remove(root + path)
		l, err := net.Listen("unix", root+path)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if got := found(); got != path {
			t.Errorf("found %q, want %s", got, path)
		}
		if os.Getuid() == 0 {
			if err := os.Chown(root+path, 65534, 65534); err != nil {
				t.Fatal(err)
			}
			if got := found(); got == path {
				t.Errorf("%s of nobody's is believed", path)
			}
		}
	}
}
