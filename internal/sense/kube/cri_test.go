package kube

import (
	"errors"
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

// TestImagesThatAreNotTold: pods are known before anybody is asked for an image; one that is
// not told ends it for this look, and is asked for again only later.
func TestImagesThatAreNotTold(t *testing.T) {
	f := &fakeCRI{}
	s := newState(workload.New(workload.DefaultLimits), "node-1")
	ids := map[string]string{"uid-a": strings.Repeat("a", 64), "uid-b": strings.Repeat("b", 64)}
	f.add("uid-a", "shop", "a", "10.1.0.7", ids["uid-a"], false, nil, time.Now())
	f.add("uid-b", "shop", "b", "10.1.0.8", ids["uid-b"], false, nil, time.Now())
	var askedFor []string
	refused := true
	f.askedFor = func(id string) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.pods) != 2 {
			t.Errorf("asked for an image with %d pods known", len(s.pods))
		}
		if askedFor = append(askedFor, id[:1]); id == ids["uid-a"] && refused {
			return errors.New("not now")
		}
		return nil
	}
	c := findCRI(f.serve(t), s)
	defer c.close()
	for i, want := range []struct{ asked, a, b string }{{"a", "", ""}, {"ab", "", "0123456789ab"}, {"ab", "", "0123456789ab"}, {"aba", "0123456789ab", "0123456789ab"}} {
		if i == 3 { // much later
			refused = false
			c.untold[ids["uid-a"]] = time.Now().Add(-imageAgain)
		}
		if _, err := c.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		a, b := s.pods["uid-a"].Containers[0].ImageID, s.pods["uid-b"].Containers[0].ImageID
		if got := strings.Join(askedFor, ""); got != want.asked || a != want.a || b != want.b {
			t.Errorf("look %d: asked %s and got %q, %q, want %+v", i, got, a, b, want)
		}
	}
	if len(c.untold) != 0 {
		t.Errorf("%v is kept", c.untold)
	}
}
