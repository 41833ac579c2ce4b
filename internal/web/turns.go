package web

import (
	"net/http"
	"sync/atomic"
	"time"
)

// Bounds of the work done at once. Answers are made of files that are read and
// unpacked: more at a time than there are CPUs to spare only takes memory.
const (
	maxHeavy   = 4
	maxWaiting = 64
	patience   = 10 * time.Second // of a request that waits for its turn
	maxAnswer  = 30 * time.Second // for one answer
	sendTime   = 20 * time.Second // in which a client has to take it

	// What is made waits in memory for those who read slowly: smallAnswer bytes of
	// each, and of larger ones maxUnsent of all together.
	smallAnswer = 256 << 10
	maxUnsent   = 32 << 20
)

// turns lets a few requests in at a time and a few more wait.
type turns struct {
	heavy   chan struct{} // one for each answer that is being made
	waiting chan struct{} // and for each that waits for its turn, or for its client
	unsent  atomic.Int64  // bytes of large answers
}

func newTurns() *turns {
	return &turns{heavy: make(chan struct{}, maxHeavy), waiting: make(chan struct{}, maxWaiting)}
}

// turn is that of one request.
type turn struct {
	*turns
	making bool
	unsent int64
}

// wait waits for a turn; nil when there is none, and the client knows.
func (t *turns) wait(w http.ResponseWriter, r *http.Request) *turn {
	select {
	case t.waiting <- struct{}{}:
	default:
		w.Header().Set("Retry-After", "1")
		writeError(w, http.StatusServiceUnavailable, "too many requests at once")
		return nil
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case t.heavy <- struct{}{}:
		return &turn{turns: t, making: true}
	case <-r.Context().Done():
	case <-timer.C:
		w.Header().Set("Retry-After", "5")
		writeError(w, http.StatusServiceUnavailable, "busy with other requests")
	}
	<-t.waiting
	return nil
}

// made says that an answer of so many bytes is ready to be sent: the next one can be
// made, however slowly this client reads. False when too much is unsent.
func (t *turn) made(w http.ResponseWriter, bytes int) bool {
	if bytes > smallAnswer {
		if t.turns.unsent.Add(int64(bytes)) > maxUnsent {
			t.turns.unsent.Add(-int64(bytes))
			return false
		}
		t.unsent = int64(bytes)
	}
	// Where it cannot be set, as in tests, there is nobody who reads slowly.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(sendTime))
	t.making = false
	<-t.heavy
	return true
}

// end ends it; it is called once.
func (t *turn) end() {
	if t.making {
		<-t.heavy
	}
	t.turns.unsent.Add(-t.unsent)
	<-t.waiting
}

// prompt is a handler whose clients have to take its answers in time.
func prompt(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(sendTime))
		next.ServeHTTP(w, r)
	})
}
