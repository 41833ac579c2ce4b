package cause

import (
	"embed"
	"fmt"
	"slices"
	"strings"
	"text/template"
)

//go:generate go run generate.go

// Page is what a cause's page says in words: page/ID.md. What the declaration says by
// itself, and which incidents of the lab inject it, is added in docs/causes.
type Page struct {
	About    string    // what it is, and how it makes requests slow: two to four sentences
	Symptoms []Symptom // what people see of it first
	Evidence []string  // how slowray knows: a measured fact each, with its threshold
	Not      []string  // what looks like it and is no finding
	Fix      string    // what to do about it
	// NotInjected says why no incident of the lab injects it; empty where one does.
	NotInjected string
}

//go:embed page/*.md
var pages embed.FS

// PageOf reads the page of a cause. In the Markdown a threshold is written as
// {{percent .noiseShare}}, by its name in policy.go; percent, nanoseconds, seconds and
// itoa write it as findings do.
func PageOf(id ID) (Page, error) {
	text, err := pages.ReadFile("page/" + string(id) + ".md")
	if err != nil {
		return Page{}, fmt.Errorf("cause %s has no page: %w", id, err)
	}
	t, err := template.New(string(id)).Option("missingkey=error").Funcs(template.FuncMap{
		"percent": percent, "nanoseconds": nanoseconds, "seconds": seconds, "itoa": func(f float64) string { return itoa(int(f)) },
	}).Parse(string(text))
	if err != nil {
		return Page{}, fmt.Errorf("page of %s: %w", id, err)
	}
	var filled strings.Builder
	if err := t.Execute(&filled, thresholds); err != nil {
		return Page{}, fmt.Errorf("page of %s: %w", id, err)
	}
	return parsePage(id, filled.String())
}

// parsePage takes a page apart: a paragraph, then sections of a paragraph or a list.
func parsePage(id ID, text string) (Page, error) {
	var p Page
	section := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		item, isItem := strings.CutPrefix(line, "- ")
		name, isHead := strings.CutPrefix(line, "## ")
		switch {
		case line == "":
		case isHead:
			section = name
		case section == "Symptoms" && isItem && slices.Contains(Symptoms(), Symptom(item)):
			p.Symptoms = append(p.Symptoms, Symptom(item))
		case section == "Evidence" && isItem:
			p.Evidence = append(p.Evidence, item)
		case section == "No finding" && isItem:
			p.Not = append(p.Not, item)
		case section == "" && p.About == "":
			p.About = line
		case section == "Fix" && p.Fix == "":
			p.Fix = line
		case section == "Not injected" && p.NotInjected == "":
			p.NotInjected = line
		default:
			return Page{}, fmt.Errorf("page of %s, section %q: what is %q?", id, section, line)
		}
	}
	return p, nil
}

// MustPage is PageOf for a cause of the catalogue: the pages are part of the program,
// and a test reads them all.
func MustPage(id ID) Page {
	p, err := PageOf(id)
	if err != nil {
		panic(err)
	}
	return p
}

// Symptom is what a person sees before anything was measured. The index of the
// pages goes by them.
type Symptom string

// The symptoms.
const (
	SeeErrors     Symptom = "Clients get errors: 5xx, refused or reset connections"
	SeeNoAnswer   Symptom = "Clients get no answer: they time out, or give up"
	SeeHang       Symptom = "Some requests hang for ever"
	SeeConnecting Symptom = "New connections take 1, 3 or 7 seconds or fail, open ones are quick"
	SeeTimer      Symptom = "A few requests take 200 ms and more, the others are quick"
	SeeForty      Symptom = "Requests take about 40 ms more than they should"
	SeeLarge      Symptom = "Large answers are slow, small ones are quick"
	SeeSomeEnds   Symptom = "Only some clients are slow: far ones, or those of one network"
	SeeFull       Symptom = "All is slow, and the CPUs are full"
	SeeIdle       Symptom = "All is slow, and the CPUs have nothing to do"
	SeeOneCPU     Symptom = "One CPU or thread is full, and the others have nothing to do"
	SeePlateau    Symptom = "More clients bring no more answers"
	SeeWaves      Symptom = "All requests stand still for moments, then go on at once"
	SeeCalls      Symptom = "Requests that need another service are slow: a database, a cache, an API"
	SeeDies       Symptom = "Processes or containers end, or are killed"
	SeeStart      Symptom = "Slow after a start or a deployment"
	SeeLogs       Symptom = "A log, or the kernel's, complains"
	SeeTools      Symptom = "Tools show something alarming, and nobody waits"
)

// Symptoms lists them in the order of the index.
func Symptoms() []Symptom {
	return []Symptom{SeeErrors, SeeNoAnswer, SeeHang, SeeConnecting, SeeTimer, SeeForty, SeeLarge, SeeSomeEnds, SeeFull, SeeIdle,
		SeeOneCPU, SeePlateau, SeeWaves, SeeCalls, SeeDies, SeeStart, SeeLogs, SeeTools}
}

// String names the layer as the pages do.
func (l Layer) String() string {
	switch l {
	case LayerPath:
		return "the network between the two ends"
	case LayerNetfilter:
		return "packet filter and connection tracking"
	case LayerSocket:
		return "sockets and their queues"
	case LayerApplication:
		return "the application"
	case LayerCall:
		return "calls to other services"
	case LayerMachine:
		return "the machine: CPU, memory, disk"
	}
	return "unknown"
}
