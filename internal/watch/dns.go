package watch

import (
	"path/filepath"
	"strconv"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/dns"
)

// maxResolvers bounds how many processes' resolv.conf is read.
const maxResolvers = 256

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
	found, losses, err := s.dns.Read(func(pid int) *observe.Resolver {
		r, known := read[pid]
		if !known && len(read) < maxResolvers {
			// A process that ended, or has no such file, simply has none.
			r, _ = dns.ReadResolver(filepath.Join(s.fs.Proc, strconv.Itoa(pid), "root"))
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
