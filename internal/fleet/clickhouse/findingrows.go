package clickhouse

import (
	"bytes"
	"encoding/json"
	"math"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/store"
)

// findingRows collects findings.
type findingRows struct {
	*block
	hostPart
	c map[string]*column
}

func newFindingRows(table string) *findingRows {
	b, c, _ := newBlock(table, findingDefs)
	return &findingRows{block: b, hostPart: newHostPart(c), c: c}
}

// add appends a finding.
func (w *findingRows) add(b *fleet.Batch, p fleet.Position, f *store.Finding) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(&f.Finding); err != nil {
		return err
	}
	row, c, s := w.rows, w.c, &f.Subject
	w.hostPart.put(row, b, p, f.Start.UnixMicro(), "")
	c["stop_us"].put64(row, uint64(f.End.UnixMicro()))
	consequence := ""
	if f.ConsequenceOf != nil {
		consequence = string(*f.ConsequenceOf)
	}
	for name, v := range map[string]string{
		"cause": string(f.Cause), "title": f.Title, "role": string(f.Role), "verdict": string(f.Verdict), "consequence_of": consequence,
		"of": f.Impact.Of, "text": f.Impact.Text, "subject_kind": s.Kind, "comm": s.Comm, "addr": s.Addr, "interface": s.Interface,
		"rule": s.Rule, "container": s.Container, "path": s.Path, "json": string(bytes.TrimRight(text.Bytes(), "\n")),
	} {
		c[name].putText(row, v)
	}
	c["share"].put64(row, math.Float64bits(f.Impact.Share))
	c["weight"].put64(row, math.Float64bits(f.Weight))
	c["netns"].put64(row, s.NetNS)
	c["pid"].put32(row, uint32(s.PID))
	c["port"].put32(row, uint32(s.Port))
	w.rows++
	return nil
}
