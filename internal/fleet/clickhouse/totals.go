package clickhouse

import (
	"cmp"
	"context"
	"fmt"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
)

// endpointHash is that of an endpoint, with room for a bucket's number, as serviceHash is
// that of a service.
const endpointHash = "bitAnd(cityHash64(host, service, side, addr, port), 18446744073709549568)"

// total is what Totals makes of an endpoint.
type total struct {
	fleet.Total
	longest int64 // µs
}

// Totals implements fleet.Archive. The servers add the histograms up; what comes here is
// one for each endpoint.
func (db *DB) Totals(ctx context.Context, q fleet.Question, f func(*fleet.Total) bool) error {
	conditions := db.conditions(&q, "port", nil)
	sums := map[fleet.Key]*total{}
	for _, part := range cover(spanOf(&q)) {
		if err := db.addTotals(ctx, part, conditions, sums); err != nil {
			return fmt.Errorf("clickhouse: totals: %w", err)
		}
	}
	for _, s := range sums {
		s.Times.RaiseMax(s.longest * 1000)
		if !f(&s.Total) {
			return nil
		}
	}
	return nil
}

func (db *DB) addTotals(ctx context.Context, part tableSpan, conditions string, sums map[fleet.Key]*total) error {
	where := part.where() + conditions
	longest := "max(total_max_us)"
	if part.table != "seconds" {
		longest = "maxMerge(total_max_us)"
	}
	var host, service, addr proto.ColStr
	var side, port proto.ColUInt16
	var key, requests, errors, segments, retrans proto.ColUInt64
	var us, most proto.ColInt64
	byKey := map[uint64]*total{}
	var before fleet.Key
	err := db.anyServer(ctx, func(server string, d Dialect) error {
		return db.c.query(ctx, server, d, maxKept, "SELECT CAST(host AS String) AS host_, CAST(service AS String) AS service_, toUInt16(side) AS side_, CAST(addr AS String) AS addr_, toUInt16(port) AS port_, "+endpointHash+" AS key, "+
			"sum(requests) AS r, sum(errors) + sum(unanswered) AS e, toInt64(sum(total_us)) AS us, sum(segments) AS s, sum(retrans) AS a, "+longest+" AS m FROM "+
			part.table+" WHERE "+where+" GROUP BY host_, service_, side_, addr_, port_, key", proto.Results{{Data: &host}, {Data: &service}, {Data: &side}, {Data: &addr}, {Data: &port}, {Data: &key},
			{Data: &requests}, {Data: &errors}, {Data: &us}, {Data: &segments}, {Data: &retrans}, {Data: &most}},
			func(n int) bool {
				for i := range n {
					k := fleet.Key{Host: keep(before.Host, &host, i), Service: keep(before.Service, &service, i), Side: observe.Side(side[i]), Addr: keep(before.Addr, &addr, i), Port: int(port[i])}
					before = k
					s := sums[k]
					if s == nil {
						s = &total{Total: fleet.Total{Key: k}}
						sums[k] = s
					}
					byKey[key[i]] = s
					s.Requests += requests[i]
					s.Errors += errors[i]
					s.TotalUS += us[i]
					s.Segments += segments[i]
					s.Retrans += retrans[i]
					s.longest = max(s.longest, most[i])
				}
				return true
			})
	})
	if err != nil {
		return err
	}
	var count proto.ColUInt64
	return db.anyServer(ctx, func(server string, d Dialect) error {
		return db.c.query(ctx, server, d, maxBuckets, "SELECT key + bucket AS k, sum(n) AS n_ FROM (SELECT "+endpointHash+" AS key, total_histMap.bucket AS b, total_histMap.n AS c FROM "+
			part.table+" WHERE "+where+") ARRAY JOIN b AS bucket, c AS n GROUP BY k", proto.Results{{Data: &key}, {Data: &count}},
			func(n int) bool {
				for i := range n {
					if s := byKey[key[i]&^bucketMask]; s != nil { // others came between the two questions
						s.Times.AddNumbered(int(key[i]&bucketMask), count[i])
					}
				}
				return true
			})
	})
}

// Places implements fleet.Archive. Of several control groups of an endpoint the first and
// the last by name tell what all have in common.
func (db *DB) Places(ctx context.Context, q fleet.Question) (map[fleet.Key]fleet.Place, error) {
	s := spanOf(&q)
	s.from, s.to = s.from/300*300, min((s.to+299)/300*300, maxTime)
	var host, service, addr, first, last, name, id proto.ColStr
	var side, port proto.ColUInt16
	places := map[fleet.Key]fleet.Place{}
	err := db.anyServer(ctx, func(server string, d Dialect) error {
		clear(places)
		return db.c.query(ctx, server, d, maxKept, "SELECT CAST(host AS String) AS host_, CAST(service AS String) AS service_, toUInt16(side) AS side_, CAST(addr AS String) AS addr_, toUInt16(port) AS port_, "+
			"minIf(CAST(cgroup AS String), notEmpty(cgroup)) AS c0, max(CAST(cgroup AS String)) AS c1, max(CAST(container_name AS String)) AS name_, max(CAST(container AS String)) AS id_ FROM minutes5 WHERE "+
			s.where()+db.conditions(&q, "port", nil)+" GROUP BY host_, service_, side_, addr_, port_", proto.Results{{Data: &host}, {Data: &service}, {Data: &side}, {Data: &addr}, {Data: &port},
			{Data: &first}, {Data: &last}, {Data: &name}, {Data: &id}},
			func(n int) bool {
				for i := range n {
					p := fleet.Place{Cgroup: fleet.CommonGroup(first.Row(i), last.Row(i)), Container: cmp.Or(name.Row(i), id.Row(i))}
					if p != (fleet.Place{}) {
						places[fleet.Key{Host: host.Row(i), Service: service.Row(i), Side: observe.Side(side[i]), Addr: addr.Row(i), Port: int(port[i])}] = p
					}
				}
				return true
			})
	})
	if err != nil {
		return nil, fmt.Errorf("clickhouse: places: %w", err)
	}
	return places, nil
}
