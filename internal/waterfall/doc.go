// Package waterfall puts the hops of a trace in order: which call was made for which
// request, and which two records are the two ends of one request.
//
// In: stored or recorded requests that carry the same trace context, of one host or many.
// Out: their steps, each with its depth and both of its ends, and the text of them. It
// reads nothing and keeps nothing. What is not certain stands at the top level.
package waterfall
