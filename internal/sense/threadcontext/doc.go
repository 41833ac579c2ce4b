// Package threadcontext finds where the threads of a process publish the span of
// OpenTelemetry that they have in hand (OTEP 4947, Thread Context).
//
// In: a process. Out: how to get from the thread pointer of any of its threads to the
// pointer to that thread's record: a Place. A process that publishes says so in a mapping
// of its own (OTEP 4719, Process Context), and has a thread-local symbol in one of its ELF
// files; without the mapping none of its files is opened.
//
// Everything that is read here may be made up, and is read under a budget.Budget. Nothing
// is stopped, attached to or changed, and no record of a thread is read here: the kernel
// side does (internal/bpf/headers/thread_context.h).
package threadcontext
