// Package elffile reads ELF files that somebody else may have written.
//
// In: a file as an io.ReaderAt, and a budget.Budget. Out: its header, segments,
// sections and what is in them, symbols, build ID, the libraries that it needs.
//
// debug/elf of the standard library reads and unpacks what a file says of
// itself: a file of some MB takes GB of memory or hours (https://go.dev/security
// counts that as no fault of it). Here every byte that is read or unpacked,
// every section, symbol and name is taken from the budget first. The constants
// and header types are those of debug/elf; nothing else of it is used.
//
// It never maps a file into memory: whoever may write to the file could cut it
// off meanwhile, which would end slowray with SIGBUS. It keeps no more than what
// it returns, and never writes.
package elffile
