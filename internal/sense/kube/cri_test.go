package kube

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// TestImagesOfContainers: an image of a container has the digest that its pod's status has,
// from the runtime as from the kubelet, and the name that the manifest has. Each container
// is asked for once.
func TestImagesOfContainers(t *testing.T) {
	f := &fakeCRI{}
	f.add("uid-cart", "shop", "cart-1", "10.1.0.7", cartID, false, nil, time.Now())
	s := newState(workload.New(workload.DefaultLimits), "node-1")
	c := findCRI(f.serve(t), s)
	defer c.close()
	for range 3 {
		if _, err := c.look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	got := s.pods["uid-cart"].Containers[0]
	if got.Image != "shop/cart:latest" || got.ImageID != "0123456789ab" || f.asked != 1 {
		t.Errorf("%s of %s, asked %d times", got.ImageID, got.Image, f.asked)
	}
	f.remove("uid-cart")
	if _, err := c.look(t.Context()); err != nil || len(c.images) != 0 {
		t.Errorf("%v, %v: what ended is kept", c.images, err)
	}

	p := cartPod()
	p.Status.ContainerStatuses[0].Image = "docker.io/shop/cart:other-tag"
	p.Status.ContainerStatuses[0].ImageID = imageRef
	if of := podOf(&p).Containers[0]; of.Image != "shop/cart:1" || of.ImageID != got.ImageID {
		t.Errorf("%s of %s", of.ImageID, of.Image)
	}
}
