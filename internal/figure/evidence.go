package figure

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Value writes a figure of an evidence: whole numbers with thousands separators,
// others with four significant digits and never with an exponent. What is no
// number is written as it is.
func Value(v any) string {
	switch n := v.(type) {
	case int:
		return Count(n)
	case int64:
		return Count(n)
	case uint32:
		return Count(n)
	case uint64:
		return Count(n)
	case float64:
		return number(n)
	case json.Number:
		if f, err := n.Float64(); err == nil {
			return number(f)
		}
	}
	return fmt.Sprint(v)
}

// number writes a finite number without an exponent; beyond what a number of
// 64 bits holds it gives up on that.
func number(f float64) string {
	switch size := math.Abs(f); {
	case math.IsNaN(f) || size >= 1e15:
		return strconv.FormatFloat(f, 'g', 4, 64)
	case size >= 999.95:
		return Count(int64(math.Round(f)))
	case size < 1e-9:
		return "0"
	}
	short, err := strconv.ParseFloat(strconv.FormatFloat(f, 'g', 4, 64), 64)
	if err != nil {
		return fmt.Sprint(f)
	}
	return strconv.FormatFloat(short, 'f', -1, 64)
}

// Evidence writes the figure of an evidence with what it is measured against and
// its unit, as in "15.45 of 16.72 s in which nginx was busy". A share of something
// is a percentage of it. What exceeds its limit is no part of it: "11 connections,
// limit 10". limit may be nil, unit empty.
func Evidence(value, limit any, unit string) string {
	if of, is := strings.CutPrefix(unit, "share"); is && (of == "" || of[0] == ' ') {
		if f, ok := value.(float64); ok && f >= 0 && f <= 1 {
			text := Percent(f)
			if max, known := limit.(float64); known && max != 1 {
				text += " of " + Percent(max)
			}
			return text + of
		}
	}
	text, against := Value(value), ""
	switch {
	case limit == nil || fmt.Sprint(limit) == "":
	case above(value, limit):
		against = ", limit " + Value(limit)
	default:
		text += " of " + Value(limit)
	}
	if unit != "" {
		text += " " + unit
	}
	return text + against
}

// above says that a figure exceeds its limit: it is no part of it then.
func above(value, limit any) bool {
	v, known := asFloat(value)
	l, limited := asFloat(limit)
	return known && limited && v > l
}

func asFloat(v any) (f float64, ok bool) {
	switch n := v.(type) {
	case int:
		return float64(n), true
	case int64:
		return float64(n), true
	case uint32:
		return float64(n), true
	case uint64:
		return float64(n), true
	case float64:
		return n, true
	case json.Number:
		f, err := n.Float64()
		return f, err == nil
	case string: // as the kernel shows it
		f, err := strconv.ParseFloat(n, 64)
		return f, err == nil
	}
	return 0, false
}
