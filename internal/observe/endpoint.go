package observe

// Parts lists the parts that add up to a request's total, in the order in
// which a request spends them. AckDelay is not among them.
func Parts() []Part {
	all := make([]Part, 0, AckDelay)
	for p := range AckDelay {
		all = append(all, p)
	}
	return all
}

// SumNS is the time that all requests of the endpoint spent in a part, in ns.
func (e *Endpoint) SumNS(p Part) float64 {
	return float64(max(e.Parts[p.String()].SumNS, 0))
}

// TimeNS is the wall time of all requests, in ns: the parts without AckDelay.
func (e *Endpoint) TimeNS() float64 {
	var sum float64
	for p := range AckDelay {
		sum += e.SumNS(p)
	}
	return sum
}

// MeanNS is what a request spends in a part on average, in ns.
func (e *Endpoint) MeanNS(p Part) float64 {
	return perRequest(e.SumNS(p), e.Requests)
}

// Share is the part of all requests' wall time that goes into p, 0 to 1.
func (e *Endpoint) Share(p Part) float64 { return portion(e.SumNS(p), e.TimeNS()) }

// SlowNS is what one of the slowest requests (see SlowParts) spends in a part
// on average, in ns.
func (e *Endpoint) SlowNS(p Part) float64 {
	return perRequest(float64(max(e.SlowParts[p.String()], 0)), e.SlowCount)
}

// SlowTotalNS is how long one of the slowest requests takes on average, in ns.
func (e *Endpoint) SlowTotalNS() float64 {
	var sum float64
	for p := range AckDelay {
		sum += e.SlowNS(p)
	}
	return sum
}

// SlowShare is the part of the slowest requests' time that goes into p, 0 to 1.
func (e *Endpoint) SlowShare(p Part) float64 { return portion(e.SlowNS(p), e.SlowTotalNS()) }

// LossPermille is the segments retransmitted per thousand segments sent with
// data, as TCPRT counts loss, 0 to 1000.
func (e *Endpoint) LossPermille() float64 {
	return 1000 * portion(float64(e.Retrans), float64(e.Segments))
}

func perRequest(ns float64, n uint64) float64 {
	if n == 0 {
		return 0
	}
	return ns / float64(n)
}

// portion is a of b, 0 to 1; 0 when b is.
func portion(a, b float64) float64 {
	if b <= 0 {
		return 0
	}
	return min(max(a/b, 0), 1)
}
