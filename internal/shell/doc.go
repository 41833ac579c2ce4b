// Package shell makes the command lines that people paste.
//
// In: a constant line with gaps, and the values that fill them, most of which
// come from outside: names of devices, units, containers, control groups, tables,
// files. Out: one line that a POSIX shell splits into exactly the words meant
// (POSIX.1-2017, Shell Command Language, 2.2), whatever the values hold; where a
// program could not be given a value, a comment that says why.
//
// A [Command] has no exported field and no conversion from string: text that
// was put together elsewhere does not compile. It runs nothing.
package shell
