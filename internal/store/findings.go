package store

import (
	"bytes"
	"encoding/json"
	"math"
	"time"
)

// findingRow is a row of findings/…: what was found in one window. The column
// json holds all of it, the others what is often asked for.
type findingRow struct {
	Start         int64   `parquet:"start,timestamp(microsecond),delta"`
	End           int64   `parquet:"stop,timestamp(microsecond),delta"`
	Cause         string  `parquet:"cause,dict"`
	Title         string  `parquet:"title,dict"`
	Role          string  `parquet:"role,dict"`
	Verdict       string  `parquet:"verdict,dict"`
	ConsequenceOf string  `parquet:"consequence_of,dict"`
	Share         float64 `parquet:"share"`
	Of            string  `parquet:"of,dict"`
	Text          string  `parquet:"text,dict"`
	Weight        float64 `parquet:"weight"`
	SubjectKind   string  `parquet:"subject_kind,dict"`
	NetNS         int64   `parquet:"netns,dict"`
	PID           int32   `parquet:"pid,delta"`
	Comm          string  `parquet:"comm,dict"`
	Port          int32   `parquet:"port,delta"`
	Addr          string  `parquet:"addr,dict"`
	Interface     string  `parquet:"interface,dict"`
	Rule          string  `parquet:"rule,dict"`
	Container     string  `parquet:"container,dict"`
	Path          string  `parquet:"path,dict"`
	JSON          string  `parquet:"json,dict"`
}

// set makes the row of a finding whose JSON this is.
func (row *findingRow) set(f *Finding, text []byte) {
	s := &f.Subject
	*row = findingRow{
		Start: f.Start.UnixMicro(), End: f.End.UnixMicro(), Cause: string(f.Cause), Title: f.Title, Role: string(f.Role), Verdict: string(f.Verdict),
		Share: f.Impact.Share, Of: f.Impact.Of, Text: f.Impact.Text, Weight: f.Weight,
		SubjectKind: s.Kind, NetNS: int64(s.NetNS), PID: int32(s.PID), Comm: s.Comm, Port: int32(s.Port), Addr: s.Addr,
		Interface: s.Interface, Rule: s.Rule, Container: s.Container, Path: s.Path, JSON: string(text),
	}
	if f.ConsequenceOf != nil {
		row.ConsequenceOf = string(*f.ConsequenceOf)
	}
}

// finding reads the row back.
func (row *findingRow) finding() (Finding, error) {
	f := Finding{Start: time.UnixMicro(row.Start).UTC(), End: time.UnixMicro(row.End).UTC()}
	err := json.Unmarshal([]byte(row.JSON), &f.Finding)
	f.Weight = row.Weight
	return f, err
}

// appendFinding appends a finding as an entry of a log: times, weight, JSON.
func appendFinding(b []byte, f *Finding) ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(&f.Finding); err != nil {
		return b, err
	}
	e := encoder{b}
	e.int(f.Start.UnixMicro())
	e.int(f.End.UnixMicro())
	e.uint(math.Float64bits(f.Weight))
	e.text(string(bytes.TrimRight(text.Bytes(), "\n")))
	return e.b, nil
}

// decodeFinding is the inverse, as a row; false when the entry is malformed.
func decodeFinding(entry []byte, row *findingRow) bool {
	f, text, ok := readFinding(entry)
	if ok {
		row.set(&f, text)
	}
	return ok
}

// readFinding is the inverse of appendFinding, with the finding's JSON.
func readFinding(entry []byte) (f Finding, text []byte, ok bool) {
	d := decoder{b: entry}
	f.Start, f.End = time.UnixMicro(d.int()).UTC(), time.UnixMicro(d.int()).UTC()
	weight := math.Float64frombits(d.uint())
	text = d.bytes()
	if !d.ended() || json.Unmarshal(text, &f.Finding) != nil {
		return f, nil, false
	}
	f.Weight = weight
	return f, text, true
}

// findings gives the rows of findings of the log as they came.
func (l *logData) findings(f func(*findingRow) bool) (bad uint64) {
	for _, frame := range l.frames {
		more := true
		entries(frame, func(kind byte, entry []byte) bool {
			if kind != entryFinding {
				return true
			}
			var row findingRow
			if !decodeFinding(entry, &row) {
				bad++
				return true
			}
			more = f(&row)
			return more
		})
		if !more {
			break
		}
	}
	return bad
}
