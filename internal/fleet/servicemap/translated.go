package servicemap

import (
	"cmp"
	"net/netip"
	"slices"
)

// leastTranslated pairs of a caller's address and a host make it believed that one
// leads to the other: a single pair may be like another one by chance.
const leastTranslated = 3

// translated finds pairs among the ends that fit no other by their connection. On the
// way an address may have been changed: the client's (SNAT, masquerading), so that the
// server's and the number on the connection are the same at both ends; or the server's
// (DNAT, a load balancer of packets), so that the client's is. Of such ends it takes
// those of the same sizes of which, at both ends, only one fits in time. A proxy that
// makes a connection of its own is found by nothing of this: it is a service.
func translated(left []*End, j *Joins) []Joined {
	type key struct {
		kept                netip.AddrPort
		client              bool // kept is the client's
		seq                 uint32
		requests, responses uint64
	}
	called, served := map[key][]*End{}, map[key][]*End{}
	for _, e := range left {
		if e.TotalNS <= 0 || e.RequestBytes == 0 || e.Server.Addr().IsLoopback() {
			continue
		}
		into := served
		if e.called() {
			into = called
		}
		for _, client := range []bool{false, true} {
			k := key{e.Server, client, e.Seq, e.RequestBytes, e.ResponseBytes}
			if client {
				k.kept = e.Client
			}
			into[k] = append(into[k], e)
		}
	}
	var found []Joined
	for k, list := range called {
		found = append(found, unique(list, served[k], k.client, j)...)
	}
	slices.SortFunc(found, func(x, y Joined) int {
		return cmp.Or(compareEnds(x.Called, y.Called), compareEnds(x.Served, y.Served))
	})
	// An end that was found twice, in either way, is not known.
	times := map[*End]int{}
	for _, f := range found {
		times[f.Called]++
		times[f.Served]++
	}
	found = slices.DeleteFunc(found, func(f Joined) bool { return times[f.Called] > 1 || times[f.Served] > 1 })

	type way struct {
		from     string
		to       netip.AddrPort
		host     string
		answered netip.AddrPort
	}
	wayOf := func(f *Joined) way { return way{f.Called.Host, f.Called.Server, f.Served.Host, f.Served.Server} }
	ways := map[way][]Joined{}
	for _, f := range found {
		ways[wayOf(&f)] = append(ways[wayOf(&f)], f)
	}
	return slices.DeleteFunc(found, func(f Joined) bool {
		all := ways[wayOf(&f)]
		return len(all) < leastTranslated || f.Called.Host != f.Served.Host && !consistent(all)
	})
}

// unique are the pairs of which each end fits only the other. Where the client's
// address is the one that differs, the server's host must not know it as that of
// another host.
func unique(called, served []*End, clientKept bool, j *Joins) []Joined {
	if len(called)*len(served) == 0 || len(called)*len(served) > 1<<16 {
		return nil
	}
	fit := map[*End]*End{}
	n := map[*End]int{}
	for _, c := range called {
		for _, s := range served {
			if !clientKept {
				if owner := j.owners.only(s.Client.Addr()); owner != "" && owner != c.Host {
					continue
				}
			}
			if c.tuple() != s.tuple() && j.fits(c, s) {
				fit[c] = s
				n[c]++
				n[s]++
			}
		}
	}
	var all []Joined
	for _, c := range called {
		if n[c] == 1 && n[fit[c]] == 1 {
			all = append(all, Joined{Called: c, Served: fit[c], Translated: true})
		}
	}
	return all
}

// consistent says that there is a difference of the clocks that most of them agree on.
func consistent(all []Joined) bool {
	var bounds []bound
	for i := range all {
		if all[i].Called.timed() && all[i].Served.timed() {
			bounds = append(bounds, boundOf(all[i].Called, all[i].Served))
		}
	}
	c, ok := estimate(bounds)
	return ok && 10*c.Outside <= c.Requests
}
