package watch

import (
	"path/filepath"
	"strconv"
	"time"

	"github.com/slowray/slowray/internal/bpf"
	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/dns"
)

// maxResolvers bounds how many processes' resolv.conf is read.
const maxResolvers = 256

// resolverLimits are those of all of them.
var resolverLimits = budget.Limits{Bytes: 16 << 20, Nodes: 128 << 10, Wall: 100 * time.Millisecond}

// nameServers watches queries over UDP.
type nameServers struct {
	requests *requests
	watcher  *dns.Watcher
}

func (n *nameServers) begin(s *session) error {
	root, err := s.fs.CgroupV2Root()
	if err == nil {
		var lookups *bpf.Lookups
		if stream := n.requests.begun.Load(); stream != nil {
			lookups = stream.Lookups()
		}
		n.watcher, err = dns.Start(root, n.requests.narrowed, lookups)
	}
	return err
}

func (n *nameServers) stop(s *session) {
	read := map[int]*observe.Resolver{}
	b := budget.New(s.ctx, resolverLimits)
	found, losses, err := n.watcher.Read(func(pid int) *observe.Resolver {
		r, known := read[pid]
		if !known && len(read) < maxResolvers {
			// A process that ended, or has no such file, simply has none.
			r, _ = dns.ReadResolver(b.Share(8), filepath.Join(s.fs.Proc, strconv.Itoa(pid), "root"))
			read[pid] = r
		}
		return r
	})
	if err != nil {
		s.gap(observe.KindDNS, "", err)
	}
	s.out.DNS = found
	s.out.Losses = append(s.out.Losses, losses...)
}

func (n *nameServers) close(*session) { n.watcher.Close() }
