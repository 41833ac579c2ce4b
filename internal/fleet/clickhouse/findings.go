package clickhouse

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/store"
)

const (
	// maxFindings is how many an answer has at most: the latest.
	maxFindings = 100_000
	// maxFinding bounds the JSON of one, bytes: a larger one is none of ours.
	maxFinding = 256 << 10
	// maxFindingsMemory bounds what the findings of an answer take in memory, about: the
	// latest that fit. perValue is what a value of JSON takes next to its text.
	maxFindingsMemory, perValue = 256 << 20, 64
)

// Findings implements fleet.Archive: those of windows that overlap the question's
// time, in the order in which the windows ended. The question's service does not
// choose: a host's finding may be about anything that a service needs.
func (db *DB) Findings(ctx context.Context, q fleet.Question) ([]fleet.HostFinding, error) {
	s := spanOf(&q)
	// Moments that no DateTime can be are no host's of ours: as years they would not even be JSON.
	where := fmt.Sprintf("start_us >= 0 AND stop_us < %d AND start_us < %d AND stop_us > %d AND day <= toDate(%d)", int64(maxTime)*1e6, s.to*1e6, s.from*1e6, min(s.to/86400+1, 65535))
	if !q.To.IsZero() {
		where += fmt.Sprintf(" AND start_us < %d", q.To.UnixMicro())
	}
	if !q.From.IsZero() {
		where += fmt.Sprintf(" AND stop_us > %d", q.From.UnixMicro())
	}
	q.Service, q.Side = "", 0
	where += db.conditions(&q, "port", nil)
	var host, text proto.ColStr
	var start, stop proto.ColInt64
	var weight proto.ColFloat64
	var all []fleet.HostFinding
	memory := 0
	err := db.anyServer(ctx, func(server string, d Dialect) error {
		all, memory = nil, 0
		return db.c.query(ctx, server, d, maxKept, fmt.Sprintf("SELECT CAST(host AS String) AS host_, start_us, stop_us, weight, json FROM findings WHERE %s ORDER BY stop_us DESC, host_, position DESC LIMIT %d", where, maxFindings),
			proto.Results{{Data: &host}, {Data: &start}, {Data: &stop}, {Data: &weight}, {Data: &text}}, func(n int) bool {
				for i := range n {
					document := text.RowBytes(i)
					if len(document) > maxFinding {
						continue
					}
					if memory += len(document) + perValue*(1+bytes.Count(document, []byte{','})); memory > maxFindingsMemory || len(all) == maxFindings {
						return false
					}
					f := fleet.HostFinding{Host: host.Row(i), Finding: store.Finding{Start: time.UnixMicro(start[i]).UTC(), End: time.UnixMicro(stop[i]).UTC()}}
					if json.Unmarshal(document, &f.Finding.Finding) != nil {
						continue // of another program: not what a host of ours ships
					}
					f.Weight = weight[i]
					all = append(all, f)
				}
				return true
			})
	})
	if err != nil {
		return nil, fmt.Errorf("clickhouse: findings: %w", err)
	}
	for i, j := 0, len(all)-1; i < j; i, j = i+1, j-1 {
		all[i], all[j] = all[j], all[i]
	}
	return all, nil
}
