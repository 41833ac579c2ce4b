package proof

import (
	"io"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/prove/experiment"
	"github.com/slowray/slowray/internal/shell"
)

// SchemaProve identifies the form of a Document in JSON.
const SchemaProve = "slowray.prove/1"

// Document is what slowray prove tells. Its JSON is a contract
// (schema/prove.schema.json).
type Document struct {
	Schema  string  `json:"schema"`
	Host    string  `json:"host"`
	Cause   string  `json:"cause"`
	Title   string  `json:"title"`
	Found   bool    `json:"found"` // in the look before; otherwise it is tried all the same
	Service Service `json:"service"`
	Load    string  `json:"load,omitempty"`
	Steps   []Step  `json:"steps"`
	// Applied says that the changes were made: without it nothing was changed, and
	// Result is nil.
	Applied bool               `json:"applied"`
	Result  *experiment.Result `json:"result,omitempty"`
	// Takes says how long the experiment takes, for people: "measures for about 33 s".
	Takes string `json:"takes,omitempty"`
	// Kept is the entry of the journal of changes that are left in place.
	Kept    string          `json:"kept,omitempty"`
	Persist []shell.Command `json:"persist,omitempty"` // how to make them last
	// Finding is as in a report; proved by a proof.
	Finding *cause.Finding `json:"finding,omitempty"`
}

// Conclude puts the result of the experiment into the document.
func (d *Document) Conclude(r experiment.Result, kept string) {
	d.Applied, d.Result, d.Kept = true, &r, kept
	if r.Verdict == experiment.Proved && d.Finding != nil {
		d.Finding.Verdict = cause.Proved
	}
}

// Proved says whether the experiment proved the cause.
func (d *Document) Proved() bool {
	return d.Result != nil && d.Result.Verdict == experiment.Proved
}

// JSON writes the document.
func (d *Document) JSON(w io.Writer) error {
	return printable.WriteJSON(w, d)
}
