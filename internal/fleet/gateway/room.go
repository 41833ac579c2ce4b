package gateway

import (
	"net"
	"sync"
)

// Limits of what is held: a host that is hostile, or only broken, takes no more of the
// gateway than a quarter of it, and all of them together no more than there is.
const (
	heldBytes = 128 << 20 // of all that comes, waits or is on its way; then hosts are asked to come back
	// requestBytes is what a request takes next to its body and its address, passBytes what
	// the buffers of one that passes do.
	requestBytes, passBytes = 8 << 10, 64 << 10
	// addressCopies is how often the address of a request, with all parameters, is held.
	addressCopies = 4
	// maxHeader bounds the head of a request, bytes: that of an insert of all columns has
	// some four thousand.
	maxHeader = 16 << 10
	// maxConnections is how many there may be, unless this process may have fewer than
	// twice as many descriptors: the others are for the servers.
	maxConnections = 4096
	// hostShare is the part of everything that one address may take.
	hostShare = 4
)

// room is what is held, by the address that it is held for.
type room struct {
	mu     sync.Mutex
	most   int64
	held   int64
	byHost map[string]int64
}

// take takes room for something; false when there is none.
func (r *room) take(host string, n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held+n > r.most || r.byHost[host]+n > r.most/hostShare {
		return false
	}
	r.held += n
	if r.byHost == nil {
		r.byHost = map[string]int64{}
	}
	r.byHost[host] += n
	return true
}

// give gives room back.
func (r *room) give(host string, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held -= n
	if r.byHost[host] -= n; r.byHost[host] <= 0 {
		delete(r.byHost, host)
	}
}

// hostOf is the address of host:port without the port.
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
