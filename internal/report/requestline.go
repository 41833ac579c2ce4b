package report

import (
	"encoding/hex"
	"math/bits"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/slowray/slowray/internal/observe"
)

// Widths of the columns of a request in text.
const (
	clockWidth  = len("15:04:05.000")
	sideWidth   = len("served")
	addrWidth   = len("255.255.255.255:65535")
	statusWidth = len("status")
	totalWidth  = len("12.3ms")
)

// AppendRequestHeader appends the line above requests in text.
func AppendRequestHeader(dst []byte, style Style) []byte {
	start := len(dst)
	for _, c := range [...]struct {
		name  string
		width int
	}{{"start", clockWidth}, {"side", sideWidth}, {"endpoint", addrWidth}, {"client", addrWidth}, {"status", statusWidth}} {
		at := len(dst)
		dst = append(padTo(append(dst, c.name...), at, c.width), ' ')
	}
	dst = append(dst, " total  time breakdown"...)
	dst = WrapLine(dst, start, style)
	if style.Color {
		dst = append(dst[:start], "\x1b["+string(bold)+"m"+string(dst[start:])+"\x1b[0m"...)
	}
	return append(dst, '\n')
}

// AppendRequestText appends r as one line for a person, with its newline:
// start (local time), side, the endpoint that answers, the client that asks,
// status, total, then every part of the ledger that is not zero, flags, the
// process and the label. On the called side the process is that of the client.
// How the connection of a call was opened, and what the client's late acknowledgement took,
// is in brackets: it is not part of the total. processOf may be nil; peer is who was at the other end. Nothing is
// allocated when dst has room.
func AppendRequestText(dst []byte, r *observe.Request, processOf observe.IdentityOf, peer *observe.Workload, style Style) []byte {
	start := len(dst)
	t := time.Unix(0, r.StartNS)
	dst = append(appendClock(dst, t), '.')
	dst = append(appendPadded(dst, t.Nanosecond()/1e6, 3), ' ')
	dst = append(append(dst, r.Side.String()...), ' ')

	endpoint, client := r.Local, r.Peer
	if r.Side == observe.Called {
		endpoint, client = r.Peer, r.Local
	}
	at := len(dst)
	dst = append(padTo(appendAddr(dst, endpoint), at, addrWidth), ' ')
	at = len(dst)
	dst = append(padTo(appendAddr(dst, client), at, addrWidth), ' ')

	dst = append(appendStatus(dst, r, style), ' ')
	dst = appendTotal(dst, r.TotalNS(), style)
	dst = append(dst, ' ')
	dst = appendOpening(dst, &r.Opening, style)
	dst = AppendRequestParts(dst, r, style)
	dst = appendFlags(dst, r, style)
	if r.PID != 0 {
		dst = append(dst, ' ')
		if processOf != nil {
			p, _ := processOf(r.PID, endOf(r))
			dst = appendClean(dst, p.Comm)
			switch {
			case p.Workload.Pod != "":
				dst = appendPod(append(dst, '@'), &p.Workload)
			case p.ContainerName != "":
				dst = appendClean(append(dst, '@'), p.ContainerName)
			}
		}
		dst = append(dst, '[')
		dst = append(strconv.AppendInt(dst, int64(r.PID), 10), ']')
	}
	if peer != nil && *peer != (observe.Workload{}) {
		way := " from "
		if r.Side == observe.Called {
			way = " to "
		}
		dst = appendPod(append(dst, way...), peer)
	}
	if r.Label != "" {
		dst = appendClean(append(dst, ' ', ' '), r.Label)
	}
	if r.Trace.Known() {
		dst = hex.AppendEncode(append(dst, " trace "...), r.Trace.ID[:])
	}
	return append(WrapLine(dst, start, style), '\n')
}

// appendPod appends what observe.Workload.String gives.
func appendPod(dst []byte, w *observe.Workload) []byte {
	dst = append(appendClean(dst, w.Namespace), '/')
	if w.Pod == "" {
		return appendClean(dst, w.Name)
	}
	return appendClean(dst, w.Pod)
}

// paintOn and paintOff enclose text in a colour, where there are colours.
func paintOn(dst []byte, style Style, c color) []byte {
	if style.Color {
		dst = append(append(append(dst, "\x1b["...), c...), 'm')
	}
	return dst
}

func paintOff(dst []byte, style Style) []byte {
	if style.Color {
		dst = append(dst, "\x1b[0m"...)
	}
	return dst
}

func appendStatus(dst []byte, r *observe.Request, style Style) []byte {
	var buf [24]byte
	text := buf[:0]
	switch {
	case r.HTTP != 0:
		text = strconv.AppendInt(text, int64(r.HTTP), 10)
	case r.Status == observe.StatusUnknown:
		text = append(text, '-')
	default:
		text = append(text, r.Status.String()...)
	}
	failed := r.Status == observe.StatusError
	if failed {
		dst = paintOn(dst, style, red)
	}
	dst = append(dst, text...)
	if failed {
		dst = paintOff(dst, style)
	}
	for n := len(text); n < statusWidth; n++ {
		dst = append(dst, ' ')
	}
	return dst
}

func appendTotal(dst []byte, ns int64, style Style) []byte {
	var buf [32]byte
	text := AppendDuration(buf[:0], ns)
	for n := utf8.RuneCount(text); n < totalWidth; n++ {
		dst = append(dst, ' ')
	}
	dst = paintOn(dst, style, bold)
	return paintOff(append(dst, text...), style)
}

// openingShown is the least time that a connection was open and idle that is worth its place: less
// passes in any client.
const openingShown = int64(time.Millisecond)

// appendOpening appends how the connection was opened, in brackets.
func appendOpening(dst []byte, o *observe.Opening, style Style) []byte {
	if o.Connect == 0 {
		return dst
	}
	dst = paintOn(append(dst, ' '), style, dim)
	dst = append(dst, '(')
	if o.DNS != 0 {
		dst = append(AppendDuration(append(dst, "dns "...), o.DNS), ", "...)
	}
	dst = AppendDuration(append(dst, "connect "...), o.Connect)
	if o.Idle >= openingShown {
		dst = AppendDuration(append(dst, ", idle "...), o.Idle)
	}
	return paintOff(append(dst, ')'), style)
}

// AppendRequestParts appends with what a request spent its time, a space before each part.
func AppendRequestParts(dst []byte, r *observe.Request, style Style) []byte {
	total := r.TotalNS()
	for p, ns := range r.Ledger {
		part := observe.Part(p)
		if ns == 0 {
			continue
		}
		dst = append(dst, ' ')
		paint := color("")
		switch {
		case part == observe.AckDelay:
			paint = dim
		case 2*ns > total: // most of the time
			paint = yellow
		}
		if paint != "" {
			dst = paintOn(dst, style, paint)
		}
		if part == observe.AckDelay {
			dst = append(dst, '(')
		}
		dst = append(append(dst, part.String()...), ' ')
		dst = AppendDuration(dst, ns)
		if part == observe.Server && r.Followed {
			dst = appendSplit(dst, &r.Split, ns)
		}
		if part == observe.AckDelay {
			dst = append(dst, ')')
		}
		if paint != "" {
			dst = paintOff(dst, style)
		}
	}
	return dst
}

// splitShown is the least share of the server's time that a part of it is worth
// its place for: one in splitShown.
const splitShown = 20

// appendSplit appends what the server did in server ns, in brackets: all that
// is more than a splitShown-th of it.
func appendSplit(dst []byte, split *observe.ServerSplit, server int64) []byte {
	opening := " ("
	for p, ns := range split {
		if ns == 0 || ns < server/splitShown {
			continue
		}
		dst = append(append(dst, opening...), observe.ServerPart(p).Short()...)
		dst = AppendDuration(append(dst, ' '), ns)
		opening = ", "
	}
	if opening == " (" {
		return dst
	}
	return append(dst, ')')
}

// appendFlags appends what was special, and how many requests the line stands
// for when it is more than one.
func appendFlags(dst []byte, r *observe.Request, style Style) []byte {
	if r.Requests > 1 {
		dst = append(dst, ' ')
		dst = strconv.AppendUint(dst, uint64(r.Requests), 10)
		dst = append(dst, " requests"...)
	}
	if r.Weight > 1 {
		dst = append(dst, " 1 of "...)
		dst = strconv.AppendUint(dst, uint64(r.Weight), 10)
	}
	if r.Flags == 0 {
		return dst
	}
	dst = append(dst, ' ')
	dst = paintOn(dst, style, yellow)
	separator := byte('[')
	for f := uint32(r.Flags); f != 0; f &= f - 1 {
		if name := requestFlags[bits.TrailingZeros32(f)]; name != "" {
			dst = append(append(dst, separator), name...)
			separator = ','
		}
	}
	if separator == ',' {
		dst = append(dst, ']')
	}
	return paintOff(dst, style)
}
