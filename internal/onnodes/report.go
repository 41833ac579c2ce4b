package onnodes

import (
	"bytes"
	"cmp"
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

// Text writes the report of the spot where a service is worst off, and a line for each.
func Text(w io.Writer, results []Result) error {
	first := slices.MinFunc(results, func(a, b Result) int { return cmp.Compare(rank(a), rank(b)) })
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
		b.WriteString("\nWhere slowray looked\n")
	}
	for _, r := range results {
		line := r.verdict()
		if r.label() == first.label() && len(first.Out) > 0 {
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

// rank is lower for what has to be read first.
func rank(r Result) int {
	switch {
	case r.Status == commandline.ExitFindings && strings.HasPrefix(r.verdict(), "PROBLEM"):
		return 0
	case r.Status == commandline.ExitFindings:
		return 1
	case len(r.Out) > 0:
		return 2
	}
	return 3
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
		case r.Err == nil && json.Valid(r.Out):
			e.Report = r.Out
		default:
			e.Error = r.verdict()
		}
		list = append(list, e)
	}
	return printable.WriteJSON(w, list)
}
