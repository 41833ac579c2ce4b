package web

import (
	"bytes"
	"encoding/csv"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/slowray/slowray/internal/printable"
)

// table is rows of a CSV file.
type table struct {
	head []string
	rows [][]string
}

// csv writes the table as RFC 4180 has it.
func (t *table) csv() []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	w.UseCRLF = true
	w.Write(t.head)
	w.WriteAll(t.rows)
	return b.Bytes()
}

// cell is text from the host as a cell: a spreadsheet would take what begins
// with one of these for a formula (CWE-1236), and control characters are not
// for files that people open.
func cell(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case printable.Unseen(r):
			return utf8.RuneError
		}
		return r
	}, text[:min(len(text), 2*maxText)])
	if len(text) > maxText { // a replacement is longer than what it stands for
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	if text != "" && strings.ContainsRune("=+-@|\t\r\n'", rune(text[0])) {
		return "'" + text
	}
	return text
}

// digits is a number as a cell; empty for none.
func digits(x float64) string {
	b := appendFigure(nil, x)
	if string(b) == "null" {
		return ""
	}
	return string(b)
}

func count[T int | int64 | uint32 | uint64](n T) string {
	return strconv.FormatInt(int64(n), 10)
}
