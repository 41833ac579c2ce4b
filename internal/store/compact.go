package store

// compact merges small files into larger ones. Not written yet.
func (s *Store) compact() error { return nil }

// retain removes what is too old or too much. Not written yet.
func (s *Store) retain() error { return nil }
