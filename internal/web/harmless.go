package web

import (
	"bytes"
	"strconv"
	"unicode/utf8"

	"github.com/slowray/slowray/internal/printable"
)

// maxText is how many bytes of one text in an answer are kept: a name from the
// network may have any length, and a label 64 KB.
const maxText = 4096

// harmless makes every text in a JSON document fit to be shown: control
// characters, what reverses the reading direction or cannot be seen, and line
// separators become a replacement character, and what is too long is cut off. Line
// breaks and tabs stay: commands have them. It is done once, on what is sent,
// so that no name is forgotten.
func harmless(doc []byte) []byte {
	if clean(doc) {
		return doc
	}
	out := make([]byte, 0, len(doc))
	for i := 0; i < len(doc); {
		if doc[i] != '"' {
			out = append(out, doc[i])
			i++
			continue
		}
		out = append(out, '"')
		i++
		start, cut := len(out), false
		for i < len(doc) && doc[i] != '"' {
			var piece []byte
			piece, i = nextPiece(doc, i)
			if cut = cut || len(out)-start+len(piece) > maxText; !cut {
				out = append(out, piece...)
			}
		}
		if cut {
			out = append(out, "…"...)
		}
		out = append(out, '"')
		i++
	}
	return out
}

// clean says that nothing has to be done: plain text, and no long one.
func clean(doc []byte) bool {
	for rest := doc; ; {
		i := bytes.IndexByte(rest, '"')
		if i < 0 {
			return true
		}
		rest = rest[i+1:]
		end := bytes.IndexByte(rest, '"')
		if end < 0 || end > maxText {
			return false
		}
		for _, c := range rest[:end] {
			if c == '\\' || c < ' ' || c > '~' {
				return false
			}
		}
		rest = rest[end+1:]
	}
}

var replacement = []byte("�")

// nextPiece is the next character inside a JSON string as it is written, made
// harmless, and where the one after it begins.
func nextPiece(doc []byte, i int) ([]byte, int) {
	c := doc[i]
	switch {
	case c == '\\' && i+1 < len(doc):
		return escapedPiece(doc, i)
	case c < utf8.RuneSelf:
		if c < ' ' || c == 0x7f {
			return replacement, i + 1
		}
		return doc[i : i+1], i + 1
	}
	r, size := utf8.DecodeRune(doc[i:])
	if r == utf8.RuneError || printable.Unseen(r) {
		return replacement, i + size
	}
	return doc[i : i+size], i + size
}

func escapedPiece(doc []byte, i int) ([]byte, int) {
	switch doc[i+1] {
	case 'b', 'f', 'r':
		return replacement, i + 2
	case 'u':
		if i+6 > len(doc) {
			return replacement, len(doc)
		}
		n, err := strconv.ParseUint(string(doc[i+2:i+6]), 16, 16)
		if err != nil || printable.Unseen(rune(n)) && n != '\n' && n != '\t' {
			return replacement, i + 6
		}
		return doc[i : i+6], i + 6
	}
	return doc[i : i+2], i + 2
}
