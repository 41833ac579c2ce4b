package compare

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/slowray/slowray/internal/observe"
)

// Setting is something that is set otherwise in the two.
type Setting struct {
	Name  string `json:"name"`
	Where string `json:"where"` // "host", a service, a program
	A     string `json:"a"`     // empty: not there, or not read
	B     string `json:"b"`
}

// place is a setting's name with where it holds.
type place struct{ where, name string }

func settings(a, b *observe.Observation) []Setting {
	in, out := set(a), set(b)
	names := map[place]bool{}
	for p := range in {
		names[p] = true
	}
	for p := range out {
		names[p] = true
	}
	sorted := slices.SortedFunc(maps.Keys(names), func(x, y place) int {
		if x.where != y.where {
			return compareStrings(x.where, y.where)
		}
		return compareStrings(x.name, y.name)
	})
	list := []Setting{}
	for _, p := range sorted {
		x, y := in[p], out[p]
		// What is in one only was mostly not there to be read: a service that did
		// not run.
		if x == y || len(x) == 0 || len(y) == 0 {
			continue
		}
		list = append(list, Setting{Name: p.name, Where: p.where, A: x, B: y})
	}
	return list
}

func compareStrings(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// countsNow stand among the sysctls, and nobody sets them: how much there is now.
var countsNow = map[string]bool{"fs.file-nr": true, "fs.aio-nr": true, "fs.inode-nr": true, "fs.dentry-state": true, "net.netfilter.nf_conntrack_count": true}

// set is all that is known to be set in o: sysctls, backlogs, limits of processes.
// Namespaces are known by what listens in them.
func set(o *observe.Observation) map[place]string {
	all := map[place]string{}
	put := func(where, name, value string) {
		if was, ok := all[place{where, name}]; ok && was != value {
			value = "several" // of the same name: which is which is not known
		}
		all[place{where, name}] = value
	}
	for name, v := range o.Sysctl {
		if !countsNow[name] {
			put("host", name, v)
		}
	}
	for i := range o.Namespaces {
		ns := &o.Namespaces[i]
		where := "host"
		if !ns.Host {
			where = inside(ns)
		}
		for name, v := range ns.Sysctl {
			if !countsNow[name] {
				put(where, name, v)
			}
		}
		for j := range ns.Listeners {
			l := &ns.Listeners[j]
			end := l.Path
			if l.Port != 0 {
				end = fmt.Sprintf(":%d", l.Port)
			}
			if end != "" {
				put(end, "backlog", strconv.FormatUint(uint64(l.Limit), 10))
			}
		}
	}
	for i := range o.Processes {
		if p := &o.Processes[i]; p.FDLimit > 0 {
			put(p.Comm, "limit of open files", strconv.Itoa(p.FDLimit))
		}
	}
	return all
}

// inside names a namespace by its lowest listening port.
func inside(ns *observe.NetNS) string {
	lowest := 0
	for i := range ns.Listeners {
		if p := ns.Listeners[i].Port; p != 0 && (lowest == 0 || p < lowest) {
			lowest = p
		}
	}
	if lowest == 0 {
		return "a namespace where nothing listens"
	}
	return fmt.Sprintf("the namespace of :%d", lowest)
}
