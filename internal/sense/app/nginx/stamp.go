package nginx

import (
	"bytes"
	"time"
)

const (
	localLen = len("21/Oct/2026:06:29:00 +0000")
	isoLen   = len("2026-10-21T06:29:00+00:00")
	errorLen = len("2026/10/21 06:29:00")
)

// stamps turns the times of log lines into Unix seconds. Most lines carry the
// same time as the line before: that one is remembered.
type stamps struct {
	zone   *time.Location // of times without a zone
	last   [32]byte
	length int
	second int64
	ok     bool
}

func (s *stamps) cached(b []byte) bool {
	if s.length == len(b) && bytes.Equal(s.last[:s.length], b) {
		return true
	}
	s.length = copy(s.last[:], b)
	return false
}

// errorTime reads "2026/10/21 06:29:00", local time.
func (s *stamps) errorTime(b []byte) (int64, bool) {
	if s.cached(b) {
		return s.second, s.ok
	}
	y, mo, d := number(b[0:4]), number(b[5:7]), number(b[8:10])
	s.clock(y, mo, d, number(b[11:13]), number(b[14:16]), number(b[17:19]), s.zone)
	return s.second, s.ok
}

// local reads "21/Oct/2026:06:29:00 +0000".
func (s *stamps) local(b []byte) (int64, bool) {
	if s.cached(b) {
		return s.second, s.ok
	}
	s.clock(number(b[7:11]), month(b[3:6]), number(b[0:2]), number(b[12:14]), number(b[15:17]), number(b[18:20]), time.UTC)
	s.offset(b[21], number(b[22:24]), number(b[24:26]))
	return s.second, s.ok
}

// iso reads "2026-10-21T06:29:00+00:00".
func (s *stamps) iso(b []byte) (int64, bool) {
	if s.cached(b) {
		return s.second, s.ok
	}
	s.clock(number(b[0:4]), number(b[5:7]), number(b[8:10]), number(b[11:13]), number(b[14:16]), number(b[17:19]), time.UTC)
	s.offset(b[19], number(b[20:22]), number(b[23:25]))
	return s.second, s.ok
}

func (s *stamps) clock(y, mo, d, h, mi, sec int, zone *time.Location) {
	s.ok = y >= 0 && mo >= 1 && mo <= 12 && d >= 1 && d <= 31 && h >= 0 && h < 24 && mi >= 0 && mi < 60 && sec >= 0 && sec < 61
	if !s.ok {
		return
	}
	if zone == nil {
		zone = time.Local
	}
	s.second = time.Date(y, time.Month(mo), d, h, mi, sec, 0, zone).Unix()
}

func (s *stamps) offset(sign byte, h, m int) {
	if s.ok = s.ok && h >= 0 && m >= 0 && (sign == '+' || sign == '-'); !s.ok {
		return
	}
	if shift := int64(h*3600 + m*60); sign == '+' {
		s.second -= shift
	} else {
		s.second += shift
	}
}

// number reads digits, -1 when there is anything else.
func number(b []byte) int {
	n := 0
	for _, c := range b {
		if !isDigit(c) {
			return -1
		}
		n = n*10 + int(c-'0')
	}
	return n
}

func month(b []byte) int {
	const names = "JanFebMarAprMayJunJulAugSepOctNovDec"
	for i := 0; i < len(names); i += 3 {
		if names[i:i+3] == string(b) {
			return i/3 + 1
		}
	}
	return -1
}

// unixSeconds reads the whole seconds of "1792564140.123".
func unixSeconds(b []byte) (int64, bool) {
	whole, _, _ := bytes.Cut(b, []byte("."))
	if len(whole) == 0 || len(whole) > 12 {
		return 0, false
	}
	n := number(whole)
	return int64(n), n >= 0
}
