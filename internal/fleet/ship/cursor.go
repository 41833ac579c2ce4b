package ship

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/safefile"
)

// state is what a stream of a target must not forget.
type state struct {
	Done   fleet.Position // all up to here were sent or given up
	Sent   fleet.Position // the last one that the target has taken
	First  fleet.Position // of the batch that is under way; 0 when none is
	Last   fleet.Position
	GaveUp uint64 // records that were given up, ever
}

// cursorFile keeps the state of a stream. It has two slots, written in turn: what a
// power cut leaves half written is one of them, and the other holds.
type cursorFile struct {
	f      *os.File
	turn   uint64
	synced time.Time
}

const (
	slotBytes  = 256
	cursorForm = "slowray.cursor/1 turn=%d done=%d sent=%d first=%d last=%d gaveup=%d"
	// syncEvery is how often the cursor is made durable. After a power cut an older
	// one is no harm where the target can tell its Mark.
	syncEvery = 10 * time.Second
)

// openCursor opens or makes the cursor of a stream; known is false when there was
// none.
func openCursor(dir *safefile.Dir, name string) (c *cursorFile, s state, known bool, err error) {
	f, err := dir.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, s, false, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	c = &cursorFile{f: f}
	data, err := io.ReadAll(io.NewSectionReader(f, 0, 2*slotBytes))
	if err != nil {
		return nil, s, false, err
	}
	for at := 0; at+slotBytes <= len(data); at += slotBytes {
		if turn, slot, ok := parseSlot(data[at : at+slotBytes]); ok && turn > c.turn {
			c.turn, s, known = turn, slot, true
		}
	}
	if len(data) > 0 && !known {
		return nil, s, false, fmt.Errorf("%s: damaged (remove it, and sending begins with what is recorded from then on)", filepath.Join(dir.Path(), name))
	}
	if len(data) < 2*slotBytes {
		// Room for both slots is taken now: a full disk does not stop the cursor.
		_, err = c.f.WriteAt(make([]byte, 2*slotBytes-len(data)), int64(len(data)))
		if err == nil {
			err = c.write(s, true)
		}
		if err == nil {
			err = dir.Sync()
		}
	}
	return c, s, known, err
}

func parseSlot(slot []byte) (turn uint64, s state, ok bool) {
	text, sum, cut := bytes.Cut(bytes.TrimRight(slot, " \n\x00"), []byte(" crc="))
	var crc uint32
	if _, err := fmt.Sscanf(string(sum), "%08x", &crc); !cut || err != nil || crc != crc32.ChecksumIEEE(text) {
		return 0, s, false
	}
	_, err := fmt.Sscanf(string(text), cursorForm, &turn, &s.Done, &s.Sent, &s.First, &s.Last, &s.GaveUp)
	return turn, s, err == nil && turn > 0 && turn < math.MaxUint64 // they begin with 1, and another one follows
}

// write notes a state: it outlives this process at once, and a power cut when it is
// to be durable, or when the last time was some while ago.
func (c *cursorFile) write(s state, durable bool) error {
	turn := c.turn + 1
	text := fmt.Appendf(make([]byte, 0, slotBytes), cursorForm, turn, s.Done, s.Sent, s.First, s.Last, s.GaveUp)
	text = fmt.Appendf(text, " crc=%08x", crc32.ChecksumIEEE(text))
	for len(text) < slotBytes-1 {
		text = append(text, ' ')
	}
	text = append(text, '\n')
	if _, err := c.f.WriteAt(text, int64(turn%2)*slotBytes); err != nil {
		return err
	}
	c.turn = turn
	if now := time.Now(); durable || now.Sub(c.synced) >= syncEvery {
		c.synced = now
		return unix.Fdatasync(int(c.f.Fd()))
	}
	return nil
}

func (c *cursorFile) close() { c.f.Close() }
