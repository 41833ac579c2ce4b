package request

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

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
	if err := r.look(r.objects.Flush, r.objects.Conns); err != nil {
		return err
	}
	for _, p := range r.streamReaders() {
		if err := p.again.Set(flag(after > 0)); err != nil {
			return fmt.Errorf("requests: flush: %w", err)
		}
		if err := r.look(p.flush, p.placeOf); err != nil {
			return err
		}
	}
	return nil
}

// look runs a program that writes records over all sockets with a place in a
// map, or, where the kernel has no iterators over maps, over all open files.
func (r *Recorder) look(prog *ebpf.Program, over *ebpf.Map) error {
	if !r.overMaps {
		over = nil
	}
	it, err := link.AttachIter(link.IterOptions{Program: prog, Map: over})
	if err != nil {
		return fmt.Errorf("requests: flush: %w", err)
	}
	defer it.Close()
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
