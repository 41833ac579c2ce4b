package report

import (
	"net/netip"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/slowray/slowray/internal/printable"
)

// The append functions write onto a buffer that the caller keeps: a line per
// request must not cost an allocation per request.

// appendClean appends s as printable.Text makes it.
func appendClean(dst []byte, s string) []byte {
	if len(s) > printable.MaxText {
		return append(dst, printable.Text(s)...)
	}
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' {
			return append(dst, printable.Text(s)...)
		}
	}
	return append(dst, s...)
}

const hexDigits = "0123456789abcdef"

// AppendJSONString appends s as a JSON string. Control characters, invisible
// ones and line separators are escaped, also where JSON would allow them as
// they are: such lines are read on terminals too. What is not UTF-8 becomes
// the replacement character.
func AppendJSONString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			switch {
			case c == '"' || c == '\\':
				dst = append(dst, '\\', c)
			case c < ' ' || c == 0x7f:
				dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			default:
				dst = append(dst, c)
			}
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r < 0x10000 && printable.Unseen(r):
			dst = append(dst, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
		case r == utf8.RuneError || printable.Unseen(r):
			dst = utf8.AppendRune(dst, utf8.RuneError)
		default:
			dst = append(dst, s[i:i+size]...)
		}
		i += size
	}
	return append(dst, '"')
}

// appendMicros appends nanoseconds as microseconds with three decimals.
func appendMicros(dst []byte, ns int64) []byte {
	u := uint64(ns)
	if ns < 0 {
		dst = append(dst, '-')
		u = -u
	}
	dst = strconv.AppendUint(dst, u/1000, 10)
	return appendPadded(append(dst, '.'), int(u%1000), 3)
}

// AppendDuration appends a time with three significant digits and the unit
// that suits it, without a blank, as in "12.3ms".
func AppendDuration(dst []byte, ns int64) []byte {
	if ns < 1000 {
		return append(strconv.AppendInt(dst, ns, 10), "ns"...)
	}
	for _, u := range [...]struct {
		ns   int64
		name string
	}{{1e3, "µs"}, {1e6, "ms"}, {1e9, "s"}} {
		for decimals, step := 2, u.ns/100; decimals >= 0; decimals, step = decimals-1, step*10 {
			n := (ns + step/2) / step
			if n >= 1000 && (decimals > 0 || u.ns < 1e9) {
				continue
			}
			scale := pow10(decimals)
			dst = strconv.AppendInt(dst, n/scale, 10)
			if decimals > 0 {
				dst = appendPadded(append(dst, '.'), int(n%scale), decimals)
			}
			return append(dst, u.name...)
		}
	}
	return dst // not reached: seconds take any number
}

func pow10(n int) int64 {
	p := int64(1)
	for range n {
		p *= 10
	}
	return p
}

// appendPadded appends n with leading zeros.
func appendPadded(dst []byte, n, digits int) []byte {
	for p := int(pow10(digits - 1)); p > 0; p /= 10 {
		dst = append(dst, byte('0'+n/p%10))
	}
	return dst
}

// appendStamp appends a wall-clock time as RFC 3339 in UTC, with nanoseconds.
func appendStamp(dst []byte, ns int64) []byte {
	t := time.Unix(0, ns).UTC()
	year, month, day := t.Date()
	dst = append(appendPadded(dst, year, 4), '-')
	dst = append(appendPadded(dst, int(month), 2), '-')
	dst = append(appendPadded(dst, day, 2), 'T')
	dst = append(appendClock(dst, t), '.')
	return append(appendPadded(dst, t.Nanosecond(), 9), 'Z')
}

// appendClock appends the time of the day.
func appendClock(dst []byte, t time.Time) []byte {
	hour, minute, second := t.Clock()
	dst = append(appendPadded(dst, hour, 2), ':')
	dst = append(appendPadded(dst, minute, 2), ':')
	return appendPadded(dst, second, 2)
}

// appendAddr appends an address and port, IPv6 as [addr]:port; an IPv4 address
// that came over an IPv6 socket is written as IPv4.
func appendAddr(dst []byte, a netip.AddrPort) []byte {
	if !a.IsValid() {
		return append(dst, "0.0.0.0:0"...)
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).AppendTo(dst)
}

// padTo appends blanks until what was written since start is width characters.
func padTo(dst []byte, start, width int) []byte {
	for n := utf8.RuneCount(dst[start:]); n < width; n++ {
		dst = append(dst, ' ')
	}
	return dst
}
