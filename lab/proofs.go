package lab

import (
	"fmt"
	"slices"
)

// Proof is a question to slowray prove: does the fix of Cause change anything in
// Incident?
type Proof struct {
	Incident string `json:"incident"`
	Cause    string `json:"cause"`
	// Harmless says that the incident only looks like the cause: its fix must
	// have no effect there. Otherwise it must be proved.
	Harmless bool `json:"harmless"`
}

// Want is the verdict that is right.
func (p Proof) Want() string {
	if p.Harmless {
		return verdictNone
	}
	return verdictProved
}

// The verdicts of slowray prove that the lab asks for.
const (
	verdictProved = "proved"
	verdictNone   = "no effect"
)

// Proofs are the incidents whose cause slowray has to prove, and next to them
// harmless ones in which the same knob does not bind. Some are left out: pids-limit,
// where the threads that were made stay when the limit is put back, which is rightly
// undecided; and rp-filter-drop, whose answers leave by the wrong device with a loose
// filter, too.
func Proofs() []Proof {
	var list []Proof
	for _, p := range []struct {
		cause    string
		injected []string
		harmless []string
	}{
		{"conntrack-full", []string{"conntrack-full"}, []string{"packet-loss-layers"}},
		{"accept-queue-overflow", []string{"accept-queue-nginx", "accept-queue-fpm", "accept-queue-somaxconn"}, []string{"healthy-busy"}},
		{"ephemeral-ports-exhausted", []string{"ephemeral-ports"}, []string{"time-wait-harmless"}},
		{"time-wait-port-search", []string{"time-wait-port-search"}, []string{"time-wait-harmless", "tw-reuse-loopback"}},
		{"php-fpm-children-exhausted", []string{"php-fpm-children"}, []string{"max-children-warning", "fpm-children-in-lock", "fpm-children-in-row-lock"}},
		{"nginx-worker-connections", []string{"worker-connections"}, []string{"fin-timeout"}},
		{"nginx-limit-req", []string{"nginx-limit-req"}, nil},
		{"fd-limit", []string{"fd-limit"}, []string{"batch-beside"}},
		{"uwsgi-workers-busy", []string{"uwsgi-queue"}, []string{"uwsgi-all-busy"}},
		{"gunicorn-workers-busy", []string{"gunicorn-sync-workers"}, []string{"gunicorn-workers-in-lock"}},
		{"haproxy-maxconn", []string{"haproxy-maxconn"}, nil},
		{"haproxy-server-queue", []string{"haproxy-server-queue"}, nil},
		{"nagle-delayed-ack", []string{"nagle-delayed-ack"}, []string{"late-acks"}},
		{"mariadb-connections-exhausted", []string{"mariadb-max-connections"}, []string{"database-idle-connections"}},
		{"redis-max-clients", []string{"redis-max-clients"}, []string{"redis-quick-keys"}},
		{"fsync-bound", []string{"redis-fsync"}, nil},
		{"process-stopped", []string{"process-stopped-backend", "fuse-stopped"}, nil},
		{"cpu-saturated", []string{"cpu-saturated"}, nil},
		{"cpu-quota-throttled", []string{"cpu-quota"}, nil},
		{"low-cpu-weight", []string{"low-cpu-weight"}, nil},
		{"affinity-too-narrow", []string{"affinity-too-narrow"}, nil},
		{"pids-limit", nil, []string{"cache-up-to-limit"}},
		{"cgroup-io-throttled", []string{"cgroup-io-throttled"}, nil},
		{"page-cache-thrash", []string{"page-cache-thrash"}, []string{"cache-up-to-limit"}},
		{"firewall-drop", []string{"firewall-drop", "firewall-drop-out"}, nil},
		{"mtu-mismatch", []string{"mtu-mismatch"}, nil},
		{"qdisc-drop", []string{"qdisc-drop"}, nil},
		{"rp-filter-drop", nil, []string{"resets-after-answers"}},
	} {
		for _, name := range p.injected {
			list = append(list, Proof{Incident: name, Cause: p.cause})
		}
		for _, name := range p.harmless {
			list = append(list, Proof{Incident: name, Cause: p.cause, Harmless: true})
		}
	}
	return list
}

// quickProofs are a few that take little time each, for make test.
var quickProofs = []string{"nginx-limit-req", "firewall-drop"}

// proofsOf are the proofs to be made of an incident.
func proofsOf(name string) ([]Proof, error) {
	var list []Proof
	for _, p := range Proofs() {
		if p.Incident == name {
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		var known []string
		for _, p := range Proofs() {
			if !slices.Contains(known, p.Incident) {
				known = append(known, p.Incident)
			}
		}
		return nil, fmt.Errorf("lab: %s: nothing is to be proved there; there is in %v", name, known)
	}
	return list, nil
}
