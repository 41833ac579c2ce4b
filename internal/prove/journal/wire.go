package journal

import (
	"encoding/json"
	"net"
	"sync"
	"time"
)

// message is one line between owner and watchdog, in both directions.
type message struct {
	Op string `json:"op"`
	// N numbers the owner's requests; the answer has the same number.
	N        int       `json:"n,omitempty"`
	Worse    bool      `json:"worse,omitempty"`
	Text     string    `json:"text,omitempty"` // why it is worse, why the lease has ended, an error
	Outcomes []Outcome `json:"outcomes,omitempty"`
}

// What messages say.
const (
	opApply = "apply"
	opUndo  = "undo"
	opKeep  = "keep"
	opClose = "close"
	opBeat  = "beat"

	opReady  = "ready" // the watchdog has read the entry
	opAnswer = "answer"
	opAlive  = "alive"
	opEnded  = "ended" // the watchdog has ended the lease
)

// wire is one end of the socket.
type wire struct {
	conn net.Conn
	dec  *json.Decoder
	mu   sync.Mutex
}

func newWire(conn net.Conn) *wire { return &wire{conn: conn, dec: json.NewDecoder(conn)} }

// sendLimit is how long the other side may leave its end full.
const sendLimit = time.Second

func (w *wire) send(m message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := w.conn.SetWriteDeadline(time.Now().Add(sendLimit)); err != nil {
		return err
	}
	_, err = w.conn.Write(append(data, '\n'))
	return err
}

// receive calls f for each message until the other side is gone.
func (w *wire) receive(f func(message)) {
	for {
		var m message
		if w.dec.Decode(&m) != nil {
			return
		}
		f(m)
	}
}
