package anomaly

import (
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/fleet"
)

// programs are what hosts run as a service, by host and program, as components: versions
// of images, builds and configurations, of which some of the hosts with the program have
// one and some another. What all have tells no more than the service, and what a single
// host has no more than the host.
func programs(hosts []fleet.Host) map[hostName][]Component {
	type of struct {
		kind    Kind
		program string
	}
	digested := map[string]bool{} // names of images that some host has with a digest
	names := map[string]string{}  // an image is its digest: one name of those that hosts have for it
	for i := range hosts {
		for _, p := range hosts[i].Programs {
			id := fleet.ImageID(p.Image)
			name := fleet.ImageName(p.Image)
			if id != "" && name != "" {
				digested[name] = true
			}
			if was, known := names[id]; !known || name != "" && (strings.HasPrefix(was, "sha256:") || p.Image < was) {
				names[id] = p.Image
			}
		}
	}
	having := map[of]map[Component]int{}
	each := func(f func(h *fleet.Host, program string, o of, c Component)) {
		for i := range hosts {
			h := &hosts[i]
			for program, p := range h.Programs {
				for _, x := range [...]struct {
					kind  Kind
					value string
				}{{Image, p.Image}, {Config, p.Config}, {Build, p.Version}} {
					switch id := fleet.ImageID(x.value); {
					case x.value == "", x.kind == Image && id == "" && digested[x.value]: // any of those: an older slowray is there
						continue
					case x.kind != Image:
						x.value = program + " " + x.value
					case id != "":
						x.value = names[id]
					}
					f(h, program, of{x.kind, program}, Component{x.kind, x.value})
				}
			}
		}
	}
	each(func(_ *fleet.Host, _ string, o of, c Component) {
		if having[o] == nil {
			having[o] = map[Component]int{}
		}
		having[o][c]++
	})
	list := map[hostName][]Component{}
	each(func(h *fleet.Host, program string, o of, c Component) {
		if n := having[o]; len(n) > 1 && n[c] > 1 {
			at := hostName{h.Name, program}
			list[at] = append(list[at], c)
		}
	})
	return list
}

// ofProgram adds what is known of the program that an endpoint is of.
func (g *graph) ofProgram(list []Component, k *fleet.Key) []Component {
	for _, c := range g.programs[hostName{k.Host, fleet.ProgramOf(k)}] {
		if !slices.Contains(list, c) {
			list = append(list, c)
		}
	}
	return list
}
