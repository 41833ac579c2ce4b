package incident

import (
	"slices"

	"github.com/slowray/slowray/lab/server"
)

// tlsSuffix is at the end of the name of an incident that is there in the clear, too.
const tlsSuffix = "-tls"

// underTLS is the incident with clients that talk TLS to the first server, several of them
// side by side on a connection where that speaks HTTP/2. [Find] knows each incident so;
// its cause is the same.
func (i Incident) underTLS() Incident {
	i.Name += tlsSuffix
	i.Summary = "under TLS: " + i.Summary
	i.Setup = on(i.Setup, (*server.Setup).UnderTLS)
	i.Load.TLS = true
	i.Load.HTTP2 = !i.Load.RPC && !i.Load.Close && !i.Load.First && i.Load.ReadPause == 0
	i.Doubled = true
	return i
}

// doubled is incidents in which single requests have to be told apart, behind what speaks
// TLS: nginx, an event loop and threads in Python, net/http of Go, and gRPC.
func doubled(all []Incident) []Incident {
	names := []string{
		"sleep-behind-nginx", "event-loop-blocked", "php-fpm-children", "fpm-children-in-lock", "fpm-children-in-row-lock",
		"worker-pool-go", "slow-dependency", "remote-hangs", "thread-pool-python", "lock-convoy-go",
		"grpc-slow-dependency", "grpc-lock-convoy", "grpc-worker-pool",
	}
	var list []Incident
	for _, i := range all {
		if slices.Contains(names, i.Name) {
			list = append(list, i.underTLS())
		}
	}
	return list
}
