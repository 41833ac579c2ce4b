package report

import (
	"io"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/shell"
)

// WaitChain is a chain with what follows from it, as in schema/wait.schema.json.
type WaitChain struct {
	Culprit  bool `json:"culprit"`
	Deadlock bool `json:"deadlock"`
	observe.WaitChain
	Advice  string        `json:"advice,omitempty"`
	Command shell.Command `json:"command,omitzero"`
}

// NewWaitChain says what follows from a chain.
func NewWaitChain(c *observe.WaitChain) WaitChain {
	advice, command := waitFix(c)
	return WaitChain{Culprit: c.Culprit(), Deadlock: c.Deadlock(), WaitChain: *c, Advice: advice, Command: command}
}

// WaitJSON writes o in the form of schema/wait.schema.json.
func WaitJSON(w io.Writer, o *observe.Waits) error {
	chains := make([]WaitChain, len(o.Chains))
	for i := range o.Chains {
		chains[i] = NewWaitChain(&o.Chains[i])
	}
	return printable.WriteJSON(w, struct {
		Schema string `json:"schema"`
		*observe.Waits
		Chains []WaitChain `json:"chains"`
	}{SchemaWait, o, chains})
}
