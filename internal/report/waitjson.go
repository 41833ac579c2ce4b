package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/slowray/slowray/internal/observe"
)

// waitChainJSON is a chain with what follows from it.
type waitChainJSON struct {
	Culprit  bool `json:"culprit"`
	Deadlock bool `json:"deadlock"`
	observe.WaitChain
	Advice  string `json:"advice,omitempty"`
	Command string `json:"command,omitempty"`
}

// WaitJSON writes o in the form of schema/wait.schema.json.
func WaitJSON(w io.Writer, o *observe.Waits) error {
	chains := make([]waitChainJSON, len(o.Chains))
	for i := range o.Chains {
		c := &o.Chains[i]
		advice, command := waitFix(c)
		chains[i] = waitChainJSON{Culprit: c.Culprit(), Deadlock: c.Deadlock(), WaitChain: *c, Advice: advice, Command: command}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(struct {
		Schema string `json:"schema"`
		*observe.Waits
		Chains []waitChainJSON `json:"chains"`
	}{SchemaWait, o, chains})
	if err != nil {
		return err
	}
	_, err = w.Write(escapeInvisible(b.Bytes()))
	return err
}

// escapeInvisible escapes in JSON what must not reach a terminal as it is and
// what the encoder leaves: control characters beyond ASCII, and invisible ones.
// Outside of strings there are none.
func escapeInvisible(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		switch {
		case r == '\n' || !unicode.IsControl(r) && !unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp):
			out = append(out, b[:size]...)
		case r < 0x10000:
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		}
		b = b[size:]
	}
	return out
}
