package request

import "time"

// SentBytesFound says whether what was sent can be read where it waits to be acknowledged.
func (r *Recorder) SentBytesFound() bool { return r.sentBytesFound() }

// ProbePrice is what a hit of a probe takes that is stepped over, once programs watch TLS.
func (r *Recorder) ProbePrice() time.Duration { return r.clear.duty.price }
