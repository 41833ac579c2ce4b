// Package observe defines the Observation: everything that was seen of a host
// in one window of time, self-contained, saved to disk and replayable.
//
// It is the only thing that passes from sensing (internal/sense, which fills
// it) to judging (internal/cause and internal/diagnose, which read it). It
// holds facts and never conclusions, and it imports no other package of
// slowray: a saved Observation can be judged on any machine, without root.
//
// Conventions: a counter is its increase over the window unless its comment
// says otherwise; a gauge names the moment it was read (Peak, End). Times are
// seconds as float64 where they are sums of CPU or wait time, and carry the
// suffix NS where they are nanoseconds. Sizes are bytes.
package observe
