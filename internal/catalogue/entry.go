package catalogue

import (
	"slices"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
)

// Schema identifies the JSON of [Catalogue].
const Schema = "slowray.causes/1"

// Catalogue is all causes. Its JSON is a contract (schema/causes.schema.json).
type Catalogue struct {
	Schema string  `json:"schema"`
	Causes []Entry `json:"causes"` // in the order of the catalogue
}

// Entry is one cause, as its page tells it.
type Entry struct {
	ID            cause.ID        `json:"id"`
	Title         string          `json:"title"`
	Layer         string          `json:"layer"`
	Informational bool            `json:"informational"` // never a finding: what was seen of it is only told
	About         string          `json:"about"`
	Symptoms      []cause.Symptom `json:"symptoms"`
	Known         []string        `json:"known_by"`
	Needs         []Need          `json:"needs"` // without these it is "not checked"
	Not           []string        `json:"told_apart_from"`
	Fix           string          `json:"mend"`
	// Provable says that slowray can make the fix, measure, and undo it.
	Provable    bool        `json:"provable"`
	FollowsFrom []cause.ID  `json:"follows_from"` // causes that may bring it about
	BringsAbout []cause.ID  `json:"brings_about"` // causes that may follow from it
	Incidents   []Reference `json:"incidents"`    // of the lab, that inject it
	Controls    []Reference `json:"controls"`     // of the lab, that look like it and are not
	NotInjected string      `json:"not_planted"`  // why no incident injects it
}

// Need is a sort of reading and where it comes from.
type Need struct {
	Kind   observe.Kind `json:"kind"`
	Source string       `json:"source"`
}

// Reference names an incident of the lab.
type Reference struct {
	Name    string `json:"name"`
	Summary string `json:"summary"`
	machine bool   // of its own
}

// New puts the declarations and the incidents together.
func New(causes []cause.Cause, incidents []Incident) Catalogue {
	all := Catalogue{Schema: Schema, Causes: []Entry{}}
	for i := range causes {
		c := &causes[i]
		page := cause.MustPage(c.ID)
		e := Entry{ID: c.ID, Title: c.Title, Layer: c.Layer.String(), Informational: c.Informational,
			About: page.About, Symptoms: append([]cause.Symptom{}, page.Symptoms...), Known: append([]string{}, page.Evidence...), Needs: []Need{},
			Not: append([]string{}, page.Not...), Fix: page.Fix, Provable: c.Try != nil, FollowsFrom: []cause.ID{}, BringsAbout: []cause.ID{},
			Incidents: []Reference{}, Controls: []Reference{}, NotInjected: page.NotInjected}
		for _, kind := range c.Needs {
			e.Needs = append(e.Needs, Need{kind, sourceOf(kind)})
		}
		for j := range causes {
			other := &causes[j]
			if c.FollowsFrom(other) {
				e.FollowsFrom = append(e.FollowsFrom, other.ID)
			}
			if other.FollowsFrom(c) {
				e.BringsAbout = append(e.BringsAbout, other.ID)
			}
		}
		for _, in := range incidents {
			named := Reference{in.Name, in.Summary, in.Machine}
			switch {
			case !slices.Contains(in.Causes, c.ID):
			case in.Control:
				e.Controls = append(e.Controls, named)
			default:
				e.Incidents = append(e.Incidents, named)
			}
		}
		all.Causes = append(all.Causes, e)
	}
	return all
}

// Find gives the entry of a cause, or nil.
func (c *Catalogue) Find(id cause.ID) *Entry {
	for i := range c.Causes {
		if c.Causes[i].ID == id {
			return &c.Causes[i]
		}
	}
	return nil
}
