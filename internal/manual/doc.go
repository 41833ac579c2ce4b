// Package manual tells the command line to those who use it: the manual page, and
// what a shell may complete.
//
// In: the model of the command line, as kong has it. Out: a page in man(7), the
// words that may come next, scripts for bash, zsh and fish that ask for them. All
// is made from the model each time, so that nothing of it can go stale.
package manual
