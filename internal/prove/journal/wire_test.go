package journal

import (
	"bytes"
	"io"
	"net"
	"reflect"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/slowray/slowray/internal/budget/budgettest"
)

// said is a connection on which the other side has said something, and has gone.
type said struct {
	net.Conn
	in  io.Reader
	out bytes.Buffer
}

func (s *said) Read(p []byte) (int, error)       { return s.in.Read(p) }
func (s *said) Write(p []byte) (int, error)      { return s.out.Write(p) }
func (s *said) SetWriteDeadline(time.Time) error { return nil }

// FuzzWire reads what owner and watchdog say to each other: a message is the same at the
// other end, and of any bytes messages are read until they are none.
func FuzzWire(f *testing.F) {
	f.Add([]byte(`{"op":"apply","n":1}`+"\n"+`{"op":"beat","worse":true,"text":"p99"}`+"\n"), opAnswer, "why", 7, true)
	f.Add([]byte(`{"op":"ended","outcomes":[{}]}x{"op":"beat"}`), "", "\n\xff", -1, false)
	f.Add([]byte(`[[[[`), opReady, "", 0, false)
	f.Fuzz(func(t *testing.T, heard []byte, op, text string, n int, worse bool) {
		budgettest.Within(t, len(heard)+len(op)+len(text), budgettest.Cost{PerByte: 512, Fixed: 1 << 20, CPU: time.Second}, func() {
			count := 0
			newWire(&said{in: bytes.NewReader(heard)}).receive(func(message) { count++ })
			if count > len(heard) {
				t.Fatalf("%d messages in %d bytes", count, len(heard))
			}
			m := message{Op: op, N: n, Worse: worse, Text: text, Outcomes: []Outcome{{}}}
			end := &said{}
			if err := newWire(end).send(m); err != nil {
				t.Fatal(err)
			}
			if line := end.out.Bytes(); bytes.Count(line, []byte("\n")) != 1 || line[len(line)-1] != '\n' {
				t.Fatalf("%q is no line", line)
			}
			var got []message
			newWire(&said{in: io.MultiReader(&end.out, bytes.NewReader(heard))}).receive(func(m message) { got = append(got, m) })
			if len(got) != 1+count || utf8.ValidString(op) && utf8.ValidString(text) && !reflect.DeepEqual(got[0], m) {
				t.Errorf("%+v came as %+v, before %d of %d others", m, got[0], len(got)-1, count)
			}
		})
	})
}
