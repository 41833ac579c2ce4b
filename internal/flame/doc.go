// Package flame draws call stacks.
//
// In: observe.Stacks, or two of them to compare. Out: a page that works from a
// file without a network (HTML), a picture (SVG), folded lines, a pprof profile,
// and a short table for the terminal. The same stacks give the same bytes, in
// whatever order their samples and frames come. It reads and changes nothing of
// the host. Names come from the watched host and are untrusted: control
// characters and what reverses the reading direction never reach an output, and
// no name can leave the place in a page where it is shown.
package flame
