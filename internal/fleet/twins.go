package fleet

import (
	"slices"
	"time"
)

// atOnce is how close the last Hellos of two hosts are that send at the same time: each
// says it once a minute.
const atOnce = 150 * time.Second

// Latest has each name once, of hosts by their histories with those heard of last first. A
// host whose history was begun anew, or that sends what an older one holds, is one host: the
// latest counts. Others of its name that say Hello at the same time from other addresses
// are its Twins.
func Latest(all []HostSeen) []HostSeen {
	at := map[string]int{}
	var latest []HostSeen
	for _, h := range all {
		i, known := at[h.Name]
		if !known {
			at[h.Name] = len(latest)
			latest = append(latest, h)
			continue
		}
		if first := &latest[i]; first.Last.Sub(h.Last) < atOnce && !sameAddresses(first.Addresses, h.Addresses) {
			first.Twins++
		}
	}
	return latest
}

func sameAddresses(a, b []string) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(x string) bool { return !slices.Contains(b, x) })
}
