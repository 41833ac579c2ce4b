// Package shelltest tries command lines in real shells, for the tests of the
// packages that make them.
//
// In: lines that were made twice, of a harmless name and of a hostile one in its
// place ([Mutations], [Replace]). Out: failures of the test where a shell does not
// split both alike, or where anything of a name is run. Every program, and every
// builtin that acts, is replaced by one that only says its words.
package shelltest
