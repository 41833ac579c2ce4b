package ship

import "time"

// giveUp removes a log that was not sent, unless it is the one that is written, or
// its batch is with the target. It tells how many records that were.
func (s *stream) giveUp(log uint64, name string) (records uint64, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if log >= s.to.shipper.durable(s.name).Log || s.sending && s.build.log == log {
		return 0, false
	}
	after := uint32(0)
	switch {
	case logOf(s.state.Done) == log:
		after = numberOf(s.state.Done)
	case logOf(s.state.Done) > log:
		after = 1<<32 - 1
	}
	records, _, err := count(s.to.dir, name, after)
	if err != nil {
		s.to.reporter.fails(string(s.name), err)
	}
	if s.state.First != 0 && logOf(s.state.First) == log {
		s.dropped = s.state
		s.state.First, s.state.Last, s.again = 0, 0, false
	}
	if s.build.log == log {
		s.build.close()
		s.since = time.Time{}
	}
	s.state.Done = max(s.state.Done, at(log, allOfLog))
	s.state.GaveUp += records
	s.note(true)
	s.to.dir.remove(name)
	return records, true
}

// addTo adds how far the stream is.
func (s *stream) addTo(x *Status, files []logFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.Sent += s.sent.Load()
	x.GaveUp += s.state.GaveUp
	if s.to.shipper.store.Load() == nil {
		return
	}
	durable := s.to.shipper.durable(s.name)
	var beyond int64 // bytes that are not read yet
	for _, f := range files {
		switch {
		case f.stream != s.name || f.number < logOf(s.state.Done) || s.state.Done == at(f.number, allOfLog):
		case f.number == s.build.log:
			end := f.bytes
			if f.number == durable.Log {
				end = durable.Bytes
			}
			beyond += max(end-s.build.frame, 0)
		case s.build.log == 0 && f.number == s.build.left:
			beyond += max(f.bytes-s.build.leftAt, 0)
		default:
			beyond += f.bytes
		}
	}
	each := int64(100) // bytes of a record, before any was sent
	if n := s.records.Load(); n > 0 {
		each = max(int64(s.bytes.Load()/n), 1)
	}
	x.Records += uint64(s.build.batch.Count) + uint64(beyond/each)
	x.Bytes += beyond + int64(len(s.build.buf))
	switch {
	case s.build.batch.Count > 0:
		x.Behind = max(x.Behind, time.Since(time.UnixMicro(s.build.oldest)))
	case beyond > 0 && s.newest > 0:
		x.Behind = max(x.Behind, time.Since(time.UnixMicro(s.newest)))
	}
}
