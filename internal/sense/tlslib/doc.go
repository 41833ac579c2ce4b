// Package tlslib finds the functions through which a process's TLS passes clear bytes.
//
// In: a process, and a budget.Budget for what of its files is read. Out: the files that
// have such functions, open, with their places; or by name what encrypts there instead
// and cannot be hooked. It attaches nothing.
package tlslib
