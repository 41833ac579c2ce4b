package request

import (
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/slowray/slowray/internal/bpf"
	"github.com/slowray/slowray/internal/sense/host"
)

const (
	// The programs that tell streams apart see every packet of the host. Where
	// requests overlap and nothing of HTTP/2 is found within http2Look they are
	// taken off, and tried again after http2Again.
	http2Look  = 5 * time.Second
	http2Again = time.Minute
)

// streams tells the requests of HTTP/2 connections apart, as far as they can be
// read, from when requests were first seen to overlap, or to look like it (programs
// that may read received bytes: Linux 6.12).
type streams struct {
	overlap  bool      // since the last look: requests overlap, or look like HTTP/2
	next     time.Time // no attempt before
	since    time.Time // attached
	objects  bpf.HTTP2Objects
	links    []io.Closer
	attached bool
	failed   error // it cannot be done here
	headers  headers
}

// tellStreams attaches the programs when requests overlap, and takes them off
// when that was for another reason.
func (r *Recorder) tellStreams(now time.Time) {
	s := &r.streams
	if s.failed != nil {
		return
	}
	if s.attached {
		var n uint64
		if now.Sub(s.since) > http2Look && s.objects.ToldApart.Get(&n) == nil && n == 0 {
			s.close()
			s.next = now.Add(http2Again)
		}
		return
	}
	if !s.overlap {
		// A variable that cannot be read says nothing.
		var seen uint8
		s.overlap = r.objects.Http2Seen.Get(&seen) == nil && seen != 0
	}
	if !s.overlap || now.Before(s.next) {
		return
	}
	s.overlap = false
	_ = r.objects.Http2Seen.Set(uint8(0))
	if s.failed = r.attachStreams(); s.failed != nil {
		s.close()
		r.missing = append(r.missing, fmt.Sprintf("single requests where they run side by side on a connection (HTTP/2): %v", s.failed))
		return
	}
	s.since = now
}

// TellStreams attaches the programs at once, to see whether they can be.
func (r *Recorder) TellStreams() error {
	r.streams.failed = r.attachStreams()
	return r.streams.failed
}

func (r *Recorder) attachStreams() error {
	if err := bpf.HaveLoops(); err != nil {
		return err
	}
	root, err := host.Default().CgroupV2Root()
	if err != nil {
		return err
	}
	spec, err := bpf.LoadHTTP2()
	if err != nil {
		return err
	}
	for name, value := range map[string]any{
		bpf.HTTP2VarCpus:          uint32(r.cpus),
		bpf.HTTP2VarSlots:         uint32(r.slots),
		bpf.HTTP2VarOrderedStores: flag(runtime.GOARCH == "amd64"),
		bpf.HTTP2VarSlowNs:        uint64(r.opt.Slow),
		bpf.HTTP2VarUnfinishedNs:  uint64(unfinished),
		bpf.HTTP2VarWithLabels:    flag(r.opt.Labels),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	if !r.overMaps {
		spec.Programs[bpf.HTTP2ProgHttp2Flush] = spec.Programs[bpf.HTTP2ProgHttp2FlushFiles]
	}
	if r.opt.Labels {
		spec.Maps[bpf.HTTP2MapHeaderBlocks].MaxEntries = blocksRing
	}
	s := &r.streams
	err = bpf.LoadBeside(spec, &s.objects, map[string]*ebpf.Map{
		bpf.HTTP2MapConns: r.objects.Conns, bpf.HTTP2MapCounts: r.objects.Counts, bpf.HTTP2MapRecords: r.objects.Records, bpf.HTTP2MapRings: r.objects.Rings,
		bpf.HTTP2MapCallers: r.objects.Callers, bpf.HTTP2MapEndpoints: r.objects.Endpoints, bpf.HTTP2MapListening: r.objects.Listening,
	})
	if err != nil {
		return err
	}
	s.attached = true
	if r.opt.Labels {
		if s.headers.ring, err = ringbuf.NewReader(s.objects.HeaderBlocks); err != nil {
			return fmt.Errorf("header blocks: %w", err)
		}
	}
	l, err := link.AttachTracing(link.TracingOptions{Program: s.objects.Http2Closed})
	if err != nil {
		return fmt.Errorf("attach sock/inet_sock_set_state: %w", err)
	}
	s.links = append(s.links, l)
	links, err := bpf.AttachCgroup(root,
		bpf.CgroupProgram{At: ebpf.AttachCGroupInetIngress, Program: s.objects.Http2In},
		bpf.CgroupProgram{At: ebpf.AttachCGroupInetEgress, Program: s.objects.Http2Out})
	s.links = append(s.links, links...)
	if err == nil {
		r.doLess()
	}
	return err
}

// lost is how many requests, and connections, found no place.
func (s *streams) lost() (requests, connections uint64) {
	if s.attached {
		// A variable that cannot be read counts nothing.
		_ = s.objects.LostStreams.Get(&requests)
		_ = s.objects.LostConns.Get(&connections)
	}
	return requests, connections
}

func (s *streams) close() {
	for _, l := range s.links {
		l.Close()
	}
	s.links = nil
	s.headers.close()
	if s.attached {
		s.objects.Close()
	}
	s.attached = false
}
