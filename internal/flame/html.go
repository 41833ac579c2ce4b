package flame

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
)

//go:embed page/page.html
var pageHTML string

//go:embed page/page.css
var pageCSS string

//go:embed page/graph.js
var graphJS string

//go:embed page/words.js
var wordsJS string

//go:embed page/draw.js
var drawJS string

//go:embed page/page.js
var pageJS string

//go:embed page/hands.js
var handsJS string

// script is one function, so that nothing of it can be reached but what it
// offers, and what a browser adds to the window cannot be in its way.
var script = "(() => {\n\"use strict\";\n" + strings.Join([]string{graphJS, wordsJS, drawJS, pageJS, handsJS}, "\n") + "})();\n"

// policy lets the page run its own script and nothing else, and load nothing.
var policy = fmt.Sprintf("default-src 'none'; script-src '%s'; style-src '%s'; base-uri 'none'; form-action 'none'", sourceHash(script), sourceHash(pageCSS))

// Policy is the Content-Security-Policy that a page needs and names itself, for
// whoever serves it.
func Policy() string { return policy }

// sourceHash is a source as a Content-Security-Policy names it (W3C CSP3, 2.3.1).
func sourceHash(source string) string {
	sum := sha256.Sum256([]byte(source))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// HTML writes a page with all values of s, to be opened from a file: it needs
// no network. The error is w's, or an UnknownValue.
func HTML(w io.Writer, s *observe.Stacks, o Options) error {
	return newModel(byFunction, s).html(w, o)
}

// DiffHTML writes a page that compares two windows.
func DiffHTML(w io.Writer, p Pair, o Options) error {
	return p.model().html(w, o)
}

func (m *model) html(w io.Writer, o Options) error {
	p, err := m.payload(o)
	if err != nil {
		return err
	}
	data, err := json.Marshal(p) // escapes <, > and &: no name ends the element
	if err != nil {
		return err
	}
	parts := map[string]string{
		"policy": html.EscapeString(policy),
		"title":  html.EscapeString(p.Title),
		"style":  pageCSS,
		"data":   string(data),
		"script": script,
	}
	for rest := pageHTML; rest != ""; {
		before, after, _ := strings.Cut(rest, "{{")
		if _, err := io.WriteString(w, before); err != nil {
			return err
		}
		name, after, _ := strings.Cut(after, "}}")
		if _, err := io.WriteString(w, parts[name]); err != nil {
			return err
		}
		rest = after
	}
	return nil
}

// payload is the data of a page, column by column: names once, as numbers
// everywhere else. page/graph.js reads it.
type payload struct {
	Title    string               `json:"title"`
	Subtitle string               `json:"subtitle"`
	Types    []observe.StackValue `json:"types"`
	Value    int                  `json:"value"` // the type that is shown first
	Roots    Roots                `json:"roots"`
	Flame    bool                 `json:"flame"`
	Compares bool                 `json:"compares"`
	Names    [2]string            `json:"names"`
	Texts    []string             `json:"texts"` // modules, files, names of processes and threads
	Kinds    []observe.FrameKind  `json:"kinds"`
	States   []string             `json:"states"`

	Functions struct {
		Name   []string `json:"name"`
		Kind   []int    `json:"kind"`
		Module []int    `json:"module"` // in Texts, as the next
		File   []int    `json:"file"`
		Line   []int    `json:"line"` // the first line that was seen
		Last   []int    `json:"last"`
		Inline []int    `json:"inline"`
	} `json:"functions"`
	Nodes struct {
		Up       []int32 `json:"up"` // how far before it the stack below is
		Function []int32 `json:"function"`
	} `json:"nodes"`
	Threads struct {
		PID  []int `json:"pid"`
		Comm []int `json:"comm"`
		TID  []int `json:"tid"`
		Name []int `json:"name"`
	} `json:"threads"`
	Samples struct {
		Node   []int32   `json:"node"`
		Thread []int32   `json:"thread"`
		State  []int     `json:"state"`
		Slow   []int     `json:"slow"`
		Values [][]int64 `json:"values"` // by types; the later ones when two windows are compared
		Before [][]int64 `json:"before,omitempty"`
	} `json:"samples"`

	Losses []observe.Loss `json:"losses"`
	Notes  []string       `json:"notes"`
}

func (m *model) payload(o Options) (*payload, error) {
	value, err := o.value(m)
	if err != nil {
		return nil, err
	}
	p := &payload{
		Title: o.title(m), Subtitle: o.subtitle(m, utc), Types: m.types, Value: value, Roots: o.roots(), Flame: o.Flame,
		Compares: m.compares, Names: m.names, States: []string{}, Kinds: []observe.FrameKind{}, Losses: append([]observe.Loss{}, m.losses...), Notes: append([]string{}, m.notes...),
	}
	if len(p.Types) == 0 { // a page shows one value, if only of nothing
		p.Types = []observe.StackValue{{Type: "samples", Unit: "count"}}
	}
	text := m.texts(p)
	p.columns(m, text)
	p.samples(m)
	return p, nil
}

// texts puts the names that are used again and again into p, in order, and
// returns where each one is.
func (m *model) texts(p *payload) map[string]int {
	p.Texts = []string{}
	for i := range m.functions {
		p.Texts = append(p.Texts, m.functions[i].Module, m.functions[i].File)
	}
	for _, t := range m.threads {
		p.Texts = append(p.Texts, t.comm, t.name)
	}
	slices.Sort(p.Texts)
	p.Texts = slices.Compact(p.Texts)
	at := make(map[string]int, len(p.Texts))
	for i, text := range p.Texts {
		at[text] = i
	}
	return at
}

func (p *payload) columns(m *model, text map[string]int) {
	p.Functions.Name = make([]string, 0, len(m.functions))
	for _, column := range []*[]int{
		&p.Functions.Kind, &p.Functions.Module, &p.Functions.File, &p.Functions.Line, &p.Functions.Last, &p.Functions.Inline,
		&p.Threads.PID, &p.Threads.Comm, &p.Threads.TID, &p.Threads.Name,
	} {
		*column = []int{} // an empty list, in JSON, where null would be none
	}
	for i := range m.functions {
		f, to := &m.functions[i], &p.Functions
		to.Name = append(to.Name, f.Name)
		to.Kind = append(to.Kind, number(&p.Kinds, f.Kind))
		to.Module = append(to.Module, text[f.Module])
		to.File = append(to.File, text[f.File])
		to.Line = append(to.Line, f.Line)
		to.Last = append(to.Last, f.lastLine)
		to.Inline = append(to.Inline, bit(f.Inline))
	}
	for i, n := range m.nodes {
		up := int32(i) - n.parent
		if i == 0 {
			up = 0
		}
		p.Nodes.Up = append(p.Nodes.Up, up)
		p.Nodes.Function = append(p.Nodes.Function, n.function)
	}
	for _, t := range m.threads {
		p.Threads.PID = append(p.Threads.PID, t.pid)
		p.Threads.Comm = append(p.Threads.Comm, text[t.comm])
		p.Threads.TID = append(p.Threads.TID, t.tid)
		p.Threads.Name = append(p.Threads.Name, text[t.name])
	}
}

func (p *payload) samples(m *model) {
	to := &p.Samples
	to.Node, to.Thread = make([]int32, 0, len(m.samples)), make([]int32, 0, len(m.samples))
	to.State, to.Slow = make([]int, 0, len(m.samples)), make([]int, 0, len(m.samples))
	to.Values = make([][]int64, len(p.Types))
	for t := range to.Values {
		to.Values[t] = make([]int64, 0, len(m.samples))
	}
	if m.compares {
		to.Before = make([][]int64, len(p.Types))
		for t := range to.Before {
			to.Before[t] = make([]int64, 0, len(m.samples))
		}
	}
	for i := range m.samples {
		s := &m.samples[i]
		to.Node = append(to.Node, s.node)
		to.Thread = append(to.Thread, s.thread)
		to.State = append(to.State, number(&p.States, s.state))
		to.Slow = append(to.Slow, bit(s.slow))
		for t := range m.types {
			to.Values[t] = append(to.Values[t], s.values[m.side()][t])
			if m.compares {
				to.Before[t] = append(to.Before[t], s.values[0][t])
			}
		}
	}
}

// number is where x is in a short list, to which it is added if it is not there.
func number[T comparable](list *[]T, x T) int {
	if i := slices.Index(*list, x); i >= 0 {
		return i
	}
	*list = append(*list, x)
	return len(*list) - 1
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (o Options) title(m *model) string {
	switch {
	case o.Title != "":
		return clean(o.Title)
	case m.compares:
		return "Differential flame graph"
	}
	return "Flame graph"
}

// utc is a moment in a file, which is read anywhere.
func utc(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// subtitle says what the stacks are of; moment writes when.
func (o Options) subtitle(m *model, moment func(time.Time) string) string {
	var parts []string
	if o.Subtitle != "" {
		parts = append(parts, clean(o.Subtitle))
	}
	if m.compares {
		return strings.Join(append(parts, m.names[1]+" against "+m.names[0]), ", ")
	}
	if m.windowNS > 0 {
		parts = append(parts, figure.Seconds(time.Duration(m.windowNS).Seconds()))
	}
	if m.startNS > 0 {
		parts = append(parts, "from "+moment(time.Unix(0, m.startNS)))
	}
	if m.hz > 0 {
		parts = append(parts, fmt.Sprintf("CPU at %d Hz", m.hz))
	}
	return strings.Join(parts, ", ")
}
