package answer

import (
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/anomaly"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// Schema identifies the form of a Report in JSON; it is a contract
// (schema/fleet.schema.json).
const Schema = "slowray.fleet/1"

// Report is why services of a fleet are slow.
type Report struct {
	Schema   string    `json:"schema"`
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Question Asked     `json:"question"`
	Fleet    Extent    `json:"fleet"`
	// Causes are what the abnormal endpoints have in common, that which explains most
	// first.
	Causes []Cause `json:"causes"`
	// Alone are abnormal endpoints that no cause explains.
	Alone     []Endpoint  `json:"alone"`
	Abnormal  []Endpoint  `json:"abnormal"` // all of them
	Findings  []Finding   `json:"findings"` // of hosts, that belong to no cause
	Clocks    []Clock     `json:"clocks"`   // between hosts that are named in causes
	NotTested []Unchecked `json:"not_checked"`

	inPart bool // some of the archive was away
}

// Asked is what the question was narrowed to.
type Asked struct {
	Service string `json:"service,omitempty"`
	Host    string `json:"host,omitempty"`
}

// Extent is how much was looked at.
type Extent struct {
	Hosts     int     `json:"hosts"`
	Silent    int     `json:"silent"` // of them, that have not been heard of lately
	Endpoints int     `json:"endpoints"`
	Judged    int     `json:"judged"` // of them, known well enough to be judged
	Requests  uint64  `json:"requests"`
	Errors    uint64  `json:"errors"`
	Joined    int     `json:"joined"`  // requests that were seen at both ends
	History   float64 `json:"history"` // s before the range that were looked at
}

// Cause is what makes endpoints slow or fail, as far as it is known.
type Cause struct {
	Text string `json:"text"` // one or two sentences
	// Component is what the abnormal have in common and others have not.
	Component anomaly.Component   `json:"component"`
	And       *anomaly.Component  `json:"and,omitempty"`
	Also      []anomaly.Component `json:"also"`
	Inside    int                 `json:"inside"`
	InsideOf  int                 `json:"inside_of"`
	Outside   int                 `json:"outside"`
	OutsideOf int                 `json:"outside_of"`
	P         float64             `json:"p"`
	Network   bool                `json:"network"`
	Since     time.Time           `json:"since"`
	Until     *time.Time          `json:"until"` // null while it lasts
	// Origin is where it comes from; null where that is no single endpoint, or not known.
	Origin   *Origin         `json:"origin"`
	Evidence []Fact          `json:"evidence"`
	Findings []Finding       `json:"findings"` // of the origin's host, or of the hosts that have the component
	Chain    []Endpoint      `json:"chain"`    // from the users' end to the origin
	Affected []Endpoint      `json:"affected"`
	RuledOut []Unchecked     `json:"ruled_out"`
	Next     []shell.Command `json:"next"` // on the host that it comes from

	where string // that it is on the way, or not, by requests that were seen at both ends
}

// Origin is a host, and what of it is to blame.
type Origin struct {
	Host    string `json:"host"`
	Service string `json:"service,omitempty"`
	Addr    string `json:"addr,omitempty"`
	Port    int    `json:"port,omitempty"`
	Comm    string `json:"comm,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Part    string `json:"part,omitempty"` // of a request's time that has grown most
}

// Endpoint is an abnormal endpoint.
type Endpoint struct {
	Host      string  `json:"host"`
	Service   string  `json:"service"`
	Side      string  `json:"side"`
	Addr      string  `json:"addr"`
	Port      int     `json:"port"`
	Signal    string  `json:"signal"`
	Part      string  `json:"part,omitempty"`
	Value     float64 `json:"value"`
	Expected  float64 `json:"expected"`
	Unit      string  `json:"unit"`
	Effect    float64 `json:"effect"`
	AddedUS   float64 `json:"added_us"`
	OwnUS     float64 `json:"own_us"`
	Network   bool    `json:"network"`
	P         float64 `json:"p"`
	Since     int64   `json:"since"`
	Until     int64   `json:"until,omitempty"`
	PerSecond float64 `json:"-"` // requests
	// Besides is what else is wrong with it, where it is abnormal in several ways at once.
	Besides []OtherSignal `json:"besides,omitempty"`
}

// OtherSignal is a signal of an abnormal endpoint next to the first.
type OtherSignal struct {
	Signal   string  `json:"signal"`
	Value    float64 `json:"value"`
	Expected float64 `json:"expected"`
	Unit     string  `json:"unit"`
	Effect   float64 `json:"effect"`
}

// Fact is something measured, next to what it usually is.
type Fact struct {
	Fact   string   `json:"fact"`
	Value  float64  `json:"value"`
	Usual  *float64 `json:"usual,omitempty"`
	Unit   string   `json:"unit"` // "us", "1/s", "share", "count"
	Source string   `json:"source"`
}

// Finding is what a host found itself, in one or several of its windows.
type Finding struct {
	Host    string    `json:"host"`
	Start   time.Time `json:"start"` // of the first window
	End     time.Time `json:"end"`   // of the last one
	Windows int       `json:"windows"`
	// Figures are of the window that began then: of several the worst, the last of such.
	Figures time.Time `json:"figures"`
	// Before says that it was found before the trouble began, too.
	Before bool `json:"before"`
	// Hosts is on how many of the hosts that share the component it was found, and
	// Elsewhere on how many others; 0 where the cause is one host's.
	Hosts     int           `json:"hosts,omitempty"`
	Elsewhere int           `json:"elsewhere,omitempty"`
	Finding   cause.Finding `json:"finding"`
}

// Unchecked is something that was ruled out, or could not be checked, and why.
type Unchecked struct {
	What    string `json:"what"`
	Because string `json:"because"`
}

// Clock is by how much the clock of host B is ahead of that of host A.
type Clock struct {
	A             string  `json:"a"`
	B             string  `json:"b"`
	OffsetUS      float64 `json:"offset_us"`
	UncertaintyUS float64 `json:"uncertainty_us"`
	DriftPPM      float64 `json:"drift_ppm"`
	Requests      int     `json:"requests"`
}

// Found says whether there is anything to tell.
func (r *Report) Found() bool { return len(r.Abnormal)+len(r.Findings) > 0 }

// Blind says why nothing could be judged; it is empty where something was, or where there is
// something to tell all the same.
func (r *Report) Blind() string {
	switch {
	case r.Found():
		return ""
	case r.Fleet.Hosts == 0 && r.inPart:
		return "no host is known where the archive answers; the rest of it is away"
	case r.Fleet.Hosts == 0:
		return "no host has ever shipped here: start slowray record --to with this URL on the hosts"
	case r.Fleet.Endpoints == 0:
		return "no host has figures of this range"
	case r.unseen():
		return "nobody was seen to answer or call as " + r.Question.Service + " in the range"
	case !r.well():
		return "no endpoint is known well enough yet: a minute of requests is needed"
	}
	return ""
}

func endpointOf(a *anomaly.Anomaly) Endpoint {
	e := named(&a.Key)
	e.Signal, e.Value, e.Expected, e.Unit = a.Signal.String(), a.Value, a.Expected, unitOf(a.Signal)
	for _, w := range a.Besides {
		e.Besides = append(e.Besides, OtherSignal{w.Signal.String(), w.Value, w.Expected, unitOf(w.Signal), w.Effect})
	}
	if a.Part != anomaly.Total {
		e.Part = a.Part.String()
	}
	e.Effect, e.AddedUS, e.OwnUS, e.Network, e.P, e.Since, e.Until = a.Effect, a.AddedUS, a.OwnUS, a.Network, a.P, a.Since, a.Until
	e.PerSecond = a.PerSecond
	return e
}

// unitOf is the unit of a signal, as JSON has it.
func unitOf(s anomaly.Signal) string {
	if u := s.Unit(); u != "µs" {
		return u
	}
	return "us"
}

func named(k *fleet.Key) Endpoint {
	return Endpoint{Host: k.Host, Service: k.Service, Side: k.Side.String(), Addr: k.Addr, Port: k.Port}
}

// key is the endpoint's, as an archive has it.
func (e *Endpoint) key() fleet.Key {
	side := observe.Served
	if e.Side == observe.Called.String() {
		side = observe.Called
	}
	return fleet.Key{Host: e.Host, Service: e.Service, Side: side, Addr: e.Addr, Port: e.Port}
}
