package container

import (
	"encoding/json"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
)

// stores are the lists of containers of containers/storage, which Podman and
// CRI-O use as root.
var stores = []string{"var/lib/containers/storage/overlay-containers/containers.json", "var/lib/containers/storage/vfs-containers/containers.json"}

// bundles are the directories of containerd's running containers, by namespace
// and id (runtime v2); config.json is the runtime's (OCI).
const bundles = "/run/containerd/io.containerd.runtime.v2.task"

// annotations of a bundle that name its container, with what stands before it.
var annotations = struct{ name, pod, image []string }{
	name:  []string{"io.kubernetes.cri.container-name", "nerdctl/name"},
	pod:   []string{"io.kubernetes.cri.sandbox-name"},
	image: []string{"io.kubernetes.cri.image-name"},
}

// readStores reads the containers of containers/storage below root.
func readStores(b *budget.Budget, root rootfs.Root) []observe.Container {
	var out []observe.Container
	for _, path := range stores {
		var list []struct {
			ID       string   `json:"id"`
			Names    []string `json:"names"`
			Metadata string   `json:"metadata"`
		}
		if readJSON(b, root, path, &list) != nil {
			continue
		}
		for _, l := range list[:min(len(list), maxListed)] {
			if b.Node() != nil {
				break
			}
			var meta struct {
				Image   string `json:"image-name"`
				ImageID string `json:"image-id"`
				Name    string `json:"name"`
			}
			_ = json.Unmarshal([]byte(l.Metadata), &meta) // without it there is still the name
			c := observe.Container{ID: shortID(l.ID), Name: clip(meta.Name), Image: clip(meta.Image), ImageID: digestOf(meta.ImageID), Engine: "containers-storage"}
			if len(l.Names) > 0 {
				c.Name = clip(l.Names[0])
			}
			if c.ID != "" {
				out = append(out, c)
			}
		}
	}
	return out
}

// directories notes the directories in one by the id that they are named by.
func directories(b *budget.Budget, root rootfs.Root, dir string, into map[string]string) {
	names, _ := root.ReadDir(dir)
	for _, n := range names {
		if b.Node() != nil {
			return
		}
		if id := shortID(n); into[id] == "" {
			into[id] = path.Join(dir, n)
		}
	}
}

var hexID = regexp.MustCompile(`^[0-9a-f]{12,64}$`)

// readBundles reads the names of containers of containerd below root, of those
// with these ids.
func readBundles(b *budget.Budget, root rootfs.Root, ids []string) []observe.Container {
	var out []observe.Container
	dirs := map[string]string{}
	spaces, _ := root.ReadDir(bundles) // there is none without containerd
	for _, space := range spaces {
		directories(b, root, path.Join(bundles, space), dirs)
	}
	for _, id := range ids {
		dir, ok := dirs[shortID(id)]
		if !ok || !hexID.MatchString(id) {
			continue
		}
		var spec struct {
			Annotations map[string]string `json:"annotations"`
		}
		if readJSON(b, root, path.Join(dir, "config.json"), &spec) != nil {
			continue
		}
		first := func(keys []string) string {
			for _, k := range keys {
				if v := spec.Annotations[k]; v != "" {
					return v
				}
			}
			return ""
		}
		name := first(annotations.name)
		if pod := first(annotations.pod); pod != "" && name != "" {
			name = pod + "/" + name
		}
		if name != "" {
			out = append(out, observe.Container{ID: id, Name: clip(name), Image: clip(first(annotations.image)), Engine: "containerd", State: "running"})
		}
	}
	return out
}

// dockerDir is where Docker keeps what it knows of its containers, unless its data-root
// says otherwise; a directory for each, named by its ID.
const dockerDir = "/var/lib/docker/containers"

// readDocker reads the containers of Docker with these ids below root: where its socket
// answers nobody. The file is Docker's own (daemon/container, ConfigV2 since 1.8).
func readDocker(b *budget.Budget, root rootfs.Root, ids []string) []observe.Container {
	var out []observe.Container
	dirs := map[string]string{}
	directories(b, root, dockerDir, dirs)
	for _, id := range ids {
		dir, ok := dirs[shortID(id)]
		if !ok || !hexID.MatchString(id) {
			continue
		}
		var c struct {
			Name   string
			Image  string // "sha256:…"
			Config struct{ Image string }
			State  struct {
				Running bool
			}
		}
		if readJSON(b, root, path.Join(dir, "config.v2.json"), &c) != nil || c.Config.Image == "" && c.Name == "" {
			continue
		}
		state := "exited"
		if c.State.Running {
			state = "running"
		}
		out = append(out, observe.Container{ID: shortID(id), Name: clip(strings.TrimPrefix(c.Name, "/")), Image: clip(c.Config.Image), ImageID: digestOf(c.Image), Engine: "docker", State: state})
	}
	return out
}

// readJSON reads a file of at most 4 MB.
func readJSON(b *budget.Budget, root rootfs.Root, name string, into any) error {
	text, _, err := root.ReadFile(name, maxBody)
	if err == nil {
		err = b.Nodes(int64(len(text) / bytesOfNode))
	}
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(text), into)
}

// bytesOfNode is how much JSON takes as long to read as an item of a budget.
const bytesOfNode = 64

// same says that an id of a control group and that of an engine are one: either
// may be shortened.
func same(a, b string) bool {
	n := min(len(a), len(b))
	return n > 0 && a[:n] == b[:n]
}

// idSet holds ids, which may be shortened.
type idSet struct {
	whole map[string]bool // as they are shown
	parts []string        // shorter ones
}

func newIDSet() *idSet { return &idSet{whole: map[string]bool{}} }

func (s *idSet) add(id string) {
	if short := shortID(id); len(short) == shownID {
		s.whole[short] = true
	} else {
		s.parts = append(s.parts, short)
	}
}

func (s *idSet) has(id string) bool {
	short := shortID(id)
	return s.whole[short] || slices.ContainsFunc(s.parts, func(p string) bool { return same(p, short) }) ||
		len(short) < shownID && slices.ContainsFunc(slices.Collect(maps.Keys(s.whole)), func(w string) bool { return same(w, short) })
}

// add puts containers into a list that are not in it yet.
func add(to []observe.Container, more []observe.Container) []observe.Container {
	known := map[string]bool{}
	for i := range to {
		known[to[i].ID] = true
	}
	for _, c := range more {
		if !known[c.ID] {
			known[c.ID] = true
			to = append(to, c)
		}
	}
	return to
}

// named says that a container goes by this name: its own, that of Compose
// without the number ("shop-web" of "shop-web-1"), or that of a pod's container
// without the pod ("web" of "shop-5d9c/web").
func named(c *observe.Container, name string) bool {
	_, inPod, _ := strings.Cut(c.Name, "/")
	return name != "" && (c.Name == name || inPod == name || composeName.MatchString(c.Name) && composeName.ReplaceAllString(c.Name, "") == name)
}

var composeName = regexp.MustCompile(`[-_][0-9]+$`)
