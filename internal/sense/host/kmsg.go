package host

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

// Kmsg follows the kernel log.
type Kmsg struct {
	mu   sync.Mutex
	fd   int
	buf  []byte
	next uint64 // number the next record should have; 0 when not known

	syslog bool          // by syslog(2), without a device
	last   time.Duration // of what was read by syslog(2), since boot
}

// maxDrain bounds the records of one Drain, so that a kernel that logs faster
// than we read cannot hold it for ever.
const maxDrain = 200_000

// OpenKmsg opens the kernel log device, /dev/kmsg, behind its last record.
// Needs CAP_SYSLOG where kernel.dmesg_restrict is 1, and rights on the device; without the
// device it is read by syslog(2).
func OpenKmsg(path string) (*Kmsg, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil && path == kmsgDevice {
		if text, denied := readSyslog(); denied == nil {
			if _, last := syslogRecords(text, 0, func(kmsgRecord, time.Duration) {}); last > 0 {
				return &Kmsg{fd: -1, syslog: true, last: last}, nil
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("kernel log %s: %w", path, err)
	}
	if _, err := unix.Seek(fd, 0, unix.SEEK_END); err != nil && !errors.Is(err, unix.ESPIPE) {
		closeFD(fd)
		return nil, fmt.Errorf("kernel log %s: %w", path, err)
	}
	// A record is at most 8 KiB (CONSOLE_EXT_LOG_MAX, kernel/printk/printk.c).
	return &Kmsg{fd: fd, buf: make([]byte, 16<<10)}, nil
}

// Close closes the device.
func (k *Kmsg) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fd < 0 {
		return nil
	}
	err := unix.Close(k.fd)
	k.fd = -1
	return err
}

// Drain returns what the kernel logged since the last call, counted by kind and
// subject in order of first appearance, and how many records were overwritten
// before they could be read. It never waits. Kinds are: "conntrack-table-full"
// (with NetNS when it is printed), "syn-flood" (with Port, and Addr when it is
// printed) and those of kernelMessages, some with the Subject that they name.
func (k *Kmsg) Drain() (lines []observe.KernelLine, lost int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var c lineCounter
	if k.syslog {
		text, err := readSyslog()
		if err != nil {
			return nil, 0
		}
		first, last := syslogRecords(text, k.last, func(r kmsgRecord, _ time.Duration) {
			if r.kernel {
				c.count(r.text)
			}
		})
		if first > k.last {
			lost = 1 // or more: what followed the last one read was overwritten
		}
		k.last = max(k.last, last)
		return c.lines, lost
	}
	overwritten := false
	for range maxDrain {
		n, err := unix.Read(k.fd, k.buf)
		if err == unix.EINTR {
			continue
		}
		if err == unix.EPIPE {
			// Records were overwritten; the next read gives the oldest there is.
			overwritten = true
			continue
		}
		if err != nil || n <= 0 {
			break
		}
		for b := k.buf[:n]; len(b) > 0; {
			var line []byte
			line, b = nextLine(b)
			r, ok := parseKmsg(line)
			if !ok {
				continue
			}
			if overwritten {
				lost += k.missed(r.seq)
				overwritten = false
			}
			k.next = r.seq + 1
			if r.kernel {
				c.count(r.text)
			}
		}
	}
	if overwritten {
		lost++
	}
	return c.lines, lost
}

// missed is how many records lie between the last one read and seq, at least 1.
func (k *Kmsg) missed(seq uint64) int {
	if k.next == 0 || seq <= k.next || seq-k.next > 1<<30 {
		return 1
	}
	return int(seq - k.next)
}

// kmsgRecord is one record of /dev/kmsg (Documentation/ABI/testing/dev-kmsg).
type kmsgRecord struct {
	seq    uint64
	kernel bool // from the kernel itself: user space cannot write facility 0
	text   []byte
}

// parseKmsg reads "PRIORITY,SEQUENCE,TIMESTAMP,FLAGS[,…];TEXT". Lines that begin
// with a space carry KEY=value pairs of the record before; they and anything
// malformed are not ok.
func parseKmsg(line []byte) (kmsgRecord, bool) {
	if len(line) == 0 || line[0] == ' ' {
		return kmsgRecord{}, false
	}
	head, text, ok := bytes.Cut(line, []byte(";"))
	prio, head, ok2 := bytes.Cut(head, []byte(","))
	seq, _, ok3 := bytes.Cut(head, []byte(","))
	p, okPrio := ParseUint(prio)
	n, okSeq := ParseUint(seq)
	if !ok || !ok2 || !ok3 || !okPrio || !okSeq {
		return kmsgRecord{}, false
	}
	return kmsgRecord{seq: n, kernel: p>>3 == 0, text: text}, true
}

// lineCounter counts messages by kind and subject.
type lineCounter struct {
	lines []observe.KernelLine
	index map[observe.KernelLine]int // by the fields that tell lines apart
}

// maxSubjects bounds the subjects told apart: a flood on many ports must not
// grow without end. What is beyond counts for its kind alone.
const maxSubjects = 256

func (c *lineCounter) count(text []byte) {
	l, ok := classify(text)
	if !ok {
		return
	}
	if c.index == nil {
		c.index = make(map[observe.KernelLine]int)
	}
	if _, known := c.index[l]; !known && len(c.lines) >= maxSubjects {
		l = observe.KernelLine{Kind: l.Kind}
	}
	i, known := c.index[l]
	if !known {
		i = len(c.lines)
		c.index[l] = i
		l.Example = printable.Name(text, 256)
		c.lines = append(c.lines, l)
	}
	c.lines[i].Count++
}
