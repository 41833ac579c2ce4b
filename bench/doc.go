// Package bench measures what slowray itself costs, on a host with 30,000
// sockets and 500 processes that it makes in a private namespace. It has
// benchmarks only: run it with `make bench`. Figures are printed, never
// asserted: a shared machine is too noisy for that.
package bench
