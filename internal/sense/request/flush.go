package request

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/slowray/slowray/internal/sense/host"
)

// spacesEvery is how often it is asked which network namespaces there are.
const spacesEvery = 5 * time.Second

// FlushAll is Flush at the end of a window: every request that is complete is
// handed out, however short a time nothing happened on its connection.
func (r *Recorder) FlushAll() error {
	// An answer is complete, as far as can be known, when nothing followed
	// its last acknowledgement for a few round trips.
	return r.flush(5 * time.Millisecond)
}

func (r *Recorder) flush(after time.Duration) error {
	r.setClock()
	wait := idle
	if after > 0 {
		wait = after
	}
	if err := r.objects.IdleNs.Set(uint64(wait)); err != nil {
		return fmt.Errorf("requests: flush: %w", err)
	}
	if err := r.objects.Again.Set(flag(after > 0)); err != nil {
		return fmt.Errorf("requests: flush: %w", err)
	}
	if err := r.look(r.objects.Flush, r.objects.Conns); err != nil || !r.streams.attached {
		return err
	}
	if err := r.streams.objects.Again.Set(flag(after > 0)); err != nil {
		return fmt.Errorf("requests: flush: %w", err)
	}
	return r.look(r.streams.objects.Http2Flush, r.streams.objects.PlaceOf)
}

// look runs a program that writes records over all sockets with a place in a
// map, or, where the kernel has no iterators over maps, over all TCP sockets.
func (r *Recorder) look(prog *ebpf.Program, over *ebpf.Map) error {
	if !r.overMaps {
		over = nil
	}
	it, err := link.AttachIter(link.IterOptions{Program: prog, Map: over})
	if err != nil {
		return fmt.Errorf("requests: flush: %w", err)
	}
	defer it.Close()
	if r.overMaps {
		return r.read(it)
	}
	for _, ns := range r.namespaces() {
		// It looks at the namespace of the thread that opens it. One that is gone
		// has no sockets.
		_ = ns.Do(func() error {
			err = errors.Join(err, r.read(it))
			return nil
		})
	}
	return err
}

// namespaces are the network namespaces of the host's processes, as of some seconds
// ago at most.
func (r *Recorder) namespaces() []*host.NetNS {
	if now := time.Now(); now.Sub(r.spacesAt) > spacesEvery {
		r.closeSpaces()
		r.spacesAt = now
		fs := host.Default()
		procs, _ := fs.Processes()
		for _, pid := range host.NetNamespaces(procs) {
			if ns, err := fs.OpenNetNS(pid); err == nil {
				r.spaces = append(r.spaces, ns)
			}
		}
	}
	return r.spaces
}

func (r *Recorder) closeSpaces() {
	for _, ns := range r.spaces {
		ns.Close()
	}
	r.spaces = nil
}

// read takes what an iterator has the programs write.
func (r *Recorder) read(it *link.Iter) error {
	reader, err := it.Open()
	if err != nil {
		return fmt.Errorf("requests: flush: %w", err)
	}
	defer reader.Close()
	// The program writes a word for each record, so a read ends when the ring
	// has that many more.
	told := make([]byte, 8*min(int(r.slots)/4, 512))
	for {
		_, err := reader.Read(told)
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("requests: flush: %w", err)
		}
		if r.each != nil {
			r.drainAll(r.each)
		}
	}
}
