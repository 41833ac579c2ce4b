package request

import (
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/slowray/slowray/internal/bpf"
	"github.com/slowray/slowray/internal/sense/host"
)

const (
	// The programs that tell streams apart see every packet of the host. Where
	// requests overlap and nothing of HTTP/2 is found within http2Look they are
	// taken off, and tried again after http2Again; so long after the last connection of
	// HTTP/2 they are taken off, too.
	http2Look  = 5 * time.Second
	http2Again = time.Minute

	sockSendLength = "sock/sock_send_length" // since Linux 6.3
)

// streams tells the requests of HTTP/2 connections apart, as far as they can be
// read, from when requests were first seen to overlap, or to look like it (programs
// that may read received bytes: Linux 6.12).
type streams struct {
	overlap  bool      // since the last look: requests overlap, or look like HTTP/2
	next     time.Time // no attempt before
	since    time.Time // attached, or of HTTP/2 there was a connection
	found    bool      // there was one, since they are attached
	objects  bpf.HTTP2Objects
	links    []io.Closer
	attached bool
	failed   error  // it cannot be done here
	lost     uint64 // found no place, while they were attached before
}

// streamPrograms are programs that tell streams apart, loaded next to the recorder's.
type streamPrograms struct {
	followVariables
	sampleMask, again       *ebpf.Variable
	lostStreams, lostPlaces *ebpf.Variable
	lostConns               *ebpf.Variable
	flush                   *ebpf.Program
	placeOf                 *ebpf.Map
}

// streamReaders are those that are loaded now.
func (r *Recorder) streamReaders() []streamPrograms {
	var all []streamPrograms
	if o := &r.streams.objects; r.streams.attached {
		all = append(all, streamPrograms{
			followVariables{o.FollowShift, o.FollowMask, o.FollowSlice, o.FollowReach, o.FollowShare, o.FollowSends},
			o.SampleMask, o.Again, o.LostStreams, o.LostPlaces, o.LostConns, o.Http2Flush, o.PlaceOf})
	}
	if o := &r.clear.objects; r.clear.loaded {
		all = append(all, streamPrograms{
			followVariables{o.FollowShift, o.FollowMask, o.FollowSlice, o.FollowReach, o.FollowShare, o.FollowSends},
			o.SampleMask, o.Again, o.LostStreams, o.LostPlaces, o.LostConns, o.Http2Flush, o.PlaceOf})
	}
	return all
}

// tellStreams attaches the programs when requests overlap, and takes them off
// when that was for another reason.
func (r *Recorder) tellStreams(now time.Time) {
	s := &r.streams
	if s.failed != nil {
		return
	}
	if s.attached {
		var n int64
		if err := s.objects.ToldApart.Get(&n); err == nil && s.idle(n, now) {
			r.endStreams()
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
	s.since, s.found = now, false
}

// endStreams takes the programs off. What begins meanwhile is the recorder's.
func (r *Recorder) endStreams() {
	s := &r.streams
	seen := min(2, len(s.links)) // the first ones see connections end, and what is sent acknowledged
	closeAll(s.links[seen:])
	s.links = s.links[:seen]
	if s.objects.GiveBack.Set(uint8(1)) == nil {
		_ = r.look(s.objects.Http2Flush, s.objects.PlaceOf)
	}
	s.lost += lostOf(s.objects.LostStreams, s.objects.LostConns)
	s.close()
	s.overlap = false // of the time when they were attached
	_ = r.objects.Http2Seen.Set(uint8(0))
}

// idle says, of how many connections of HTTP/2 there are, that the programs are of no use: at
// once where there never was one, and later where there was.
func (s *streams) idle(connections int64, now time.Time) bool {
	if connections != 0 {
		s.since, s.found = now, true
		return false
	}
	if s.found {
		return now.Sub(s.since) > http2Again
	}
	if now.Sub(s.since) <= http2Look {
		return false
	}
	s.next = now.Add(http2Again)
	return true
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
	if !hasTracepoint("sock_send_length") { // loaded, and not attached
		spec.Programs[bpf.HTTP2ProgHttp2Written] = spec.Programs[bpf.HTTP2ProgHttp2Retransmitted]
	}
	s := &r.streams
	if err := r.loadStreams(spec, &s.objects); err != nil {
		return err
	}
	s.attached = true
	for _, hook := range []struct {
		name    string
		program *ebpf.Program
	}{
		{"sock/inet_sock_set_state", s.objects.Http2Closed},
		{"tcp/tcp_probe", s.objects.Http2Acked},
		{"tcp/tcp_retransmit_skb", s.objects.Http2Retransmitted},
		{"tcp/tcp_rcv_space_adjust", s.objects.Http2Read},
		{sockSendLength, s.objects.Http2Written},
	} {
		if hook.name == sockSendLength && !hasTracepoint("sock_send_length") {
			continue
		}
		l, err := link.AttachTracing(link.TracingOptions{Program: hook.program})
		if err != nil {
			return fmt.Errorf("attach %s: %w", hook.name, err)
		}
		s.links = append(s.links, l)
	}
	links, err := bpf.AttachCgroup(root,
		bpf.CgroupProgram{At: ebpf.AttachCGroupInetIngress, Program: s.objects.Http2In},
		bpf.CgroupProgram{At: ebpf.AttachCGroupInetEgress, Program: s.objects.Http2Out})
	s.links = append(s.links, links...)
	if err == nil {
		r.doLess()
	}
	return err
}

// loadStreams loads programs that tell streams apart, with the recorder's maps. Names in
// all their objects are the same.
func (r *Recorder) loadStreams(spec *ebpf.CollectionSpec, objects any) error {
	for name, value := range map[string]any{
		bpf.HTTP2VarCpus:          uint32(r.cpus),
		bpf.HTTP2VarSlots:         uint32(r.slots),
		bpf.HTTP2VarOrderedStores: flag(runtime.GOARCH == "amd64"),
		bpf.HTTP2VarSlowNs:        uint64(r.opt.Slow),
		bpf.HTTP2VarUnfinishedNs:  uint64(unfinished),
		bpf.HTTP2VarWithLabels:    flag(r.opt.Labels),
		bpf.HTTP2VarNextHeaders:   r.headers.first(),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	if !r.overMaps {
		spec.Programs[bpf.HTTP2ProgHttp2Flush] = spec.Programs[bpf.HTTP2ProgHttp2FlushFiles]
	}
	shared := map[string]*ebpf.Map{
		bpf.HTTP2MapConns: r.objects.Conns, bpf.HTTP2MapCounts: r.objects.Counts, bpf.HTTP2MapRecords: r.objects.Records, bpf.HTTP2MapRings: r.objects.Rings,
		bpf.HTTP2MapCallers: r.objects.Callers, bpf.HTTP2MapEndpoints: r.objects.Endpoints, bpf.HTTP2MapListening: r.objects.Listening, bpf.HTTP2MapLookupOf: r.objects.LookupOf,
	}
	if r.opt.Labels {
		if err := r.headers.open(spec.Maps[bpf.HTTP2MapHeaderBlocks]); err != nil {
			return fmt.Errorf("header blocks: %w", err)
		}
		shared[bpf.HTTP2MapHeaderBlocks] = r.headers.pieces
	}
	return bpf.LoadBeside(spec, objects, shared)
}

// lostOfStreams is how many requests, and connections, found no place.
func (r *Recorder) lostOfStreams() (n uint64) {
	n = r.streams.lost
	for _, p := range r.streamReaders() {
		n += lostOf(p.lostStreams, p.lostConns)
	}
	return n
}

// lostOf adds counters up. A variable that cannot be read counts nothing.
func lostOf(counters ...*ebpf.Variable) (n uint64) {
	for _, v := range counters {
		var lost uint64
		_ = v.Get(&lost)
		n += lost
	}
	return n
}

func (s *streams) close() {
	for _, l := range s.links {
		l.Close()
	}
	s.links = nil
	if s.attached {
		s.objects.Close()
	}
	s.attached = false
}
