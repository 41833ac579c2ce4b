// Package netns does things inside a network namespace that an open file
// stands for.
//
// In: an open file, as of /proc/PID/ns/net. Out: whatever was done inside,
// such as an open socket, which stays there. No namespace gets a name, so none
// outlives its last file and process.
package netns
