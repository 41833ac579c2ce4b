package fleet

import (
	"cmp"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// Program is what a host runs as a service. Each text is the same on all hosts that run
// the same, and empty where it is not known, or where processes of the service differ.
type Program struct {
	Image   string `json:"image,omitempty"`   // of its container: name, and the beginning of its digest behind an @, as far as the engine tells
	Version string `json:"version,omitempty"` // of what is executed: observe.Process.ProgramVersion
	Config  string `json:"config,omitempty"`  // of its configuration files: observe.Process.ConfigVersion
}

// mostPrograms bounds what a host says of itself.
const mostPrograms = 128

// ProgramOf is the name of an endpoint's service among the programs of its host: without
// the port that it answers at.
func ProgramOf(k *Key) string {
	if k.Side == observe.Served {
		if i := strings.LastIndexByte(k.Service, ':'); i > 0 {
			return k.Service[:i]
		}
	}
	return k.Service
}

// ProgramsOf are the services of a host as an Observation shows them, by name (Service,
// without a port): of the processes that answer requests.
func ProgramsOf(o *observe.Observation) map[string]Program {
	containers := map[string]*observe.Container{}
	for i := range o.Containers {
		containers[o.Containers[i].ID] = &o.Containers[i]
	}
	programs := map[string]Program{}
	differ := map[string]*[3]bool{}
	for i := range o.Processes {
		p := &o.Processes[i]
		if p.ProgramVersion == "" && p.ConfigVersion == "" {
			continue
		}
		found := Program{Version: p.ProgramVersion, Config: p.ConfigVersion}
		name, workload := "", observe.Workload{}
		if c := containers[p.Container]; c != nil && p.Container != "" {
			name, found.Image = c.Name, imageOf(c.Image, c.ImageID)
		}
		if pod, c := o.Kubernetes.ContainerOf(p.Container, p.Cgroup); pod != nil {
			workload = pod.Workload(c.Name, &o.Kubernetes.Node)
			if c.ImageID != "" { // of the repository, the same on nodes of every runtime and architecture
				found.Image = imageOf(c.Image, c.ImageID)
			}
		}
		name = Service(observe.Called, &observe.Identity{Comm: p.Comm, Unit: p.Unit, ContainerName: name, Workload: workload}, 0)
		was, known := programs[name]
		switch {
		case !known && len(programs) == mostPrograms:
			continue
		case !known:
			differ[name] = new([3]bool)
		default:
			if sameImage(was.Image, found.Image) { // the one of which more is known
				if ImageID(was.Image) == "" {
					was.Image = found.Image
				}
				found.Image = was.Image
			}
			for i, is := range [...]struct{ was, found *string }{{&was.Image, &found.Image}, {&was.Version, &found.Version}, {&was.Config, &found.Config}} {
				d := differ[name]
				d[i] = d[i] || *is.was != "" && *is.found != "" && *is.was != *is.found
				if *is.found = cmp.Or(*is.was, *is.found); d[i] {
					*is.found = ""
				}
			}
		}
		programs[name] = found
	}
	return programs
}

// sameImage compares digests where both have one, and else names.
func sameImage(a, b string) bool {
	if x, y := ImageID(a), ImageID(b); x != "" && y != "" {
		return x == y
	}
	return a != "" && b != "" && ImageName(a) == ImageName(b)
}

// imageOf is an image as it is compared: one name may have stood for several.
func imageOf(name, id string) string {
	name, digest, pinned := strings.Cut(name, "@sha256:")
	switch {
	case id == "" && pinned:
		return name + "@" + digest[:min(len(digest), shownDigest)]
	case id == "":
		return name
	case name == "" || strings.HasPrefix(name, "sha256:"):
		return "sha256:" + id
	}
	return name + "@" + id
}

// shownDigest is how many digits of a digest there are in observe.Container.
const shownDigest = 12

// ImageID is the digest of an image by Program.Image; empty where only its name is known.
func ImageID(image string) string {
	if id, ok := strings.CutPrefix(image, "sha256:"); ok {
		return id
	}
	_, id, _ := strings.Cut(image, "@")
	return id
}

// ImageName is the name of an image by Program.Image; empty where only its digest is known.
func ImageName(image string) string {
	if strings.HasPrefix(image, "sha256:") {
		return ""
	}
	name, _, _ := strings.Cut(image, "@")
	return name
}
