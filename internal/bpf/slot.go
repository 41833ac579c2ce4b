package bpf

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
)

// ErrSlotTaken says that another program has the slot.
var ErrSlotTaken = errors.New("another program is called there")

// Slot is a place in an attached program from which it calls one more (bpf_tail_call): two
// programs at a hook for the price of one way in.
type Slot struct {
	programs *ebpf.Map // BPF_MAP_TYPE_PROG_ARRAY with one element

	mu    sync.Mutex
	taken bool
}

// NewSlot is the slot of a map of programs.
func NewSlot(programs *ebpf.Map) *Slot { return &Slot{programs: programs} }

// Put has a program called until the returned SlotLink is closed. It has to be of the
// same type, and for the same hook, as the one that calls it. With another program there
// the error is ErrSlotTaken.
func (s *Slot) Put(p *ebpf.Program) (*SlotLink, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken {
		return nil, ErrSlotTaken
	}
	if err := s.programs.Put(uint32(0), p); err != nil {
		return nil, fmt.Errorf("call it from an attached program: %w", err)
	}
	s.taken = true
	return &SlotLink{slot: s}, nil
}

// SlotLink is what link.Link is for a program that is attached.
type SlotLink struct {
	slot *Slot
	once sync.Once
}

// Close takes the program out of the slot. It may be called again.
func (l *SlotLink) Close() (err error) {
	l.once.Do(func() {
		l.slot.mu.Lock()
		defer l.slot.mu.Unlock()
		l.slot.taken = false
		err = l.slot.programs.Delete(uint32(0))
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			err = nil
		}
	})
	return err
}
