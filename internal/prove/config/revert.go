package config

import (
	"bytes"
	"slices"
)

// revert takes an edit back in a text that may have been changed elsewhere too;
// false where what it set is not there (any more), or not surely the same. old
// and new are the text before the edit and right after it.
func (e edit) revert(old, new, now []byte) ([]byte, bool) {
	out := slices.Clone(now)
	shift := len(new) - len(old)
	for i := len(e.splices) - 1; i >= 0; i-- {
		s := e.splices[i]
		shift -= len(s.text) - (s.end - s.begin)
		begin := s.begin + shift
		at, ok := locate(now, new, begin, begin+len(s.text))
		if !ok {
			return nil, false
		}
		out = slices.Concat(out[:at], old[s.begin:s.end], out[at+len(s.text):])
	}
	return out, true
}

// locate finds the bytes [begin, end) of new in now: where all before them, or
// all behind them, is the same with one byte more at least; or else by the lines
// that they are in, where those are there once.
func locate(now, new []byte, begin, end int) (at int, ok bool) {
	if bytes.Equal(now, new) {
		return begin, true
	}
	if commonPrefix(now, new) > end {
		return begin, true
	}
	behind := 0
	for behind < len(now) && behind < len(new) && now[len(now)-1-behind] == new[len(new)-1-behind] {
		behind++
	}
	if len(new)-behind < begin {
		return len(now) - (len(new) - begin), true
	}
	from := bytes.LastIndexByte(new[:begin], '\n') + 1
	to := len(new)
	if end > begin && new[end-1] == '\n' {
		to = end
	} else if i := bytes.IndexByte(new[end:], '\n'); i >= 0 {
		to = end + i + 1
	}
	lines := new[from:to]
	i := bytes.Index(now, lines)
	if i < 0 || bytes.LastIndex(now, lines) != i || i > 0 && now[i-1] != '\n' {
		return 0, false
	}
	return i + begin - from, true
}

// torn says that text is the beginning of one content and the rest of the
// other: a writer in place was stopped.
func torn(text, old, new []byte) bool {
	for _, by := range [][2][]byte{{new, old}, {old, new}} {
		for i := commonPrefix(text, by[0]); i >= 0; i-- {
			if i == len(text) && i >= len(by[1]) || i < len(by[1]) && slices.Equal(text[i:], by[1][i:]) {
				return true
			}
		}
	}
	return false
}

func commonPrefix(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
