package observe

import "time"

// Over tells in which of several windows something was found.
type Over struct {
	Onset   time.Time `json:"onset"`            // when it began in the first window that has it, or the beginning of that
	Before  bool      `json:"before,omitempty"` // it began before Onset: the first window that was judged has it from its beginning
	End     time.Time `json:"end"`              // the end of the last one
	Windows int       `json:"windows"`          // that have it
	Of      int       `json:"of"`               // windows that were judged
	Worst   time.Time `json:"worst"`            // the beginning of the window whose figures are reported
}

// Since is when something began.
type Since struct {
	At     time.Time `json:"at"`
	Before bool      `json:"before,omitempty"` // it was there then, and nobody knows for how long
}
