// Package watch looks at a live host for one window of time.
//
// In: the readers of internal/sense. Out: one observe.Observation. It decides
// what is read when, keeps the cost of reading within bounds, and turns every
// reader that fails into a Gap. It never concludes and never changes the host.
package watch
