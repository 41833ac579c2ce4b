package callstack

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/slowray/slowray/internal/bpf"
)

// kind says what a record tells of, as in stacks.bpf.c.
type kind uint16

const (
	onCPU    kind = 1
	offCPU   kind = 2
	executed kind = 3
)

const (
	flagKernelThread  = 1 // it has no memory of its own
	flagNoKernelStack = 2

	headerSize  = 4*8 + 2*4 + 4*2 + 16
	kernelDepth = 64
	userDepth   = 127
)

// record is struct record of stacks.bpf.c, whose memory it uses.
type record struct {
	time, blocked, runnable uint64 // ns; time by the monotonic clock
	caller                  uint64 // where the innermost user frame may return to; 0 = nowhere that is known
	pid, tid                int
	kind                    kind
	flags                   uint16
	comm                    []byte // of the thread
	kernel, user            []byte // addresses of 8 bytes, leaf first
}

var errRecord = errors.New("malformed record")

func parseRecord(b []byte, r *record) error {
	if len(b) < headerSize {
		return errRecord
	}
	le := binary.LittleEndian
	r.time, r.blocked, r.runnable = le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:])
	r.caller = le.Uint64(b[24:])
	r.pid, r.tid = int(le.Uint32(b[32:])), int(le.Uint32(b[36:]))
	r.kind, r.flags = kind(le.Uint16(b[40:])), le.Uint16(b[46:])
	kernel, user := int(le.Uint16(b[42:]))*8, int(le.Uint16(b[44:]))*8
	r.comm = b[48:64]
	ips := b[headerSize:]
	if kernel+user > len(ips) {
		return errRecord
	}
	r.kernel, r.user = ips[:kernel], ips[kernel:kernel+user]
	return nil
}

func address(ips []byte, i int) uint64 { return binary.LittleEndian.Uint64(ips[i*8:]) }

// commText is a name as the kernel keeps it.
func commText(b []byte) string {
	name, _, _ := strings.Cut(string(b), "\x00")
	return name
}

// parked is struct parked of stacks.bpf.c: a thread that left the CPU.
type parked struct {
	Time, Woken uint64
	Caller      uint64
	State, User uint32
	TGID        uint32
	Flags, Deep uint16
	Comm        [16]byte
	IPs         [userDepth * 8]byte
}

// waiting calls each for every thread that is off the CPU now.
func (r *recorder) waiting(each func(tid int, p *parked)) error {
	var (
		tid  uint32
		p    parked
		iter = r.collection.Maps[bpf.StacksMapOff].Iterate()
	)
	for iter.Next(&tid, &p) {
		if p.Time != 0 {
			each(int(tid), &p)
		}
	}
	return iter.Err()
}
