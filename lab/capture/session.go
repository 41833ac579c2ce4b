package capture

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Session is a connection of TLS, decrypted.
type Session struct {
	Client, Server netip.AddrPort
	// Asks and Answers are the records of application data that either end sent, in order.
	Asks, Answers []Record
}

// Record is one of application data, RFC 8446 section 5. Its times are CLOCK_REALTIME, ns.
type Record struct {
	Clear []byte
	Left  int64 // its first byte did, for the first time; 0 = not captured
	Came  int64 // all bytes up to its last one had; 0 = not captured
	Early bool  // of 0-RTT, RFC 8446 section 2.3
}

// half is what one end sent.
type half struct {
	base  uint32 // sequence number of the first byte
	known bool
	bytes []byte
	left  []mark // of packets that went out
	came  []mark // of packets that came in, in order of their bytes
}

// mark says when all bytes below upto had passed.
type mark struct {
	upto int
	when int64
}

// Decrypt gives the connections of TLS in a capture, whose beginning and keys are there. Packets have to
// be whole (Options.Snap), and in order of time. A record that the keys do not open is an error, as
// are new keys between requests (KeyUpdate), renegotiation, and another cipher than AES-GCM.
func Decrypt(packets []Packet, keys Keys) ([]*Session, error) {
	type pair struct{ from, to netip.AddrPort }
	halves := map[pair]*half{}
	var asking []pair
	for i := range packets {
		p := &packets[i]
		way := pair{p.Src, p.Dst}
		h := halves[way]
		if p.Flags&SYN != 0 {
			if h == nil {
				halves[way] = &half{base: p.Seq + 1, known: true}
				if p.Flags&ACK == 0 {
					asking = append(asking, way)
				}
			}
			continue
		}
		if h == nil || p.Len == 0 {
			continue
		}
		if err := h.see(p); err != nil {
			return nil, fmt.Errorf("decrypt: %s: %w", p, err)
		}
	}
	var all []*Session
	for _, way := range asking {
		asks, answers := halves[way], halves[pair{way.to, way.from}]
		if answers == nil || len(answers.bytes) == 0 || len(asks.bytes) == 0 || asks.bytes[0] != handshakeRecord {
			continue // of another protocol
		}
		s := &Session{Client: way.from, Server: way.to}
		o, err := open(keys, asks.bytes, answers.bytes)
		if err == nil {
			s.Asks, err = o.records(asks, &o.client)
		}
		if err == nil {
			s.Answers, err = o.records(answers, &o.server)
		}
		if err != nil {
			return nil, fmt.Errorf("decrypt %s → %s: %w", s.Client, s.Server, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// see takes in a packet's bytes.
func (h *half) see(p *Packet) error {
	if len(p.Data) != p.Len {
		return fmt.Errorf("%d bytes of its payload are kept", len(p.Data))
	}
	at := int(p.Seq - h.base) // of less than 4 GiB
	upto := at + p.Len
	if upto > len(h.bytes) {
		if at > len(h.bytes) {
			return errors.New("bytes before it were not captured")
		}
		h.bytes = append(h.bytes, p.Data[len(h.bytes)-at:]...)
	}
	marks := &h.came
	if p.Outgoing {
		marks = &h.left
	}
	if n := len(*marks); n == 0 || at <= (*marks)[n-1].upto && upto > (*marks)[n-1].upto {
		*marks = append(*marks, mark{upto, p.TimeNS})
	}
	return nil
}

// passed gives when a byte did; 0 = not seen.
func passed(marks []mark, at int) int64 {
	i, _ := slices.BinarySearchFunc(marks, at+1, func(m mark, upto int) int { return cmp.Compare(m.upto, upto) })
	if i == len(marks) {
		return 0
	}
	return marks[i].when
}

// Types of records and of messages of the handshake, RFC 8446 sections 5.1 and 4.
const (
	changeCipherSpec = 20
	handshakeRecord  = 22
	applicationData  = 23

	clientHello    = 1
	serverHello    = 2
	endOfEarlyData = 5
	finished       = 20

	recordHeader  = 5
	messageHeader = 4
)

// records decrypts what an end sent. What it sent of a last record that is not whole is left.
func (o *opener) records(h *half, keys *direct) (list []Record, err error) {
	var said []byte // of the handshake, not yet a whole message
	for at := 0; at+recordHeader <= len(h.bytes); {
		end := at + recordHeader + int(binary.BigEndian.Uint16(h.bytes[at+3:]))
		if end > len(h.bytes) {
			break
		}
		kind, clear, early := h.bytes[at], h.bytes[at+recordHeader:end], keys.early != nil
		if kind == changeCipherSpec {
			keys.sealed = true
		} else if o.v13 && kind == applicationData || !o.v13 && keys.sealed {
			if kind, clear, err = keys.open(h.bytes[at:end], o.v13); err != nil {
				return nil, fmt.Errorf("record at %d of %d bytes: %w", at, end-at, err)
			}
			early = early && keys.early != nil
		}
		switch kind {
		case applicationData:
			list = append(list, Record{Clear: clear, Left: passed(h.left, at), Came: passed(h.came, end-1), Early: early})
		case handshakeRecord:
			if said = append(said, clear...); !o.v13 && keys.sealed {
				said = nil // Finished, or a renegotiation's
			}
			for len(said) >= messageHeader {
				size := messageHeader + int(said[1])<<16 + int(said[2])<<8 + int(said[3])
				if size > len(said) {
					break
				}
				o.next(keys, said[0])
				said = said[size:]
			}
		}
		at = end
	}
	return list, nil
}
