package diagnose

import (
	"math"

	"github.com/slowray/slowray/internal/observe"
)

// Measured is what the requests of an endpoint tell of it, in the form of
// schema/report.schema.json: times in microseconds.
type Measured struct {
	Requests     uint64              `json:"requests"`
	RPS          float64             `json:"rps"`
	Errors       uint64              `json:"errors"` // answered with an error, or not at all
	Total        *QuantilesUS        `json:"total_us,omitempty"`
	Ledger       map[string]LedgerUS `json:"ledger_us,omitempty"` // parts of server next to it, in proportion to the requests that were followed
	RTT          *float64            `json:"rtt_us,omitempty"`    // median
	MinRTT       *float64            `json:"min_rtt_us,omitempty"`
	LossPermille float64             `json:"loss_permille"`
	Retrans      uint64              `json:"retrans"`
}

// QuantilesUS are quantiles of a time.
type QuantilesUS struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// LedgerUS is one part of the requests' time. Share is that of the time of all
// requests; ack_delay, which is no part of it, has none.
type LedgerUS struct {
	Mean  float64  `json:"mean"`
	P99   float64  `json:"p99"`
	Share *float64 `json:"share,omitempty"`
}

// Measure sums up an endpoint that was watched for so many seconds.
func Measure(e *observe.Endpoint, seconds float64) Measured {
	m := Measured{
		Requests: e.Requests, Errors: e.Errors + e.Unanswered, LossPermille: e.LossPermille(), Retrans: e.Retrans,
	}
	if seconds > 0 {
		m.RPS = float64(e.Requests) / seconds
	}
	if e.Total.Count() > 0 {
		m.Total = &QuantilesUS{us(e.Total.Quantile(0.5)), us(e.Total.Quantile(0.9)), us(e.Total.Quantile(0.99)), us(e.Total.Max())}
	}
	for p := range observe.NumParts {
		s, ok := e.Parts[p.String()]
		if !ok {
			continue
		}
		l := LedgerUS{Mean: us(int64(e.MeanNS(p))), P99: us(s.Hist.Quantile(0.99))}
		if p != observe.AckDelay {
			share := math.Round(e.Share(p)*1e4) / 1e4
			l.Share = &share
		}
		if m.Ledger == nil {
			m.Ledger = map[string]LedgerUS{}
		}
		m.Ledger[p.String()] = l
	}
	if e.Split != nil {
		for p := range observe.NumServerParts {
			s, ok := e.Split.Parts[p.String()]
			if !ok {
				continue
			}
			share := math.Round(e.Split.ShareNS(p, e.Share(observe.Server))*1e4) / 1e4
			m.Ledger[p.String()] = LedgerUS{
				Mean: us(int64(e.Split.ShareNS(p, e.MeanNS(observe.Server)))), P99: us(s.Hist.Quantile(0.99)), Share: &share,
			}
		}
	}
	if e.RTT.Count() > 0 {
		rtt := us(e.RTT.Quantile(0.5))
		m.RTT = &rtt
	}
	if e.MinRTT > 0 {
		rtt := us(e.MinRTT)
		m.MinRTT = &rtt
	}
	return m
}

// us is ns in µs, to a tenth: clocks and quantiles are no better.
func us(ns int64) float64 { return math.Round(float64(max(ns, 0))/100) / 10 }
