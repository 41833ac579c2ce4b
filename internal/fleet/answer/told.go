package answer

import (
	"bytes"
	"math"
	"slices"
	"strings"
)

// Told is a Report in the sentences of its text, as the fleet's page shows it, and no more
// of each list than is read. What comes from hosts is in it as it came: whoever shows it
// makes it harmless.
type Told struct {
	Head       string      `json:"head"`    // what was looked at
	Healthy    string      `json:"healthy"` // empty where something is abnormal, or nothing was judged
	Causes     []ToldCause `json:"causes"`
	Alone      []string    `json:"alone"` // abnormal, and sharing nothing
	Findings   []ToldLines `json:"findings"`
	Clocks     []string    `json:"clocks"`
	InPart     bool        `json:"in_part"` // some of the archive was away: the first of NotChecked say so
	NotChecked []Unchecked `json:"not_checked"`
	Left       ToldLeft    `json:"left_out"`
}

// ToldLeft counts what is left out of the lists.
type ToldLeft struct {
	Causes   int `json:"causes"`
	Alone    int `json:"alone"`
	Findings int `json:"findings"`
}

// ToldCause is a Cause in sentences.
type ToldCause struct {
	Text     string      `json:"text"`
	Extent   string      `json:"extent"` // when, how much, how likely by chance
	Lasts    bool        `json:"lasts"`
	Chain    []string    `json:"chain"` // from the users' end to the origin
	Findings []ToldLines `json:"findings"`
	Evidence []string    `json:"evidence"`
	RuledOut []Unchecked `json:"ruled_out"`
	Affected []string    `json:"affected"`
	Left     int         `json:"left_out"` // of the affected
	// Programs are those of the services that are affected, and of the origin: the Nodes
	// of a Graph.
	Programs []string `json:"programs"`
}

// ToldLines is a sentence, and what belongs to it.
type ToldLines struct {
	Text  string   `json:"text"`
	Lines []string `json:"lines"`
}

// mostTold of a list are reported.
const mostTold = 50

// Told tells the report.
func (r *Report) Told() *Told {
	t := &Told{Head: r.head(), InPart: r.inPart, Causes: []ToldCause{}, Findings: []ToldLines{}, Clocks: []string{}, NotChecked: append([]Unchecked{}, r.NotTested...)}
	if len(r.Abnormal) == 0 && r.well() {
		t.Healthy = r.healthy()
	}
	for i := range r.Causes[:min(len(r.Causes), mostTold)] {
		t.Causes = append(t.Causes, r.Causes[i].told())
	}
	t.Left.Causes = len(r.Causes) - len(t.Causes)
	t.Alone, t.Left.Alone = toldEndpoints(r.Alone)
	t.Findings = toldFindings(r.related())
	t.Left.Findings = len(r.Findings) - len(t.Findings)
	for i := range r.Clocks[:min(len(r.Clocks), mostTold)] {
		t.Clocks = append(t.Clocks, r.Clocks[i].text())
	}
	return t
}

func (c *Cause) told() ToldCause {
	t := ToldCause{Text: c.Text, Extent: c.extent(), Lasts: c.Until == nil, Evidence: []string{}, RuledOut: append([]Unchecked{}, c.RuledOut...), Programs: []string{}}
	t.Chain, _ = toldEndpoints(c.Chain)
	t.Affected, t.Left = toldEndpoints(c.Affected)
	t.Findings = toldFindings(c.Findings)
	for i := range c.Evidence[:min(len(c.Evidence), mostTold)] {
		t.Evidence = append(t.Evidence, c.Evidence[i].text())
	}
	note := func(service string) {
		if p := program(service); p != "" && len(t.Programs) < mostTold && !slices.Contains(t.Programs, p) {
			t.Programs = append(t.Programs, p)
		}
	}
	if c.Origin != nil {
		note(c.Origin.Service)
	}
	for i := range c.Affected {
		note(c.Affected[i].Service)
	}
	return t
}

func toldEndpoints(list []Endpoint) (lines []string, left int) {
	lines = []string{}
	for i := range list[:min(len(list), mostTold)] {
		lines = append(lines, list[i].text())
	}
	return lines, len(list) - len(lines)
}

func toldFindings(list []Finding) []ToldLines {
	all := []ToldLines{}
	for i := range list[:min(len(list), mostTold)] {
		var b bytes.Buffer
		p := &printer{w: &b, width: math.MaxInt}
		p.finding("", &list[i])
		text, rest, _ := strings.Cut(b.String(), "\n")
		one := ToldLines{Text: text, Lines: []string{}}
		for line := range strings.Lines(rest) {
			one.Lines = append(one.Lines, strings.TrimSpace(line))
		}
		all = append(all, one)
	}
	return all
}
