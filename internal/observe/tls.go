package observe

// TLSStats is what records of TLS, whose headers are in the clear, tell of the handshakes
// that were completed. Of some it is not known whether they were full.
type TLSStats struct {
	V12     uint64 `json:"v1_2,omitempty"`
	V13     uint64 `json:"v1_3,omitempty"`
	Full    uint64 `json:"full,omitempty"` // with the signature of a certificate
	Resumed uint64 `json:"resumed,omitempty"`
	// Refused are full ones of TLS 1.3 whose ClientHello offered a session.
	Refused uint64 `json:"refused,omitempty"`
	// Again are full ones between two addresses that had completed one before.
	Again uint64 `json:"again,omitempty"`

	// Who was waited for; together the time of the handshakes.
	ServerNS  int64 `json:"server_ns,omitempty"`  // the serving end
	ClientNS  int64 `json:"client_ns,omitempty"`  // the asking end
	NetworkNS int64 `json:"network_ns,omitempty"` // the least round trip, each time that one waited for the other
}

// Add adds what others counted, sign times.
func (s *TLSStats) Add(o *TLSStats, sign int64) {
	from, to := o.values(), s.values()
	for i := range to {
		*to[i] += uint64(sign) * *from[i] // -1 wraps around to the right difference
	}
	s.ServerNS += sign * o.ServerNS
	s.ClientNS += sign * o.ClientNS
	s.NetworkNS += sign * o.NetworkNS
}

func (s *TLSStats) values() [6]*uint64 {
	return [...]*uint64{&s.V12, &s.V13, &s.Full, &s.Resumed, &s.Refused, &s.Again}
}

// Scale is of n of all handshakes as much as that is: they are shared by those who
// answer at one address.
func (s TLSStats) Scale(n, all uint64) TLSStats {
	if n >= all {
		return s
	}
	share := float64(n) / float64(all)
	for _, v := range s.values() {
		*v = uint64(share*float64(*v) + 0.5)
	}
	for _, v := range []*int64{&s.ServerNS, &s.ClientNS, &s.NetworkNS} {
		*v = int64(share * float64(*v))
	}
	return s
}
