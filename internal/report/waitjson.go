package report

import (
	"io"

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
	return WriteJSON(w, struct {
		Schema string `json:"schema"`
		*observe.Waits
		Chains []waitChainJSON `json:"chains"`
	}{SchemaWait, o, chains})
}
