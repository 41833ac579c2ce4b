// Package schema declares the values of a stored request once: their names, types
// and units, and where they are in memory.
//
// In: nothing. Out: Requests, the list of fields from which the log and the Parquet
// files of package store and the tables of ClickHouse are made, and what reads them
// back. It formats nothing: what a value looks like is the form's.
//
// A field is read and written by its offset: a request costs no call for each of its
// values, and no allocation.
package schema
