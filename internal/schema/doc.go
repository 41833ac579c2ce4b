// Package schema declares the values of a stored request, and of an endpoint's second,
// once: their names, types and units, and where they are in memory.
//
// In: nothing. Out: Requests and Counts, the lists from which the log and the Parquet
// files of package store, the tables of ClickHouse and what is sent to others are made,
// and what reads them back. It formats nothing: what a value looks like is the form's.
//
// A field of a request is read and written by its offset: it costs no allocation, but for
// the text of an ID.
package schema
