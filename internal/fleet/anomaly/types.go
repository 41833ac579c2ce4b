package anomaly

import "github.com/slowray/slowray/internal/fleet"

// Options say what counts. Zero values are the defaults.
type Options struct {
	// FalsePerDay is how many false alarms a day are borne, of all endpoints
	// together; default 0.01, which is one in a hundred days.
	FalsePerDay float64
	// The smallest effects that matter: Time is relative to the time that a request
	// usually takes, as its client sees it (default 0.1); Share is that of requests
	// that fail, or wait for a lost SYN (default 0.01).
	Time, Share float64
	// Lasting is how long an anomaly lasts, in seconds, until it is taken for the new
	// normal and said so; default six hours.
	Lasting int64
}

func (o Options) withDefaults() Options {
	if !(o.FalsePerDay > 0) {
		o.FalsePerDay = 0.01
	}
	if !(o.Time > 0) {
		o.Time = 0.1
	}
	if !(o.Share > 0) {
		o.Share = 0.01
	}
	if o.Lasting <= 0 {
		o.Lasting = 6 * 3600
	}
	return o
}

// Anomaly is an endpoint of a host that is abnormal.
type Anomaly struct {
	fleet.Key
	Signal   Signal  `json:"signal"`          // that tells most of it, as users see it
	Part     Signal  `json:"part"`            // the deepest part that makes up half of the time that is added; Total when none does
	Since    int64   `json:"since"`           // s since 1970: the first second that was unusual
	Until    int64   `json:"until,omitempty"` // 0 while it lasts
	Value    float64 `json:"value"`           // of the signal, in its Unit
	Expected float64 `json:"expected"`        // what it usually is at this time of the day and week
	P        float64 `json:"p"`               // of all signals together, before any correction for the number of endpoints
	// Effect is how much more time a request takes than usual, relative to the usual:
	// 1 is twice the time. With Errors and Again it is the share of requests that fail
	// or wait in addition, with Rate the share that is missing, 0 to 1.
	Effect float64 `json:"effect"`
	// AddedUS is the time that is added to each request, µs, and OwnUS what of it is
	// spent at this endpoint itself: not waiting for endpoints that it calls.
	AddedUS   float64 `json:"added_us"`
	OwnUS     float64 `json:"own_us"`
	Network   bool    `json:"network"` // most of the effect is on the way between the two ends
	PerSecond float64 `json:"-"`       // requests now
	// Sure is how well the model knows the endpoint, 0 to 1: 0.5 after five minutes
	// of seconds, 0.9 after a day, nearly 1 after weeks.
	Sure float64 `json:"sure"`
	// Alarm says that the endpoint is abnormal by itself; others are abnormal in the
	// company of an alarm.
	Alarm bool `json:"alarm"`
	// Accepted is when it had lasted so long that it was taken for the new normal, 0
	// when it was not.
	Accepted int64 `json:"accepted,omitempty"`
	// Besides is what else is wrong with it: an endpoint can be slow and fail at once.
	Besides []Wrong `json:"besides,omitempty"`
	// Follows are the abnormal endpoints that make this one slow, as far as the calls
	// between them tell. Explain sets it.
	Follows []fleet.Key `json:"follows,omitempty"`

	wayUS     float64 // of AddedUS: between the two ends
	mattersUS float64 // the smallest AddedUS that matters
	failed    float64 // share of requests that fail in addition
	faint     bool    // it is not unusual at this moment
	rest      float64 // -ln P of its mean time without what the way adds
	views     [layers]view
	own       bool // it would be abnormal without what it waits for, too
}

// Judgement is what is abnormal at a second.
type Judgement struct {
	At        int64     `json:"at"` // s since 1970
	Judged    int       `json:"judged"`
	Anomalies []Anomaly `json:"anomalies"`
	Ended     []Anomaly `json:"ended,omitempty"`   // in this second
	Changed   bool      `json:"changed,omitempty"` // the anomalies are others than a second before
}

// Kind is what a component is.
type Kind string

// The kinds of components.
const (
	Dependency Kind = "dependency" // an endpoint that is called: addr:port
	Service    Kind = "service"    // an endpoint of all its hosts: "mariadb:3306"
	Host       Kind = "host"
	Label      Kind = "label"   // as given by the user: "rack=r7"
	Kernel     Kind = "kernel"  // release
	Version    Kind = "version" // of slowray
	// What a program is run from, and by: see fleet.Program.
	Image  Kind = "image"  // of its container: "shop/web:2@3f9ab1c2d3e4"
	Config Kind = "config" // of a program, by a digest of its files: "nginx 9a8b7c6d5e4f"
	Build  Kind = "build"  // of a program, by a digest of it: "mariadbd 0c1d2e3f4a5b"
	// Cgroup is a control group with those in it: "HOST:/PATH" of one host, "/PATH" of all.
	Cgroup   Kind = "cgroup"
	Clients  Kind = "clients" // a network of clients: "10.3.7.0/24"
	Endpoint Kind = "endpoint"
)

// Component is what endpoints may have in common.
type Component struct {
	Kind  Kind   `json:"kind"`
	Value string `json:"value"`
}

// Shared is a component that abnormal endpoints have in common, and others have not.
type Shared struct {
	Component
	// And is a second component, when only what has both is abnormal: the service
	// "app:8080" on hosts with the label "config=7".
	And *Component `json:"and,omitempty"`
	// Name tells more of the component: the service and host that answer at a
	// dependency's address, the container that a control group is of.
	Name string `json:"name,omitempty"`
	// Inside: of InsideOf abnormal endpoints, Inside have the component. Outside: of
	// OutsideOf other endpoints, Outside have it too.
	Inside    int `json:"inside"`
	InsideOf  int `json:"inside_of"`
	Outside   int `json:"outside"`
	OutsideOf int `json:"outside_of"`
	// P is the probability that so many of the abnormal share it by chance, corrected
	// for the number of components that were tried.
	P       float64     `json:"p"`
	Members []fleet.Key `json:"members"` // abnormal endpoints that have it
	// Explains are the abnormal endpoints that it explains: its members, and what
	// follows from them.
	Explains []fleet.Key `json:"explains"`
	Network  bool        `json:"network"` // the way between the ends, and not what answers
	Signal   Signal      `json:"signal"`  // of most members
	// Besides are signals by which they are abnormal for the same cause, next to Signal.
	Besides []Signal    `json:"besides,omitempty"`
	Also    []Component `json:"also,omitempty"`   // that cannot be distinguished from it: the same endpoints have them
	Origin  *fleet.Key  `json:"origin,omitempty"` // of a dependency: the endpoint that answers there, when it is abnormal too
	Text    string      `json:"text"`
}

// Explanation is what the abnormal endpoints have in common: several components when
// there are several causes at once.
type Explanation struct {
	Shared []Shared `json:"shared"`
	// Alone are abnormal endpoints that share nothing which others have not.
	Alone []fleet.Key `json:"alone,omitempty"`
	Text  string      `json:"text"`
}
