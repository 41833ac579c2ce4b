// Package safefile opens the files and directories that slowray changes, so that
// root never follows a path that somebody else can change.
//
// In: a path, and who may have had a hand in it. Out: a descriptor that was
// reached component by component (O_PATH|O_NOFOLLOW, with an fstat of each one),
// and through which, or by a rename within which, everything is done from then
// on. It needs no openat2(2), which a seccomp filter may refuse.
//
// [Dir] is a directory of slowray's own. [Write] writes a file where a person asked
// for it, in anybody's directory.
//
// It never opens by path what it has checked by path, never changes an owner,
// and never trusts a directory that others than root and the one user concerned
// can write to.
package safefile
