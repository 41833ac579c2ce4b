package request

// SentBytesFound says whether what was sent can be read where it waits to be acknowledged.
func (r *Recorder) SentBytesFound() bool { return r.sentBytesFound() }
