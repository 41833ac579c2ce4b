package clickhouse

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/schema"
)

// cover cuts a span into as few rows as tell it exactly: sums of five minutes in the
// middle, those of ten seconds and seconds at both ends.
func cover(s span) []tableSpan {
	var list []tableSpan
	var cut func(s span, steps []step)
	cut = func(s span, steps []step) {
		if s.from >= s.to {
			return
		}
		n := steps[0].seconds
		from, to := (s.from+n-1)/n*n, s.to/n*n
		if from >= to {
			cut(s, steps[1:])
			return
		}
		list = append(list, tableSpan{steps[0].table, span{from, to}})
		if len(steps) > 1 {
			cut(span{s.from, from}, steps[1:])
			cut(span{to, s.to}, steps[1:])
		}
	}
	cut(s, []step{{"minutes5", 300}, {"seconds10", 10}, {"seconds", 1}})
	return list
}

type step struct {
	table   string
	seconds int64
}

type tableSpan struct {
	table string
	span
}

// serviceSum is what Quantiles makes of a service.
type serviceSum struct {
	fleet.ServiceTimes
	total observe.Histogram
	hosts map[string]bool
}

type serviceKey2 struct {
	service string
	side    observe.Side
}

// bucketMask are the bits of a bucket's number; serviceHash has the others. Two services
// are taken for one with a chance of n²/2⁵⁴.
const (
	bucketMask  = 1<<11 - 1
	serviceHash = "bitAnd(cityHash64(service, side), 18446744073709549568)"
)

// Quantiles implements fleet.Archive, in the order of services and sides. The servers
// add the histograms up; what comes here is a histogram for each service.
func (db *DB) Quantiles(ctx context.Context, q fleet.Question, quantiles []float64) ([]fleet.ServiceTimes, error) {
	conditions := db.conditions(&q, "port", nil)
	sums := map[serviceKey2]*serviceSum{}
	for _, part := range cover(spanOf(&q)) {
		if err := db.addServices(ctx, part, conditions, sums); err != nil {
			return nil, fmt.Errorf("clickhouse: quantiles: %w", err)
		}
	}
	all := make([]fleet.ServiceTimes, 0, len(sums))
	for _, s := range sums {
		s.Hosts = len(s.hosts)
		for _, quantile := range quantiles {
			s.QuantilesUS = append(s.QuantilesUS, schema.RoundMicros(s.total.Quantile(quantile)))
		}
		all = append(all, s.ServiceTimes)
	}
	slices.SortFunc(all, func(a, b fleet.ServiceTimes) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Side, b.Side))
	})
	return all, nil
}

func (db *DB) addServices(ctx context.Context, part tableSpan, conditions string, sums map[serviceKey2]*serviceSum) error {
	where := part.where() + conditions
	of := func(service string, side int16) *serviceSum {
		key := serviceKey2{service, observe.Side(side)}
		s := sums[key]
		if s == nil {
			s = &serviceSum{ServiceTimes: fleet.ServiceTimes{Service: service, Side: key.side}, hosts: map[string]bool{}}
			sums[key] = s
		}
		return s
	}
	longest := "max(total_max_us)"
	if part.table != "seconds" {
		longest = "maxMerge(total_max_us)"
	}
	var service, host proto.ColStr
	var side proto.ColInt16
	var requests, errors, key proto.ColUInt64
	byKey := map[uint64]*serviceSum{}
	var most proto.ColInt64
	maxUS := map[*serviceSum]int64{}
	err := db.anyServer(ctx, func(server string, d Dialect) error {
		return db.c.query(ctx, server, d, maxKept, "SELECT CAST(service AS String) AS service_, toInt16(side) AS side_, CAST(host AS String) AS host_, "+serviceHash+" AS key, sum(requests) AS r, sum(errors) + sum(unanswered) AS e, "+longest+" AS m FROM "+
			part.table+" WHERE "+where+" GROUP BY service_, side_, host_, key", proto.Results{{Data: &service}, {Data: &side}, {Data: &host}, {Data: &key}, {Data: &requests}, {Data: &errors}, {Data: &most}},
			func(n int) bool {
				for i := range n {
					s := of(service.Row(i), side[i])
					byKey[key[i]] = s
					s.Requests += requests[i]
					s.Errors += errors[i]
					s.hosts[host.Row(i)] = true
					maxUS[s] = max(maxUS[s], most[i])
				}
				return true
			})
	})
	if err != nil {
		return err
	}
	// Ten thousands of histograms have millions of buckets: they are grouped by one
	// number, made of the hash of the service and the bucket.
	var count proto.ColUInt64
	err = db.anyServer(ctx, func(server string, d Dialect) error {
		return db.queryBlocks(ctx, server, d, histogramRows, "SELECT key + bucket AS k, sum(n) AS n_ FROM (SELECT "+serviceHash+" AS key, total_histMap.bucket AS b, total_histMap.n AS c FROM "+
			part.table+" WHERE "+where+") ARRAY JOIN b AS bucket, c AS n GROUP BY k", proto.Results{{Data: &key}, {Data: &count}},
			func(n int) bool {
				for i := range n {
					if s := byKey[key[i]&^bucketMask]; s != nil { // others came between the two questions
						s.total.AddNumbered(int(key[i]&bucketMask), count[i])
					}
				}
				return true
			})
	})
	for s, us := range maxUS {
		s.total.RaiseMax(us * 1000)
	}
	return err
}

// histogramRows is how many rows with a histogram a server takes at a time: with its own
// 65,536, what it makes of them is hundreds of megabytes, and it waits for memory most
// of the time.
const histogramRows = 1024

// codeFixedSettings is what a server answers whose user may not change settings.
const codeFixedSettings = 164

// queryBlocks is client.query where the server takes so many rows at a time, if the
// user may say so.
func (db *DB) queryBlocks(ctx context.Context, server string, d Dialect, block int, statement string, results proto.Results, rows func(n int) bool) error {
	if !db.fixedSettings.Load() {
		err := db.c.query(ctx, server, d, maxBuckets, fmt.Sprintf("%s SETTINGS max_block_size = %d", statement, block), results, rows)
		if codeOf(err) != codeFixedSettings {
			return err
		}
		db.fixedSettings.Store(true)
	}
	return db.c.query(ctx, server, d, maxBuckets, statement, results, rows)
}
