package catalogue

import (
	_ "embed"
	"encoding/json"

	"github.com/slowray/slowray/internal/cause"
)

// Incident is an incident of the lab, as far as a cause's page tells of it. The lab
// declares incidents; what is not to hold the lab has them from incidents.json, which
// `make docs` writes.
type Incident struct {
	Name    string     `json:"name"`
	Summary string     `json:"summary"`
	Control bool       `json:"control,omitempty"` // it looks like what it injects, and is not
	Causes  []cause.ID `json:"causes"`            // any of them names what is injected
	Machine bool       `json:"machine,omitempty"` // it runs in a machine of its own (lab/guest), not by slowray lab
}

//go:embed incidents.json
var incidentsJSON []byte

// Incidents are those of the lab, in its order.
func Incidents() []Incident {
	var list []Incident
	if err := json.Unmarshal(incidentsJSON, &list); err != nil {
		panic(err) // it is part of the program: a bug, not an input
	}
	return list
}
