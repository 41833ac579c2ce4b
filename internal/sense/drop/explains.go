package drop

// Explains says whether this kernel tells why it throws a packet away (Linux 5.17,
// c504e5c2f964): without, only where.
func (w *Watcher) Explains() bool { return w.reasons != nil }
