package observe

import "time"

// Change is something on the host that is not as it was, or as it usually is.
// It is no verdict: what changed when requests became slow is the first thing
// that people ask.
type Change struct {
	Kind ChangeKind `json:"kind"`
	// At is when it was changed; zero when that is not known, as of a setting.
	At   time.Time `json:"at,omitzero"`
	What string    `json:"what"`           // one clause
	Path string    `json:"path,omitempty"` // of a file, as the service sees it
	PID  int       `json:"pid,omitempty"`  // of the service that it is about, 0 = the host
	Comm string    `json:"comm,omitempty"`
}

// ChangeKind is a sort of change.
type ChangeKind string

// The kinds of changes.
const (
	ChangePackage ChangeKind = "package" // installed, upgraded or removed
	ChangeConfig  ChangeKind = "config"  // a file that a service, or the host, is configured by
	ChangeProgram ChangeKind = "program" // what a service executes: a deployment
	ChangeStart   ChangeKind = "start"   // of a service or its container
	ChangeBoot    ChangeKind = "boot"    // of the kernel
	ChangeSetting ChangeKind = "setting" // of the kernel, which is not its default
)
