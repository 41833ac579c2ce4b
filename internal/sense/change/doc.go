// Package change finds what has been changed on the host lately: packages,
// files that services are configured by, programs and when they were started,
// settings of the kernel.
//
// Comes in: the logs of package managers, times of files as each service sees
// them, /proc. Goes out: changes with their times, newest first. It never says
// that one of them is to blame, and touches no file system that might not
// answer.
package change
