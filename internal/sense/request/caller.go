package request

import "golang.org/x/sys/unix"

// caller is struct caller of connection.h.
type caller struct {
	Comm   [16]byte
	Parent uint32
}

// Caller tells the name and the parent of a process that opened a connection,
// also when it ended before anyone looked into /proc: as they were when it opened
// its latest one. False when it opened none, or 4,096 others did since. It may be
// asked from any goroutine.
func (r *Recorder) Caller(pid int) (comm string, parent int, ok bool) {
	var c caller
	if r.objects.Callers == nil || r.objects.Callers.Lookup(uint32(pid), &c) != nil {
		return "", 0, false
	}
	return unix.ByteSliceToString(c.Comm[:]), int(c.Parent), true
}
