// Package journal makes changes under a lease, and puts them back whatever
// happens to the process that asked for them.
//
// In: changes, as causes declare them. Out: the changes made and undone by the
// Doers of internal/prove/change, and a record on disk of what was, before
// anything is touched. It measures nothing and decides nothing but when a lease
// is over.
//
//   - The journal is a directory: two files of each set of changes that is not put
//     back yet, a lock, and a history of those that are. Both files are written anew
//     for every step, and before the step is done, one after the other (a temporary
//     file, fsync, rename, fsync of the directory). What they hold has checksums: a
//     file that is damaged is reported as a change that may be in force, and put
//     back from the other one.
//   - The watchdog is a process of its own, in its own session, and the only one
//     that makes and undoes the changes of its lease. It undoes them when the
//     owner ends (their socket ends, however the owner dies), says nothing for a
//     while, tells that the service has become worse, or when the time is up.
//   - When the watchdog dies, the owner undoes. When both die, the file is left:
//     nothing can be changed before `slowray undo`, which every run says.
//   - One lock serialises all changes on a host. Owner and watchdog hold it
//     together, so that whoever has it knows that nobody else is at work.
package journal
