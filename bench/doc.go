// Package bench measures what slowray itself costs: a look at a host with
// 30,000 sockets, 500 processes, 200 control groups and 2,000 firewall rules (Window), and recording every request of
// servers under full load (Requests…), in private namespaces, services that are watched by
// uprobes (Streams), and how soon assistants have their
// answer (Assistant…). It has benchmarks
// only: run it with `make bench`.
//
// Costs of recording are ratios to runs without it, taken in turns, and stand
// in a table at the end with their targets. A shared machine is noisy: a
// benchmark fails only for a figure that misses its target by more than the
// spread of the runs. The environment variables of type plan choose how much is
// measured, and variants that show where a cost sits.
package bench
