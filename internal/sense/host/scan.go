package host

import (
	"bytes"
	"math"
)

// nextField cuts the first run of non-blank bytes off b. Blanks are spaces and
// tabs. At the end of b both results are empty.
func nextField(b []byte) (field, rest []byte) {
	i := 0
	for i < len(b) && (b[i] == ' ' || b[i] == '\t') {
		i++
	}
	j := i
	for j < len(b) && b[j] != ' ' && b[j] != '\t' {
		j++
	}
	return b[i:j], b[j:]
}

// nextLine cuts the first line off b, without its newline.
func nextLine(b []byte) (line, rest []byte) {
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		return b[:i], b[i+1:]
	}
	return b, nil
}

// ParseUint reads b as a decimal number. ok is false when b is empty, holds
// anything but digits, or does not fit.
func ParseUint(b []byte) (n uint64, ok bool) {
	if len(b) == 0 {
		return 0, false
	}
	for _, c := range b {
		d := uint64(c - '0')
		if d > 9 || n > (math.MaxUint64-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}

// parseInt is ParseUint with an optional leading minus sign.
func parseInt(b []byte) (int64, bool) {
	neg := len(b) > 0 && b[0] == '-'
	if neg {
		b = b[1:]
	}
	n, ok := ParseUint(b)
	if !ok || n > math.MaxInt64 {
		return 0, false
	}
	if neg {
		return -int64(n), true
	}
	return int64(n), true
}

// ParseHex reads b as a hexadecimal number without prefix, at most 64 bits.
func ParseHex(b []byte) (n uint64, ok bool) {
	if len(b) == 0 || len(b) > 16 {
		return 0, false
	}
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		n = n<<4 | uint64(c)
	}
	return n, true
}

// ParseSmall is ParseUint for values that become an int, as pids and counts.
func ParseSmall(b []byte) (int, bool) {
	n, ok := ParseUint(b)
	if !ok || n > math.MaxInt32 {
		return 0, false
	}
	return int(n), true
}

// AfterKey returns what follows key on the line of b that starts with it,
// without surrounding blanks.
func AfterKey(b []byte, key string) ([]byte, bool) {
	for len(b) > 0 {
		var line []byte
		line, b = nextLine(b)
		if len(line) >= len(key) && string(line[:len(key)]) == key {
			return bytes.TrimSpace(line[len(key):]), true
		}
	}
	return nil, false
}

// grown is b - a, or 0 when the counter went backwards.
func grown(a, b uint64) uint64 {
	if b < a {
		return 0
	}
	return b - a
}

// grown32 is grown for counters that the kernel keeps in 32 bits: a fall from
// the top quarter of the range to the bottom quarter is a wrap.
func grown32(a, b uint64) uint64 {
	if b < a && a <= math.MaxUint32 && a >= 3<<30 && b < 1<<30 {
		return b + (1 << 32) - a
	}
	return grown(a, b)
}
