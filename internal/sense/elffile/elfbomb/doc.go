// Package elfbomb makes hostile ELF files, for tests.
//
// In: a program that runs. Out: the same program, as far as the kernel is
// concerned, which looks at no sections; with sections that make whoever reads
// them take memory or time without end: compressed ones that unpack to gigabytes,
// names of megabytes by the ten thousand, tables that say they have terabytes.
//
// It makes files and nothing else, and is for tests only.
package elfbomb
