package incident

import "github.com/slowray/slowray/lab/load"

// nginxThroughput is incident A: a throughput collapse behind 1,000
// connections, with eight faults stacked (the three accept queue settings are
// one fault here, as they are fixed together).
func nginxThroughput() Incident {
	return Incident{
		Name:    "nginx-throughput",
		Summary: "nginx and php-fpm collapse behind 1,000 connections: seven faults, fixed one by one",
		Setup:   tracked(nginxFPM(query)),
		Stepped: true,
		Faults: []Fault{
			conntrackMax(200),
			children(5),
			acceptQueues(),
			fewPorts(51),
			noReuse(),
			workerConnections(1024),
			finTimeout(),
		},
		// The idle connections fill most of the small connection tracking
		// table with entries the kernel does not drop for new ones. Without
		// them chance decides at S0 how many of the 51 ports to php-fpm get an
		// entry, which they keep, and with it whether conntrack hurts.
		Load: load.Load{Conns: 1000, Idle: 190},
		Gain: 20,
	}
}
