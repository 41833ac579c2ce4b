package anomaly

import (
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/fleet"
)

// deepest is how many levels of control groups are looked at, from the innermost.
const deepest = 8

// inGroups adds the control groups that an endpoint runs in: its own and those around it,
// of its host ("web-3:/system.slice/app.service"), and the same on all hosts
// ("/batch.slice"). The root is none: everything is in it.
func (g *graph) inGroups(list []Component, k *fleet.Key) []Component {
	p, ok := g.places[*k]
	if !ok || len(p.Cgroup) < 2 {
		return list
	}
	at := hostName{k.Host, p.Cgroup}
	groups, known := g.groups[at]
	if !known {
		path := p.Cgroup
		for range deepest {
			groups = append(groups, Component{Cgroup, k.Host + ":" + path}, Component{Cgroup, path})
			i := strings.LastIndexByte(path, '/')
			if i <= 0 {
				break
			}
			path = path[:i]
		}
		g.groups[at] = groups
	}
	for _, c := range groups {
		if !slices.Contains(list, c) {
			list = append(list, c)
		}
	}
	return list
}

// GroupOf is the host and the path of a control group; the host is empty where it is that
// of all hosts.
func GroupOf(value string) (host, path string) {
	if strings.HasPrefix(value, "/") {
		return "", value
	}
	if i := strings.Index(value, ":/"); i >= 0 {
		return value[:i], value[i+1:]
	}
	return "", value
}

// narrower prefers, of control groups with the same endpoints, that of one host, and the
// innermost.
func narrower(a, b string) bool {
	hostA, pathA := GroupOf(a)
	hostB, pathB := GroupOf(b)
	if (hostA == "") != (hostB == "") {
		return hostA != ""
	}
	if len(pathA) != len(pathB) {
		return len(pathA) > len(pathB)
	}
	return a < b
}

// container is the name of the container that a control group is of, as far as all its
// endpoints tell the same.
func (g *graph) container(members []fleet.Key) string {
	name := ""
	for i, k := range members {
		p := g.places[k]
		if i > 0 && p.Container != name {
			return ""
		}
		name = p.Container
	}
	return name
}
