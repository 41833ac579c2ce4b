package onnodes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/commandline"
	"github.com/slowray/slowray/internal/printable"
)

// Worst is the exit status of all.
func Worst(results []Result) int {
	worst := commandline.ExitNothing
	for _, r := range results {
		worst = max(worst, r.Status)
	}
	return worst
}

// Text writes the report of the spot with the most harm, and a line for each, the worst
// first.
func Text(w io.Writer, results []Result) error {
	results = byHarm(results)
	first := results[0]
	for line := range bytes.Lines(first.Out) {
		if err := shown(w, line); err != nil {
			return err
		}
	}
	if len(results) == 1 && first.Err == nil && len(first.Out) > 0 {
		return nil
	}
	width := 0
	for _, r := range results {
		width = max(width, len(r.label()))
	}
	var b strings.Builder
	if len(first.Out) > 0 {
		b.WriteString("\nWhere slowray looked, most harm first\n")
	}
	for i, r := range results {
		line := r.verdict()
		if i == 0 && len(first.Out) > 0 {
			line = "the report above"
		}
		fmt.Fprintf(&b, "  %s  %s\n", printable.Pad(r.label(), width), line)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// shown writes a line of what a node has said. Whoever has taken over a node must not drive
// the terminal of who looks at it.
func shown(w io.Writer, line []byte) error {
	text, ended := bytes.CutSuffix(line, []byte("\n"))
	out := printable.Text(string(text))
	if ended {
		out += "\n"
	}
	_, err := io.WriteString(w, out)
	return err
}

// harm is what a report says of how bad it is at a spot (schema/report.schema.json).
type harm struct {
	Account struct {
		Lost float64 `json:"lost_s"` // by which requests were delayed, and those that failed
	} `json:"account"`
	Findings []struct {
		Impact struct {
			Share float64 `json:"share"`
		} `json:"impact"`
	} `json:"findings"`
}

// byHarm are the results in the order of their ranks.
func byHarm(results []Result) []Result {
	ranks := make([][]float64, len(results))
	order := make([]int, len(results))
	for i := range results {
		ranks[i], order[i] = results[i].rank(), i
	}
	slices.SortStableFunc(order, func(i, j int) int { return slices.Compare(ranks[i], ranks[j]) })
	sorted := make([]Result, len(results))
	for to, from := range order {
		sorted[to] = results[from]
	}
	return sorted
}

// rank orders spots by what has to be read first, as slices.Compare does: those that have
// findings by what their requests lost, then by how much of it the finding with the greatest
// impact explains, and last those of which that is not known; then what slowray could not
// decide, what is well, and where it could not look.
func (r *Result) rank() []float64 {
	var h harm
	if len(r.Out) == 0 || len(r.JSON) > 0 && json.Unmarshal(r.JSON, &h) != nil || r.Err != nil {
		return []float64{3}
	}
	switch {
	case len(r.JSON) == 0 && r.Status == commandline.ExitFindings: // an older slowray does not say how much
		return []float64{0, 0}
	case len(h.Findings) > 0:
		share := 0.0
		for _, f := range h.Findings {
			share = max(share, f.Impact.Share)
		}
		return []float64{0, -h.Account.Lost, -share}
	case r.Status != commandline.ExitNothing:
		return []float64{1}
	}
	return []float64{2}
}

// verdict is the first line of a report, or why there is none.
func (r Result) verdict() string {
	if r.Err != nil {
		return "could not look: " + printable.Text(r.Err.Error())
	}
	out := r.Out
	if len(bytes.TrimSpace(out)) == 0 {
		out = lastLine(r.Stderr)
	}
	line, _, _ := bytes.Cut(bytes.TrimSpace(out), []byte("\n"))
	return printable.Text(string(line))
}

func lastLine(text []byte) []byte {
	text = bytes.TrimSpace(text)
	return text[bytes.LastIndexByte(text, '\n')+1:]
}

// entry is a result in JSON.
type entry struct {
	Node      string          `json:"node"`
	Namespace string          `json:"namespace,omitempty"`
	Pods      []string        `json:"pods,omitempty"`
	Status    int             `json:"exit_status"`
	Error     string          `json:"error,omitempty"`
	Report    json.RawMessage `json:"report,omitempty"`
}

// JSON writes an array of the reports, each with the node and the pods that it is of.
func JSON(w io.Writer, results []Result) error {
	list := []entry{}
	for _, r := range results {
		e := entry{Node: r.Node, Status: r.Status}
		for _, p := range r.Pods {
			e.Namespace, e.Pods = p.Namespace, append(e.Pods, p.Name)
		}
		switch {
		case r.Err == nil && r.JSON != nil:
			e.Report = r.JSON
		default:
			e.Error = r.verdict()
		}
		list = append(list, e)
	}
	return printable.WriteJSON(w, list)
}
