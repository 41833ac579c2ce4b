package watch

import (
	"path/filepath"
	"strconv"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/dns"
)

// maxResolvers bounds how many processes' resolv.conf is read.
const maxResolvers = 256

// resolverLimits are those of all of them.
var resolverLimits = budget.Limits{Bytes: 16 << 20, Nodes: 128 << 10, Wall: 100 * time.Millisecond}

func (s *session) startDNS() {
	root, err := s.fs.CgroupV2Root()
	if err == nil {
		s.dns, err = dns.Start(root)
	}
	if err != nil {
		s.gap(observe.KindDNS, "", err)
	}
}

func (s *session) endDNS() {
	if s.dns == nil {
		return
	}
	read := map[int]*observe.Resolver{}
	b := budget.New(s.ctx, resolverLimits)
	found, losses, err := s.dns.Read(func(pid int) *observe.Resolver {
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
