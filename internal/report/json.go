package report

import (
	"io"

	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/printable"
)

// JSON writes r in the form of schema/report.schema.json.
func JSON(w io.Writer, r *diagnose.Report) error { return printable.WriteJSON(w, r) }
