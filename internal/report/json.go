package report

import (
	"encoding/json"
	"io"

	"github.com/slowray/slowray/internal/diagnose"
)

// JSON writes r in the form of schema/report.schema.json.
func JSON(w io.Writer, r *diagnose.Report) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}
