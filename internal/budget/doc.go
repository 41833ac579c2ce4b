// Package budget bounds the work that input from others can cause.
//
// In: what a reader is about to do with files, memory and packets that somebody
// else controls: bytes to read, bytes that decompression or macro expansion
// yields, files to open, items to parse, levels to descend, time to spend.
// Out: nil, or an error that names the limit, which the reader returns as it
// would any other, so that it ends up as a Gap of the Observation.
//
// slowray runs as root next to programs of ordinary users and reads their
// binaries, configuration, logs and memory. Each of these can be made to be
// larger, deeper or slower than any real one. A reader that takes a *Budget and
// asks it first cannot be made to take the host's memory or the verdict's time.
//
// Several sources that are read in one go have one budget together, and each a
// part of it (Sub, Share): a hundred hostile ones take no more than one, and none
// of them takes what the others need.
//
// It opens nothing by itself but what Head and Names are given, which is the kernel's,
// and never panics on a negative or overflowing amount: that is an exceeded limit.
package budget
